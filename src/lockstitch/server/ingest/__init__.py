"""Ingest of traces: LangSmith, OTLP and three-table protocols."""

from fastapi import APIRouter


def routers() -> tuple[APIRouter, ...]:
    """Return the routers in lookup order. Routes for unsupported paths come last."""
    # Import here: routes need the server state, which needs the ingest queue.
    from lockstitch.server.ingest import accept, langsmith_read, langsmith_write, otlp, trace_rows

    return (
        accept.router,
        trace_rows.router,
        otlp.router,
        *langsmith_write.routers(),
        *langsmith_read.routers(),
        *langsmith_write.unsupported_routers(),
    )
