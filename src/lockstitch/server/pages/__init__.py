"""Pages for people."""

from fastapi import APIRouter

from lockstitch.server.pages import bar, login, run, sql, stats, steering, thread, threads, workers


def routers() -> tuple[APIRouter, ...]:
    of_threads = (threads.router, thread.router, steering.router, *run.routers())
    return (bar.router, *of_threads, stats.router, sql.router, workers.router, login.router)
