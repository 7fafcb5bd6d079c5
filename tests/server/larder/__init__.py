"""A tiny application, as an outsider would write one: a page, a form, a route, a section and a file."""

from typing import Annotated

from fastapi import APIRouter, Form, Request
from starlette.responses import Response

from lockstitch import Agent, Store
from lockstitch.server import Actor, Annex, Exact, Reader, Section, back, page, the


class Larder:
    """Jars that are counted."""

    name = "larder"
    annex: str | Annex = "tests.server.larder:ANNEX"

    def __init__(self, jars: int = 0) -> None:
        self.jars = jars
        self.agents = [Agent("cook", model="scripted:Done.")]
        self.stores: list[Store] = []

    async def ready(self, store: Store) -> None:
        self.stores.append(store)


programs = APIRouter(prefix="/api/larder")
people = APIRouter(include_in_schema=False)
TheLarder = Annotated[Larder, the(Larder)]


@programs.get("")
async def count(caller: Reader, larder: TheLarder) -> Exact:
    """How many jars there are."""
    return Exact({"jars": larder.jars, "project": caller.project})


@people.get("/larder")
async def look(request: Request, caller: Reader, larder: TheLarder) -> Response:
    return page(request, caller, "larder/shelf.html", section="Larder", larder=larder)


@people.post("/larder")
async def fill(request: Request, caller: Actor, larder: TheLarder, jars: Annotated[int, Form(ge=1)]) -> Response:
    larder.jars += jars
    return back(request, "/larder", f"{caller.actor} added {jars}.")


ANNEX = Annex(api=[programs], pages=[people], sections=[Section("Larder", "/larder", "l")], package=__name__)
