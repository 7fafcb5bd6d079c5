"""Ingest of traces: LangSmith, Langfuse, OTLP and three-table protocols."""

from fastapi import APIRouter


def routers() -> tuple[APIRouter, ...]:
    """Return the routers in lookup order. Routes for unsupported paths come last."""
    # Import here: routes need the server state, which needs the ingest queue.
    from lockstitch.server.ingest import accept, langfuse, langsmith, langsmith_write, otlp, trace_rows

    return (
        accept.router,
        trace_rows.router,
        otlp.router,
        langfuse.router,
        *langsmith_write.routers(),
        *langsmith.routers(),
        langfuse.unsupported_router(),
        *langsmith_write.unsupported_routers(),
    )
