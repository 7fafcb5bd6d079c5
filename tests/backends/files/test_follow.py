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
    hints = files.watch()
    assert await anext(hints) == WATCHING
    return hints


async def wait_for_hint(hints: AsyncGenerator[ChangeHint, None], thread_id: UUID, position: int) -> None:
    """Wait until a hint reports this position of a thread or a later one."""
    async with asyncio.timeout(PATIENCE):
        async for hint in hints:
            if hint.thread_id == thread_id and hint.position >= position:
                return


async def test_watch_sees_commits_of_this_process(files: FilesBackend) -> None:
    before = await create(files)
    hints = await watching(files)
    head = await create(files)
    await append(files, head, said("one"))
    received: list[ChangeHint] = []
    async with asyncio.timeout(PATIENCE):
        while ChangeHint(head.id, 1) not in received:
            received.append(await anext(hints))
    assert before.id not in {hint.thread_id for hint in received}
    await hints.aclose()


async def test_watch_sees_commits_of_another_process(files: FilesBackend, root: Path) -> None:
    head = await create(files)
    hints = await watching(files)
    with nursery(root, "take_a_turn") as processes:
        processes.bear()
        await wait_for_hint(hints, head.id, 2)
        while processes.hear()[0] != "dead":
            pass
    await hints.aclose()


async def test_watch_misses_nothing_when_checkpoint_empties_journal(root: Path) -> None:
    files, other_backend = await opened(root), await opened(root)
    heads = [await create(other_backend) for _ in range(3)]
    place = schema.here(coordinator.FolderCoordinator(root))
    for head in heads[:2]:
        await append(other_backend, head, said("one"))
    coordinator.FolderCoordinator(root).checkpoint()
    await append(other_backend, heads[2], said("one"))
    hints, now = schema.look(coordinator.FolderCoordinator(root), place, NOW)
    assert set(hints) >= {ChangeHint(head.id, 1) for head in heads}
    assert schema.look(coordinator.FolderCoordinator(root), now, NOW) == ([], now)
    await files.close()
    await other_backend.close()


async def test_close_ends_watch(files: FilesBackend) -> None:
    hints = await watching(files)
    await files.close()
    async with asyncio.timeout(PATIENCE):
        assert [hint async for hint in hints] == []
