"""watch reports changes of this process and of other processes."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from uuid import UUID

import pytest

from lockstitch.backend import WATCHING, ChangeHint
from lockstitch.backends.files import FilesBackend, coordinator, schema
from tests.backends.files.test_processes import nursery
from tests.backends.files.writing import append, create, opened, said
from tests.conformance.contract import NOW

pytestmark = pytest.mark.anyio

PATIENCE = 20


async def watching(files: FilesBackend) -> AsyncGenerator[ChangeHint, None]:
    sightings = files.watch()
    assert await anext(sightings) == WATCHING
    return sightings


async def seen(sightings: AsyncGenerator[ChangeHint, None], thread_id: UUID, position: int) -> None:
    """Wait until a hint reports this position of a thread or a later one."""
    async with asyncio.timeout(PATIENCE):
        async for sighting in sightings:
            if sighting.thread_id == thread_id and sighting.position >= position:
                return


async def test_watch_sees_commits_of_this_process(files: FilesBackend) -> None:
    before = await create(files)
    sightings = await watching(files)
    head = await create(files)
    await append(files, head, said("one"))
    found: list[ChangeHint] = []
    async with asyncio.timeout(PATIENCE):
        while ChangeHint(head.id, 1) not in found:
            found.append(await anext(sightings))
    assert before.id not in {sighting.thread_id for sighting in found}
    await sightings.aclose()


async def test_watch_sees_commits_of_another_process(files: FilesBackend, root: Path) -> None:
    head = await create(files)
    sightings = await watching(files)
    with nursery(root, "take_a_turn") as others:
        others.bear()
        await seen(sightings, head.id, 2)
        while others.hear()[0] != "dead":
            pass
    await sightings.aclose()


async def test_watch_misses_nothing_when_checkpoint_empties_journal(root: Path) -> None:
    files, other = await opened(root), await opened(root)
    heads = [await create(other) for _ in range(3)]
    place = schema.here(coordinator.FolderCoordinator(root))
    for head in heads[:2]:
        await append(other, head, said("one"))
    coordinator.FolderCoordinator(root).checkpoint()
    await append(other, heads[2], said("one"))
    sightings, now = schema.look(coordinator.FolderCoordinator(root), place, NOW)
    assert set(sightings) >= {ChangeHint(head.id, 1) for head in heads}
    assert schema.look(coordinator.FolderCoordinator(root), now, NOW) == ([], now)
    await files.close()
    await other.close()


async def test_close_ends_watch(files: FilesBackend) -> None:
    sightings = await watching(files)
    await files.close()
    async with asyncio.timeout(PATIENCE):
        assert [sighting async for sighting in sightings] == []
