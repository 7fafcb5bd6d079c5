"""A small third-party application with a page, a form, a route, a section and a file."""

from typing import Annotated

from fastapi import APIRouter, Form, Request
from starlette.responses import Response

from lockstitch import Agent, Store
from lockstitch.server import (
    ExactJSON,
    FormWriter,
    NavLink,
    Reader,
    ServerExtension,
    plugin_of,
    redirect_to,
    render_page,
)


class Larder:
    """An application that counts jars."""

    name = "larder"
    server_extension: str | ServerExtension = "tests.server.larder:EXTENSION"

    def __init__(self, jars: int = 0) -> None:
        self.jars = jars
        self.agents = [Agent("cook", model="scripted:Done.")]
        self.stores: list[Store] = []

    async def setup(self, store: Store) -> None:
        self.stores.append(store)


programs = APIRouter(prefix="/api/larder")
people = APIRouter(include_in_schema=False)
TheLarder = Annotated[Larder, plugin_of(Larder)]


@programs.get("")
async def count(caller: Reader, larder: TheLarder) -> ExactJSON:
    """Return the number of jars."""
    return ExactJSON({"jars": larder.jars, "project": caller.project})


@people.get("/larder")
async def look(request: Request, caller: Reader, larder: TheLarder) -> Response:
    return render_page(request, caller, "larder/shelf.html", section="Larder", larder=larder)


@people.post("/larder")
async def fill(request: Request, caller: FormWriter, larder: TheLarder, jars: Annotated[int, Form(ge=1)]) -> Response:
    larder.jars += jars
    return redirect_to(request, "/larder", f"{caller.actor} added {jars}.")


EXTENSION = ServerExtension(
    api=[programs], pages=[people], sections=[NavLink("Larder", "/larder", "l")], package=__name__
)
