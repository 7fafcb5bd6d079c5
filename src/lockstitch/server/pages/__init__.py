"""The HTML pages of the server."""

from fastapi import APIRouter

from lockstitch.server.pages import agents, annotation, login, navbar, run, schedules, workers
from lockstitch.server.pages.evals import datasets, evaluations
from lockstitch.server.pages.feedback import routes as feedback
from lockstitch.server.pages.sql import routes as sql
from lockstitch.server.pages.stats import alerts
from lockstitch.server.pages.stats import routes as stats
from lockstitch.server.pages.thread import actions
from lockstitch.server.pages.thread import routes as thread
from lockstitch.server.pages.threads import bulk, views
from lockstitch.server.pages.threads import routes as threads


def routers() -> tuple[APIRouter, ...]:
    of_threads = (
        threads.router,
        bulk.router,
        views.router,
        thread.router,
        actions.router,
        *run.routers(),
        feedback.router,
    )
    of_evals = (datasets.router, evaluations.router, annotation.router)
    of_work = (agents.router, schedules.router, workers.router)
    return (navbar.router, *of_threads, *of_evals, stats.router, alerts.router, sql.router, *of_work, login.router)
