"""Routes of feedback."""

from fastapi import APIRouter

from lockstitch.server.api.annotation import feedback


def routers() -> tuple[APIRouter, ...]:
    return (feedback.router,)
