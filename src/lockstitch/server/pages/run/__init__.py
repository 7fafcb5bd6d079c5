"""The run page: waterfall, panel, comparison, export and share links."""

from fastapi import APIRouter

from lockstitch.server.pages.run import compare, replay, routes, share


def routers() -> tuple[APIRouter, ...]:
    return (routes.router, compare.router, replay.router, share.router, share.public_router)
