"""A store that can be read and not written, by its file permissions. As root, the tests switch to the user nobody."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from lockstitch.errors import LockstitchError, StoreReadOnly
from lockstitch.store import open_store
from tests.hostile.stores import create_conversation, refusal
from tests.races.processes import Gate, run
from tests.samples import said

pytestmark = pytest.mark.anyio

NOBODY = 65534


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not in the folder of pytest, which the user nobody cannot enter."""
    path = Path(tempfile.mkdtemp(prefix="lockstitch-closed-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


async def try_to_write(gate: Gate, url: str) -> list[str]:
    """Open, read and write as the user nobody. Return the outcome."""
    # Import everything that opening a store needs first: the user nobody cannot read the home of root.
    for warm in ("sqlite:///:memory:", f"file:///{tempfile.mkdtemp()}/store"):
        async with open_store(warm) as store:
            await store.create()
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    gate()
    try:
        async with open_store(url) as store:
            head = await store.thread("story")
            await store.append(head, [said("not allowed")])
    except LockstitchError as exc:
        return [type(exc).__name__, str(exc), str(exc.exit_code)]
    return ["written", "", ""]


def close(path: Path) -> None:
    for folder, _, names in os.walk(path):
        for name in names:
            Path(folder, name).chmod(0o444)
        Path(folder).chmod(0o555)
    path.chmod(0o444 if path.is_file() else 0o555)


@pytest.mark.parametrize("backend", ["files", "sqlite"])
async def test_read_only_files_raise_error_on_write(backend: str, folder: Path) -> None:
    path = folder / ("store" if backend == "files" else "store.db")
    url = f"file:///{path}" if backend == "files" else f"sqlite:///{path}"
    async with open_store(url) as store:
        await create_conversation(store)
    close(folder)
    ((kind, message, code),) = await asyncio.to_thread(
        run, "tests.hostile.test_without_permission:try_to_write", [[url]]
    )
    assert kind == "StoreReadOnly", message
    assert (str(path) in message, "ermission" in message, code) == (True, True, "5")
    async with open_store(url) as store:
        assert (await store.thread("story")).position == 6


@pytest.mark.parametrize("backend", ["files", "sqlite"])
async def test_unwritable_folder_raises_error(backend: str, folder: Path) -> None:
    folder.chmod(0o555)
    url = f"file:///{folder}/store" if backend == "files" else f"sqlite:///{folder}/store.db"
    ((kind, message, code),) = await asyncio.to_thread(
        run, "tests.hostile.test_without_permission:try_to_write", [[url]]
    )
    assert kind in ("StoreReadOnly", "StoreUnreachable"), message
    assert (str(folder) in message, code) == (True, "5")
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("backend", ["postgres"])
async def test_read_only_server_raises_error_on_write(backend: str, store_url: str) -> None:
    async with open_store(store_url) as store:
        head = await create_conversation(store)
    with psycopg.connect(store_url, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    async with open_store(store_url) as store:
        assert len(await store.stitches("story")) == 6
        with pytest.raises(StoreReadOnly):
            await store.append(head, [said("not allowed")])
        assert (await store.thread("story")).position == 6
    exc = await refusal(store_url, StoreReadOnly)
    assert exc.exit_code == 5


@pytest.mark.parametrize("backend", ["postgres"])
async def test_full_disk_of_server_raises_store_full(backend: str, store_url: str) -> None:
    """The server fails to extend a table at every third stitch. No commit is incomplete."""
    async with open_store(store_url) as store:
        head = await create_conversation(store)
        with psycopg.connect(store_url, autocommit=True) as connection:
            connection.execute(
                "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
                "RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$"
            )
            connection.execute(
                "CREATE TRIGGER full_disk BEFORE INSERT ON lockstitch.stitches "
                "FOR EACH ROW WHEN (NEW.position % 3 = 0) EXECUTE FUNCTION full_disk()"
            )
            with pytest.raises(LockstitchError, match="ree disk space") as raised:
                await store.append(head, [said(str(number)) for number in range(5)])
            assert type(raised.value).__name__ == "StoreFull"
            assert (await store.thread(head)).position == 6
            connection.execute("DROP TRIGGER full_disk ON lockstitch.stitches")
        await store.append(head, [said("room again")])
        assert (await store.verify()).problems == []
