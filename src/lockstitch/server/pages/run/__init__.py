"""The page of one run: what it did and when, what was asked and answered, and how it differs from another."""

from fastapi import APIRouter

from lockstitch.server.pages.run import compare
from lockstitch.server.pages.run import routes as exporting
from lockstitch.server.pages.run import routes as looking


def routers() -> tuple[APIRouter, ...]:
    return (looking.router, compare.router, exporting.router)
