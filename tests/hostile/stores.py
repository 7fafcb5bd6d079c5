"""Helpers: a second store, a thread with some turns, and the error with which opening a store fails."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lockstitch.errors import LockstitchError
from lockstitch.model import Thread
from lockstitch.store import Store, open_store
from tests.samples import turn
from tests.servers import Databases


@contextmanager
def fresh_url(kind: str, name: str, folder: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """Return the URL of a new store of any backend, separate from the other stores of the test."""
    if kind == "files":
        yield f"file:///{folder / name}"
    elif kind == "sqlite":
        yield f"sqlite:///{folder / name}.db"
    else:
        databases: Databases = request.getfixturevalue("databases")
        url = databases.take()
        yield url
        databases.give_back(url)


async def create_conversation(store: Store, turns: int = 3, text: str = "Hi") -> Thread:
    """Write a thread with some turns of two stitches each."""
    head = await store.create(key="story", title="A story")
    for number in range(turns):
        head = await turn(store, head, f"{text} {number}", f"Ho {number}")
    return head


async def read_through(url: str) -> tuple[int, int]:
    """Open a store, read everything, write to it. Return the numbers of threads and stitches."""
    async with open_store(url) as store:
        report = await store.verify()
        assert report.ok, report.problems
        for thread in await store.threads(limit=None):
            await store.context(thread)
            await store.history(thread)
        head = await store.thread("story")
        await turn(store, head, "Still there?", "Yes.")
        return report.threads, report.stitches


async def refusal(url: str, error: type[LockstitchError] = LockstitchError) -> LockstitchError:
    """Return the error with which an unusable store is rejected. It must have a helpful message and an exit code."""
    with pytest.raises(error) as raised:
        await read_through(url)
    exc = raised.value
    assert isinstance(exc, LockstitchError)
    assert len(str(exc)) > 30
    assert "Traceback" not in str(exc)
    return exc
