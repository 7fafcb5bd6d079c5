"""`open_store`: valid and invalid URLs, and closing a store."""

import inspect
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from lockstitch.errors import LockstitchError, NotFound, Refused, StoreUnreachable
from lockstitch.store import Store, open_store
from tests.samples import turn

pytestmark = pytest.mark.anyio

Open = Callable[..., Awaitable[Store]]


async def test_keeps_records_when_store_is_opened_again(store_url: str) -> None:
    async with open_store(store_url) as store:
        thread = await turn(store, await store.create(key="k", extras={"z": 2**70, "a": 1}), "Hello", "Hi")
        before = await store.context(thread)

    async with open_store(store_url) as store:
        assert await store.thread("k") == thread
        assert await store.context("k") == before


async def test_two_stores_at_one_url_read_the_same_records(store: Store, opened: Open) -> None:
    second_store = await opened()
    thread = await store.create(key="k")

    assert await second_store.thread("k") == thread
    moved = await turn(second_store, thread, "Hello", "Hi")
    assert await store.thread("k") == moved


async def test_opens_existing_store_without_migrating(store: Store, opened: Open) -> None:
    thread = await store.create()

    assert await (await opened(migrate=False)).thread(thread.id) == thread


async def test_migrating_again_changes_nothing(store: Store) -> None:
    thread = await store.create(key="k")
    version = await store.migrate()

    assert await store.migrate() == version >= 1
    assert await store.thread("k") == thread


@pytest.mark.req("S0-005")
async def test_exit_releases_held_threads_and_closes(store_url: str) -> None:
    async with open_store(store_url) as store:
        thread = await store.create(kind="goal", goal="g")
        held_thread = await store.claim(thread)
        assert held_thread.held

    with pytest.raises(LockstitchError):
        await store.thread(thread.id)
    async with open_store(store_url) as store:
        given_back = await store.thread(thread.id)
        assert (given_back.status, given_back.worker_id) == ("pending", None)
        assert given_back.fence > held_thread.fence


async def test_closes_when_the_body_raises(store_url: str) -> None:
    with suppress(ZeroDivisionError):
        async with open_store(store_url) as store:
            thread = await store.create(kind="goal", goal="g")
            await store.claim(thread)
            raise ZeroDivisionError

    async with open_store(store_url) as store:
        assert not (await store.thread(thread.id)).held


@pytest.mark.req("S0-005")
def test_methods_that_use_the_store_are_coroutines() -> None:
    # Methods that return new records, streams, `async with`, tables, and views of a project or a namespace.
    plain = {"new_thread", "new_run", "new_delivery", "watch", "changes", "lens", "table", "in_project"}
    plain |= {"in_namespace", "full_key", "key_in_namespace"}
    methods = {name for name, member in inspect.getmembers(Store, inspect.isfunction) if not name.startswith("_")}

    assert {name for name in methods if not inspect.iscoroutinefunction(getattr(Store, name))} == plain


async def test_project_finds_only_its_own_keys(store: Store, opened: Open) -> None:
    elsewhere = await opened(project="elsewhere")
    here, thread = await store.create(key="k"), await elsewhere.create(key="k")

    assert here.id != thread.id
    assert (await store.thread("k"), await elsewhere.thread("k")) == (here, thread)
    assert await elsewhere.threads() == [thread]


async def test_raises_when_store_is_missing_and_create_is_false(tmp_path: Path) -> None:
    for url in (f"sqlite:///{tmp_path}/none.db", f"file://{tmp_path}/none"):
        with pytest.raises(StoreUnreachable):
            async with open_store(url, create=False):
                pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.req("S0-004")
async def test_memory_store_is_empty_when_opened_again() -> None:
    async with open_store("sqlite:///:memory:") as store, open_store("sqlite:///:memory:") as other_store:
        thread = await turn(store, await store.create(key="k"), "Hello", "Hi")
        assert len(await store.context("k")) == 2
        assert (await store.verify()).ok
        assert (await store.sql("SELECT count(*) FROM stitches")).rows == [(2,)]
        with pytest.raises(NotFound):
            await other_store.thread(thread.id)

    async with open_store("sqlite:///:memory:") as later:
        assert await later.count() == 0


async def test_three_slashes_are_relative_and_four_are_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with open_store("sqlite:///here.db") as store:
        await store.create(key="k")
    async with open_store(f"sqlite:////{str(tmp_path)[1:]}/here.db", create=False) as store:
        assert await store.thread("k")
    async with open_store() as store:
        await store.create()
    async with open_store("file:folder") as store:
        await store.create(key="k")
    async with open_store(f"file://{tmp_path}/folder", create=False) as store:
        assert await store.thread("k")

    assert {path.name for path in tmp_path.iterdir()} >= {"here.db", "lockstitch.db", "folder"}


@pytest.mark.parametrize("name", ["with space.db", "größe.db", "a#b.db", "100%25.db", "a%20b.db"])
async def test_uses_path_unchanged(name: str, tmp_path: Path) -> None:
    async with open_store(f"sqlite:///{tmp_path}/{name}") as store:
        await store.create()

    results = {path.name for path in tmp_path.iterdir() if path.suffix == ".db"}
    assert results == {name.replace("%25", "%").replace("%20", " ")}


@pytest.mark.parametrize(
    "url",
    [
        "",
        "agents.db",
        "mysql://root@localhost/agents",
        "sqlite://agents.db",
        "sqlite:///",
        "file://",
        "file:///",
        "file://host/folder",
        "http://[broken",
        "sqlite:///a.db?synchronous=off",
    ],
)
def test_rejects_invalid_url_and_lists_valid_forms(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Refused, match=r"sqlite:///path\.db|full, normal and extra"):
        open_store(url)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("url", ["sqlite:///a.db?synchronus=normal", "sqlite:///a.db?pool", "file:a?synchronous=full"])
def test_rejects_unknown_option(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Refused, match="is not an option"):
        open_store(url)
    assert list(tmp_path.iterdir()) == []


def test_error_message_hides_password() -> None:
    with pytest.raises(Refused) as refused:
        open_store("mysql://root:secret@localhost/agents?password=secret")
    assert "secret" not in str(refused.value)


async def test_raises_when_folder_cannot_be_created(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for url in (f"sqlite:///{tmp_path}/file/store.db", f"file://{tmp_path}/file/store"):
        with pytest.raises(LockstitchError) as excinfo:
            async with open_store(url):
                pass
        assert str(tmp_path) in str(excinfo.value)


async def test_raises_unreachable_when_server_is_down(tmp_path: Path) -> None:
    with pytest.raises(StoreUnreachable):
        async with open_store(f"postgresql:///postgres?host={tmp_path}&connect_timeout=2"):
            pass
