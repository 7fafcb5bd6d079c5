"""Traces of others over their own protocols."""

from fastapi import APIRouter


def routers() -> tuple[APIRouter, ...]:
    """In the order in which paths are looked up: what answers that it is not served comes last."""
    # Here, since routes need the server state, which needs the ingest queue.
    from lockstitch.server.ingest import accept, langsmith_read, langsmith_write, otlp, three_table

    return (
        accept.router,
        three_table.router,
        otlp.router,
        *langsmith_write.routers(),
        *langsmith_read.routers(),
        *langsmith_write.unsupported_routers(),
    )
