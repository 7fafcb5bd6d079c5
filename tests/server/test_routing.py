"""`LazyRouter` serves as FastAPI's router does, and analyzes only the routes that are used."""

import threading
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from pydantic import BaseModel

from lockstitch.server.routing import LazyRoute, LazyRouter


class Order(BaseModel):
    """A body."""

    number: int


def _router() -> LazyRouter:
    router = LazyRouter(prefix="/orders", tags=["orders"])

    @router.get("/{number}")
    async def read(number: int, shown: bool = False) -> dict[str, Any]:
        return {"number": number, "shown": shown}

    @router.post("", status_code=201)
    async def create(order: Order) -> Order:
        return order

    return router


def _route(router: LazyRouter, name: str) -> LazyRoute:
    return next(route for route in router.routes if isinstance(route, LazyRoute) and route.name == name)


def _is_analyzed(route: LazyRoute) -> bool:
    return "dependant" in route.__dict__


def test_analyzes_only_used_routes() -> None:
    router, app = _router(), FastAPI()
    app.router.routes.extend(router.routes)
    with TestClient(app) as client:
        assert client.get("/orders/7", params={"shown": "true"}).json() == {"number": 7, "shown": True}
        assert client.get("/orders/seven").status_code == 422
        assert _is_analyzed(_route(router, "read"))
        assert not _is_analyzed(_route(router, "create"))
        assert client.post("/orders", json={"number": 8}).status_code == 201
        assert client.delete("/orders").status_code == 405
        assert client.get("/elsewhere/orders").status_code == 404
    assert set(app.openapi()["paths"]) == {"/orders/{number}", "/orders"}


def test_serves_same_route_at_another_path() -> None:
    router, app = _router(), FastAPI()
    app.router.routes.extend([*router.routes, _route(router, "read").at("/v2/orders/{number}")])
    with TestClient(app) as client:
        assert client.get("/v2/orders/7").json() == client.get("/orders/7").json()


def test_analyzes_route_once_when_threads_use_it_at_the_same_time() -> None:
    route = _route(_router(), "create")
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(route.dependant)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(dependant) for dependant in found}) == 1


def test_reports_wrong_route_each_time_it_is_used() -> None:
    router = LazyRouter()

    @router.get("/wrong", status_code=204, response_model=Order)
    async def wrong() -> None: ...

    for _ in range(2):
        with pytest.raises(AssertionError, match="response body"):
            _ = _route(router, "wrong").dependant
    with pytest.raises(AttributeError):
        _ = _route(_router(), "read").unknown_attribute
