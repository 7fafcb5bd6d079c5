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
        stitches.stitches_router,
        running.router,
        agents.agents_router,
        finding.search_router,
        statistics.statistics_router,
        shelves.router,
        query.sql_router,
        administration.router,
        compatible.router,
    )
