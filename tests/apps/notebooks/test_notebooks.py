"""Notebooks, their chats, and the constraints of the database."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from lockstitch.apps.notebooks import EXTENSION, Notebooks, sources
from lockstitch.apps.notebooks import notebooks as repository
from lockstitch.apps.notebooks.records import Notebook, NotebookSession
from lockstitch.backend import Find, Where
from lockstitch.backends.sqlite.backend import SqliteBackend
from lockstitch.errors import LockstitchError, NotFound, Refused, ThreadBusy
from lockstitch.model import Run, Thread, new_id
from lockstitch.store import Store, open_store
from tests.samples import turn

pytestmark = pytest.mark.anyio


async def begin(store: Store, notebook: Notebook, session_id: str | None = None, user_id: str | None = None) -> Thread:
    return await repository.ensure(
        store, notebook, session_id, user_id=user_id, agent="NotebookLM", message="What is on shelf C?"
    )


async def columns(store: Store, table: str) -> dict[str, tuple[Any, ...]]:
    """Return the type, nullability and default of each column of a table."""
    if isinstance(store._backend, SqliteBackend):
        ((definition,),) = (await store.sql(f"SELECT sql FROM sqlite_master WHERE name = '{table}'")).rows
        with closing(sqlite3.connect(":memory:")) as copy:
            copy.execute(definition)
            rows = copy.execute(
                f"SELECT name, type, \"notnull\", dflt_value FROM pragma_table_info('{table}')"
            ).fetchall()
            return {name: (kind, not needed, default) for name, kind, needed, default in rows}
    result = await store.sql(
        "SELECT a.attname, format_type(a.atttypid, a.atttypmod), NOT a.attnotnull, pg_get_expr(d.adbin, d.adrelid) "
        "FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum "
        f"WHERE a.attrelid = 'lockstitch.{table}'::regclass AND a.attnum > 0"
    )
    return {name: (kind, may, default) for name, kind, may, default in result.rows}


@pytest.mark.req("S4-001", "S4-002")
async def test_notebook_has_documented_columns(notebooks: Notebooks, store: Store, backend: str) -> None:
    row = await columns(store, "notebooks")
    assert row.keys() >= {"id", "title", "description", "instructions", "created_at", "updated_at"}
    kinds = [row[name][0] for name in ("id", "title", "description", "instructions", "created_at", "updated_at")]
    if backend == "postgres":
        time = "timestamp with time zone"
        assert kinds == ["bigint", "character varying(255)", "text", "text", time, time]
        assert row["title"][1:] == (False, "'Untitled notebook'::character varying")
    else:
        assert kinds == ["INTEGER", "VARCHAR(255)", "TEXT", "TEXT", "TEXT", "TEXT"]
        assert row["title"][1:] == (False, "'Untitled notebook'")
    notebook = await repository.create(store)
    assert (notebook.id, notebook.title) == (1, "Untitled notebook")
    assert notebook.created_at == notebook.updated_at


@pytest.mark.req("S4-002")
async def test_rejects_invalid_titles(notebooks: Notebooks, store: Store, books: Notebook) -> None:
    assert (await repository.create(store, "x" * 255)).title == "x" * 255
    for title in ("x" * 256, "x" * 300, "", "nul\x00"):
        with pytest.raises(Refused, match="title"):
            await repository.create(store, title)
        with pytest.raises(Refused, match="title"):
            await repository.change(store, books.number, title=title)
    assert await repository.get(store, books.number) == books
    assert len(await repository.listed(store)) == 2


@pytest.mark.req("S4-002")
async def test_database_sets_the_time_of_an_update(notebooks: Notebooks, store: Store, books: Notebook) -> None:
    # An SQL statement that does not set the time.
    await store._backend.put([books.changed(title="Other books")])
    after = await repository.get(store, books.number)
    assert after.title == "Other books"
    assert after.updated_at > books.updated_at
    assert after.created_at == books.created_at


@pytest.mark.req("S4-062")
async def test_concurrent_changes_of_a_notebook_are_both_stored(
    notebooks: Notebooks, store: Store, books: Notebook
) -> None:
    changes = ({"title": "Novels"}, {"description": "Long ones."}, {"instructions": None})
    await asyncio.gather(*(repository.change(store, books.number, **fields) for fields in changes))
    notebook = await repository.get(store, books.number)
    assert (notebook.title, notebook.description, notebook.instructions) == ("Novels", "Long ones.", None)
    assert notebook.updated_at >= books.updated_at


@pytest.mark.req("S4-062", "X4-14")
async def test_lists_most_recently_updated_notebooks_first(notebooks: Notebooks, store: Store) -> None:
    first, second, third = [await repository.create(store, title) for title in ("one", "two", "three")]
    await repository.change(store, first.number, title="first", description="changed")
    assert [notebook.id for notebook in await repository.listed(store)] == [first.id, third.id, second.id]
    assert [notebook.id for notebook in await repository.listed(store, limit=1, offset=1)] == [third.id]
    counted_notebook = (await repository.counted(store))[0]
    assert (
        counted_notebook.notebook.title,
        counted_notebook.sources,
        counted_notebook.chats,
        counted_notebook.last_chat_at,
    ) == ("first", 0, 0, None)


async def test_notebook_of_another_project_is_not_found(notebooks: Notebooks, store: Store, books: Notebook) -> None:
    other_store = store.in_project("other")
    assert await repository.listed(other_store) == []
    for act in (repository.get, repository.remove):
        with pytest.raises(NotFound):
            await act(other_store, books.number)
    with pytest.raises(NotFound):
        await repository.change(other_store, books.number, title="mine")
    for unknown in (99, 0, -1, 2**70):
        with pytest.raises(NotFound):
            await repository.get(store, unknown)


@pytest.mark.req("S4-004", "S4-005")
async def test_link_of_a_chat_has_documented_columns(
    notebooks: Notebooks, store: Store, store_url: str, books: Notebook, backend: str
) -> None:
    other_notebook = await repository.create(store, "Other")
    own_threads = [await begin(store, books, name) for name in ("chat-1", None, "73ccd158-0e18-4d0e-98c9-c362f3769774")]
    other_thread = await begin(store, other_notebook, "chat-2")
    links = await repository.sessions(store, books.number)
    assert [link.session_id for link in links] == [
        "chat-1",
        str(own_threads[1].id),
        "73ccd158-0e18-4d0e-98c9-c362f3769774",
    ]
    assert [link.thread_id for link in links] == [thread.id for thread in own_threads]
    row = await columns(store, "notebook_sessions")
    kinds = [row[name][0] for name in ("id", "notebook_id", "session_id", "created_at")]
    if backend == "postgres":
        assert kinds == ["bigint", "bigint", "character varying(255)", "timestamp with time zone"]
    else:
        assert kinds == ["INTEGER", "INTEGER", "VARCHAR(255)", "TEXT"]
    assert not any(row[name][1] for name in ("notebook_id", "session_id", "created_at"))
    assert await repository.notebook_of(store, other_thread) == await repository.get(store, other_notebook.number)
    # The database rejects a second notebook for a session, and links without a notebook or a thread.
    now = store.clock.now()
    free_thread = await store.create(key="free")
    for wrong in (
        {"session_id": "chat-1", "thread_id": free_thread.id, "notebook_id": other_notebook.number},
        {"session_id": None, "thread_id": free_thread.id, "notebook_id": other_notebook.number},
        {"session_id": "new", "thread_id": free_thread.id, "notebook_id": None},
        {"session_id": "x" * 256, "thread_id": free_thread.id, "notebook_id": other_notebook.number},
        {"session_id": "new", "thread_id": free_thread.id, "notebook_id": 99},
        {"session_id": "new", "thread_id": new_id(), "notebook_id": other_notebook.number},
    ):
        fitting = {"session_id": "new", "thread_id": free_thread.id, "notebook_id": other_notebook.number}
        with pytest.raises(LockstitchError):
            await store._backend.put([NotebookSession(**fitting, created_at=now).changed(**wrong)])
    with pytest.raises(Refused, match="session_id"):
        NotebookSession(session_id="x" * 256, thread_id=other_thread.id, notebook_id=1, created_at=now)
    if backend == "postgres":
        indexes = "SELECT indexdef FROM pg_indexes WHERE tablename = 'notebook_sessions'"
    else:
        indexes = "SELECT sql FROM sqlite_master WHERE type = 'index' AND tbl_name = 'notebook_sessions'"
    assert any("(notebook_id" in str(index) for (index,) in (await store.sql(indexes)).rows)
    # The database deletes the links of a deleted notebook.
    statement = f"DELETE FROM notebooks WHERE id = {books.id}"
    if backend == "postgres":
        with psycopg.connect(store_url, autocommit=True) as connection:
            connection.execute(f"SET search_path TO lockstitch; {statement}")
    else:
        with closing(sqlite3.connect(store_url.removeprefix("sqlite:///"), isolation_level=None)) as connection:
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute(statement)
    links = await store._backend.find(Find(NotebookSession))
    assert [link.session_id for link in links] == ["chat-2"]


@pytest.mark.req("S4-016", "X4-02")
async def test_creates_chat_and_link_in_one_transaction(notebooks: Notebooks, store: Store, books: Notebook) -> None:
    missing = books.changed(id=99)
    with pytest.raises(LockstitchError):
        await begin(store, missing, "chat-1")
    with pytest.raises(NotFound):
        await store.thread("chat-1")
    second_threads = [await begin(store, books, "chat-1") for _ in range(2)]
    assert second_threads[0].id == second_threads[1].id
    # Two concurrent first messages create one chat.
    both = await asyncio.gather(begin(store, books, "chat-2"), begin(store, books, "chat-2"))
    assert both[0].id == both[1].id
    assert len(await repository.sessions(store, books.number)) == 2


@pytest.mark.req("S4-005", "S4-006")
async def test_rejects_session_of_another_notebook_or_user(notebooks: Notebooks, store: Store, books: Notebook) -> None:
    other_notebook = await repository.create(store, "Other")
    await begin(store, books, "ada's", "ada")
    await store.create(key="plain")
    with pytest.raises(Refused, match="belongs to another notebook"):
        await begin(store, other_notebook, "ada's", "ada")
    with pytest.raises(Refused, match="belongs to another user"):
        await begin(store, books, "ada's", "bob")
    with pytest.raises(Refused, match="without a notebook"):
        await begin(store, books, "plain")
    for name in ("x" * 256, "", "a\x00b"):
        with pytest.raises(Refused):
            await begin(store, books, name)
    assert len(await repository.sessions(store, books.number)) == 1
    assert await repository.sessions(store, other_notebook.number) == []


@pytest.mark.req("S4-008", "X4-03")
async def test_deleting_a_notebook_deletes_its_chats(notebooks: Notebooks, store: Store, books: Notebook) -> None:
    other_notebook = await repository.create(store, "Other")
    for notebook in (books, books, other_notebook):
        await turn(store, await begin(store, notebook), "Any robots?", "Two.")
    assert await repository.remove(store, books.number) == 2
    assert [await store._backend.count(Find(kind)) for kind in (Thread, Run, NotebookSession)] == [1, 1, 1]
    assert [notebook.title for notebook in await repository.listed(store)] == ["Other"]
    assert await store.count() == 1
    with pytest.raises(NotFound):
        await repository.remove(store, books.number)


@pytest.mark.req("S4-008", "X4-03")
async def test_deleting_a_notebook_can_keep_its_chats(notebooks: Notebooks, store: Store, books: Notebook) -> None:
    thread = await begin(store, books)
    assert await repository.remove(store, books.number, keep_sessions=True) == 0
    assert (await store.thread(thread.id)).title == "What is on shelf C?"
    assert await repository.link_of(store, thread) is None


@pytest.mark.req("S4-008", "X4-03")
async def test_deleting_a_chat_deletes_its_link(notebooks: Notebooks, store: Store, books: Notebook) -> None:
    thread, other_thread = await begin(store, books), await begin(store, books)
    await store.delete(thread.id)
    assert [link.thread_id for link in await repository.sessions(store, books.number)] == [other_thread.id]


async def test_does_not_delete_a_notebook_in_use(notebooks: Notebooks, store: Store, books: Notebook) -> None:
    idle, held = await begin(store, books), await begin(store, books)
    await store.register_worker()
    await store.claim(held)
    with pytest.raises(ThreadBusy):
        await repository.remove(store, books.number)
    assert len(await repository.sessions(store, books.number)) == 2
    assert await store.thread(idle.id)


async def test_deletes_a_chat_that_starts_while_its_notebook_is_deleted(
    notebooks: Notebooks, store: Store, books: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the removal would report an error after it has deleted the other chats."""
    await begin(store, books)
    await store.register_worker()
    delete_threads = store.delete_threads

    async def overtaken(ids: Any, *, force: bool = False) -> int:
        deleted = await delete_threads(ids, force=force)
        monkeypatch.setattr(store, "delete_threads", delete_threads)
        await store.claim(await begin(store, books))
        return deleted

    monkeypatch.setattr(store, "delete_threads", overtaken)
    assert await repository.remove(store, books.number) == 2
    assert await store.count() == 0
    assert await repository.listed(store) == []


async def test_writes_raise_not_found_when_notebook_was_removed_concurrently(
    notebooks: Notebooks, store: Store, books: Notebook
) -> None:
    await repository.remove(store, books.number)
    with pytest.raises(NotFound, match="not found"):
        await begin(store, books, "late")
    with pytest.raises(NotFound, match="not found"):
        await sources.add(store, books, sources.Raw("late.txt", b"Too late."), sources.Indexing())
    assert await store.count() == 0


@pytest.mark.req("S4-007")
async def test_two_processes_can_create_the_tables_concurrently(
    backend: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    sqlite = f"sqlite:///{tmp_path}/new.db"
    url = sqlite if backend == "sqlite" else str(request.getfixturevalue("postgres_url"))
    async with open_store(url) as first, open_store(url) as second:
        core = (await first.sql("SELECT count(*) FROM schema_versions")).rows
        await asyncio.gather(Notebooks().setup(first), Notebooks().setup(second))
        # Migrations have the same numbers in both dialects, separate from those of the record.
        numbers = [number for number, _, _ in EXTENSION.migrations(backend)]
        assert numbers == list(range(1, len(numbers) + 1))
        assert numbers == [number for number, _, _ in EXTENSION.migrations("sqlite")]
        done = await first.sql("SELECT extension, version FROM extension_versions ORDER BY version")
        assert done.rows == [("notebooks", number) for number in numbers]
        assert (await first.sql("SELECT count(*) FROM schema_versions")).rows == core
        notebook = await repository.create(first, "Books")
        await Notebooks().setup(second)
        assert await repository.get(second, notebook.number) == notebook
        assert await first._backend.find(Find(Notebook, (Where("project", "=", "default"),))) == [notebook]


async def test_rejects_the_file_backend(tmp_path: Path) -> None:
    async with open_store(f"file:///{tmp_path}/files") as store:
        with pytest.raises(Refused, match="Use SQLite or PostgreSQL"):
            await Notebooks().setup(store)
