"""JSON under /api: what can be asked and done, in the words of the store."""

from fastapi import APIRouter

from lockstitch.server.api import (
    administration,
    agents,
    compatible,
    events,
    finding,
    query,
    replies,
    running,
    runs,
    shelves,
    statistics,
    stitches,
    threads,
)


def routers() -> tuple[APIRouter, ...]:
    return (
        threads.router,
        replies.router,
        events.router,
        runs.router,
        stitches.router,
        running.router,
        agents.router,
        finding.router,
        statistics.router,
        shelves.router,
        query.router,
        administration.router,
        compatible.router,
    )
