"""`sql` and `lens` of a files store read a copy in SQLite, which stays until the record changes."""

import asyncio
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lockstitch.errors import StoreUnreachable
from lockstitch.store import Store, open_store, sql_copy
from tests.docs.warm import warm_commands

pytestmark = pytest.mark.anyio

TITLES = "SELECT title FROM threads ORDER BY title"
WRITER = """
from lockstitch.sync import open_store
with open_store({url!r}) as store:
    store.create(title="of another process")
"""


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file:///{tmp_path / 'store'}"


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    async with open_store(url) as opened:
        await opened.create(title="first")
        yield opened


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[Store]:
    """The stores that were opened for copies."""
    opened: list[Store] = []
    copy = sql_copy.copying.copy

    async def counted(source: Store, target: Store, *, held: bool) -> None:
        opened.append(target)
        await copy(source, target, held=held)

    monkeypatch.setattr(sql_copy.copying, "copy", counted)
    return opened


async def titles(store: Store) -> list[str]:
    return [row[0] for row in (await store.sql(TITLES)).rows]


async def is_open(store: Store) -> bool:
    try:
        await store.ping()
    except Exception:
        return False
    return True


async def test_unchanged_record_is_copied_once(store: Store, copied: list[Store]) -> None:
    for view in (store, store, store.in_project("other")):
        assert await titles(view) == ["first"]
        async with view.lens("agentic_threads") as connection:
            assert connection.execute("SELECT count(*) FROM threads").fetchone() == (1,)
    assert len(copied) == 1


async def test_statement_reads_commits_of_this_store(store: Store, copied: list[Store]) -> None:
    assert await titles(store) == ["first"]
    await store.create(title="second")
    assert await titles(store) == ["first", "second"]
    async with store.lens("three_table") as connection:
        assert connection.execute("SELECT count(*) FROM agent_config").fetchone() == (2,)
    assert [await is_open(copy) for copy in copied] == [False, True]


async def test_statement_reads_commits_of_another_process(store: Store, url: str) -> None:
    assert await titles(store) == ["first"]
    command = [warm_commands() / "python", "-c", WRITER.format(url=url)]
    await asyncio.to_thread(subprocess.run, command, check=True, timeout=60)
    assert await titles(store) == ["first", "of another process"]


async def test_concurrent_statements_share_one_copy(store: Store, copied: list[Store]) -> None:
    assert await asyncio.gather(*(titles(store) for _ in range(6))) == [["first"]] * 6
    assert len(copied) == 1


async def test_open_lens_keeps_its_state_while_others_read_newer_records(store: Store, copied: list[Store]) -> None:
    async with store.lens("agentic_threads") as connection:
        await store.create(title="second")
        assert await titles(store) == ["first", "second"]
        assert [await is_open(copy) for copy in copied] == [True, True]
        assert connection.execute("SELECT count(*) FROM threads").fetchone() == (1,)
    assert [await is_open(copy) for copy in copied] == [False, True]


async def test_copy_of_a_record_that_changed_during_copying_is_used_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = sql_copy.copying.copy

    async def disturbed(source: Store, target: Store, *, held: bool) -> None:
        await copy(source, target, held=held)
        monkeypatch.setattr(sql_copy.copying, "copy", copy)
        await store.create(title="second")

    monkeypatch.setattr(sql_copy.copying, "copy", disturbed)
    assert await titles(store) == ["first"]
    assert await titles(store) == ["first", "second"]


async def test_failed_copy_is_not_used_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    targets: list[Store] = []

    async def failed(source: Store, target: Store, *, held: bool) -> None:
        targets.append(target)
        raise StoreUnreachable("gone")

    with monkeypatch.context() as patch:
        patch.setattr(sql_copy.copying, "copy", failed)
        with pytest.raises(StoreUnreachable, match="gone"):
            await titles(store)
    assert [await is_open(target) for target in targets] == [False]
    assert await titles(store) == ["first"]


async def test_copy_is_deleted_with_its_store(url: str, copied: list[Store]) -> None:
    async with open_store(url) as store:
        await titles(store)
    assert [await is_open(copy) for copy in copied] == [False]


async def test_copy_is_deleted_when_it_is_not_used(
    store: Store, copied: list[Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_copy, "IDLE", 0.0)
    async with store.lens("agentic_threads") as connection:
        await titles(store)
        for _ in range(10):
            await asyncio.sleep(0)
        assert connection.execute("SELECT count(*) FROM threads").fetchone() == (1,)
        assert await is_open(copied[0])
    async with asyncio.timeout(30):
        while await is_open(copied[0]):  # noqa: ASYNC110, no event reports this
            await asyncio.sleep(0)
    assert await titles(store) == ["first"]
    assert len(copied) == 2
