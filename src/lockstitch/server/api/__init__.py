"""The JSON API under /api."""

from fastapi import APIRouter

from lockstitch.server.api import (
    admin,
    alerts,
    annotation,
    evals,
    events,
    messages,
    records,
    replays,
    runs,
    saved_views,
    schedules,
    search,
    thread_actions,
    threads,
    three_table,
    ui_streams,
)


def routers() -> tuple[APIRouter, ...]:
    return (
        threads.router,
        threads.queries_router,
        saved_views.router,
        thread_actions.router,
        events.router,
        runs.router,
        runs.stitches_router,
        messages.router,
        runs.agents_router,
        search.search_router,
        search.statistics_router,
        schedules.router,
        replays.router,
        alerts.router,
        records.router,
        *annotation.routers(),
        *evals.routers(),
        search.sql_router,
        admin.router,
        three_table.router,
        ui_streams.router,
    )
