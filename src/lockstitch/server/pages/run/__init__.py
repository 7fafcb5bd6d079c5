"""The run page: waterfall, panel, comparison and export."""

from fastapi import APIRouter

from lockstitch.server.pages.run import compare
from lockstitch.server.pages.run import routes as exporting
from lockstitch.server.pages.run import routes as looking


def routers() -> tuple[APIRouter, ...]:
    return (looking.router, compare.router, exporting.router)
