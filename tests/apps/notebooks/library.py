"""The library of the demonstration: its team says its answers in pieces, and waits where a test wants it to."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from lockstitch.agents import App
from lockstitch.agents.providers.scripted import Scripted
from lockstitch.apps.notebooks import Notebooks
from lockstitch.cli.demo.notebook import reply
from lockstitch.engine.ports.provider import Chunk, ModelRequest, Response
from lockstitch.model import Json

PRICES: dict[str, Json] = {"scripted": {"input": 3.0, "output": 15.0}}


class Library(Scripted):
    """Says what the library's model says. Whoever is held says the first piece of an answer, and the rest when let."""

    def __init__(self) -> None:
        super().__init__(_in_pieces)
        self.held: dict[str, asyncio.Event] = {}

    def hold(self, who: str) -> asyncio.Event:
        """Have NotebookLM, Researcher or Writer wait in the middle of an answer, until this is set."""
        self.held[who] = asyncio.Event()
        return self.held[who]

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk | Response, None]:
        begun = False
        async for piece in super().stream(request):
            yield piece
            if not begun and isinstance(piece, Chunk) and piece.kind == "text":
                begun = True
                if gate := self.held.pop(_who(request), None):
                    # A test that fails never lets it; the server it leaves must still end.
                    await asyncio.wait_for(gate.wait(), 20)


def _who(request: ModelRequest) -> str:
    tools = {str(one.get("name")) for one in request.tools}
    return "NotebookLM" if "delegate" in tools else "Researcher" if "search_sources" in tools else "Writer"


def _in_pieces(request: ModelRequest) -> Any:
    said = reply(request)
    return {"text": said, "chunk": 60} if isinstance(said, str) else said


def library(model: Scripted | None = None) -> tuple[Notebooks, App]:
    """The application, and the app that it is of."""
    application = Notebooks(model=model or Library(), prices=PRICES)
    return application, App(plugins=[application])
