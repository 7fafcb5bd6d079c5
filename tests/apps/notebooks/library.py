"""`Library`: the model of the demo. It streams answers in chunks and can pause."""

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
    """Replies like the model of the demo. A held agent sends the first chunk of an answer, then waits."""

    def __init__(self) -> None:
        super().__init__(_in_pieces)
        self.held: dict[str, asyncio.Event] = {}

    def hold(self, agent: str) -> asyncio.Event:
        """Hold NotebookLM, Researcher or Writer in the middle of an answer until the event is set."""
        self.held[agent] = asyncio.Event()
        return self.held[agent]

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk | Response, None]:
        started = False
        async for part in super().stream(request):
            yield part
            if not started and isinstance(part, Chunk) and part.kind == "text":
                started = True
                if gate := self.held.pop(_who(request), None):
                    # A failed test never sets the event, and its server must still stop.
                    await asyncio.wait_for(gate.wait(), 20)


def _who(request: ModelRequest) -> str:
    tools = {str(tool.get("name")) for tool in request.tools}
    return "NotebookLM" if "delegate" in tools else "Researcher" if "search_sources" in tools else "Writer"


def _in_pieces(request: ModelRequest) -> Any:
    answer = reply(request)
    return {"text": answer, "chunk": 60} if isinstance(answer, str) else answer


def library(model: Scripted | None = None) -> tuple[Notebooks, App]:
    """Return the plugin and its app."""
    application = Notebooks(model=model or Library(), prices=PRICES)
    return application, App(plugins=[application])
