"""The page of one run: what it did and when, what was asked and answered, and how it differs from another."""

from fastapi import APIRouter

from lockstitch.server.pages.run import comparing, exporting, looking


def routers() -> tuple[APIRouter, ...]:
    return (looking.router, comparing.router, exporting.router)
