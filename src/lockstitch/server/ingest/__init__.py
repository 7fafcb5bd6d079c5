"""Traces of others over their own protocols."""

from fastapi import APIRouter


def routers() -> tuple[APIRouter, ...]:
    """In the order in which paths are looked up: what answers that it is not served comes last."""
    # Here, since what routes need of a house stands on what takes arrivals in.
    from lockstitch.server.ingest import documents, langsmith, looking, otlp, quarantine, unserved

    return (
        quarantine.router,
        documents.router,
        otlp.router,
        *(both for module in (langsmith, looking, unserved) for both in module.routers()),
    )
