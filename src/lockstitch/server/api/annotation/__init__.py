"""Routes of feedback and of the annotation queue."""

from fastapi import APIRouter

from lockstitch.server.api.annotation import feedback, queue


def routers() -> tuple[APIRouter, ...]:
    return (feedback.router, queue.router)
