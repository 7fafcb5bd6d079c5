"""A bare setup: enough to end a run, and no more. No code of the agent is needed for that."""

from collections.abc import AsyncGenerator

from lockstitch.errors import NotFound
from lockstitch.records import Run, Thread
from lockstitch.runtime.compactors.none import NoCompactor
from lockstitch.runtime.definition import Definition
from lockstitch.runtime.file_stores.none import NoFileStore
from lockstitch.runtime.memories.none import NoMemoryStore
from lockstitch.runtime.provider import Download, ModelRequest, Piece, Provider, ProviderError, Response
from lockstitch.runtime.setup import Setup
from lockstitch.store import Store


async def bare_setup(store: Store, head: Thread, run: Run | None) -> Setup:
    """What a run is ended by: its definition as it is stored, if it is."""
    name = (run.agent if run is not None else head.agent) or "unknown"
    definition = Definition(name=name, model="none:none")
    if run is not None and run.version is not None:
        try:
            stored = await store.agents.version(head.project, name, run.version)
            definition = Definition.model_validate(stored.definition)
        except NotFound:
            pass
    version = (run.version if run is not None else None) or 0
    return Setup(definition, version, _Absent(), "none", NoCompactor(), NoMemoryStore(), NoFileStore())


class _Absent(Provider):
    """No provider: a run that is being ended calls no model."""

    name = "none"

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Piece | Response, None]:
        raise ProviderError("There is no model here.", "setup")
        yield Piece("text")  # so that this is a generator

    async def download(self, file_id: str) -> Download:
        raise ProviderError("There is no provider here.", "setup")

    async def close(self) -> None: ...
