"""Several processes on one store, played by one thread of one process, under one clock."""

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from lockstitch.backend import Find, FullBackend
from lockstitch.model import FakeClock, Thread, Worker
from lockstitch.store import Store, open_store

T = TypeVar("T")

PROCESSES = 3


class StoreHarness:
    """A store with connections for each process. It is emptied between examples, because a new one takes longer."""

    def __init__(self, url: str, turn: int = 0) -> None:
        self.turn = turn
        self.clock = FakeClock()
        self.backends: list[FullBackend] = []
        self._runner = asyncio.Runner()
        self._url = url

    def __enter__(self) -> Self:
        for _ in range(PROCESSES):
            self.backends.append(self.run(open_store(self._url, clock=self.clock).__aenter__())._backend)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        for backend in self.backends:
            self.run(backend.close())
        self._runner.close()

    def run(self, act: Coroutine[Any, Any, T]) -> T:
        # `Runner.run` sets a signal handler each time, which takes as long as a step.
        return self._runner.get_loop().run_until_complete(act)

    def store(self, number: int) -> Store:
        """Return the store of a process that has just started: it is not registered and holds no threads."""
        return Store(self.backends[number], clock=self.clock, project="default")

    def empty(self) -> None:
        async def delete() -> None:
            await self.backends[0].delete(Find(Thread), force=True)
            await self.backends[0].delete(Find(Worker))

        self.run(delete())
