"""Notebooks in the lens `agno`, and in copies of a store."""

import sqlite3
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from lockstitch.apps.notebooks import Notebooks, sources
from lockstitch.apps.notebooks import notebooks as repository
from lockstitch.apps.notebooks.records import Notebook
from lockstitch.store import Store, open_store

pytestmark = pytest.mark.anyio


@pytest.mark.req("S4-024")
async def test_instructions_list_the_sources(notebooks: Notebooks, store: Store, books: Notebook) -> None:
    source = await notebooks.add_source(store, books.number, "notes.md", "# Notes\n\nRobots are wild.")
    answer = await store.sql(
        "SELECT id, name, description, type, size, linked_to, access_count, status FROM agno_knowledge", lens="agno"
    )
    assert answer.rows == [
        (str(source.id), "notes.md", "Notes", "markdown", source.size, f"notebook {books.id}", 0, "completed")
    ]


@pytest.mark.req("S4-001", "S4-004")
async def test_lens_has_the_two_documented_tables(notebooks: Notebooks, store: Store, books: Notebook) -> None:
    await repository.ensure(store, books, "chat-1", user_id=None, agent="NotebookLM", message="hello")
    answer = await store.sql("SELECT * FROM notebooks", lens="agno")
    assert answer.columns[:6] == ["id", "title", "description", "instructions", "created_at", "updated_at"]
    assert answer.rows[0][:4] == (books.id, "Books", "For reading lists.", "Be brief.")
    answer = await store.sql("SELECT * FROM notebook_sessions", lens="agno")
    assert answer.columns[:4] == ["id", "notebook_id", "session_id", "created_at"]
    assert answer.rows[0][:3] == (1, books.id, "chat-1")


async def test_notebooks_are_copied_from_one_database_to_the_other(
    notebooks: Notebooks, store: Store, books: Notebook, backend: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    target = f"sqlite:///{tmp_path}/copy.db" if backend == "postgres" else request.getfixturevalue("postgres_url")
    source = await notebooks.add_source(store, books.number, "notes.md", "# Notes\n\nRobots are wild.")
    await repository.ensure(store, books, "chat-1", user_id=None, agent="NotebookLM", message="hello")
    async with open_store(target) as copy:
        await store.copy_to(copy)
        assert await repository.get(copy, books.number) == books.changed(
            updated_at=(await repository.get(copy, books.number)).updated_at
        )
        assert [link.session_id for link in await repository.sessions(copy, books.number)] == ["chat-1"]
        assert await sources.text(copy, source) == "# Notes\n\nRobots are wild."
        assert [hit.source.name for hit in await notebooks.search(copy, books.number, "robots")] == ["notes.md"]
        assert (await repository.create(copy, "Next")).number > books.number
        second_thread = await repository.ensure(
            copy, books, "chat-2", user_id=None, agent="NotebookLM", message="hello"
        )
        assert (await repository.sessions(copy, books.number))[1].thread_id == second_thread.id


@pytest.mark.req("S4-001", "S4-002", "X4-14")
async def test_notebook_can_be_inserted_with_its_title_only(
    notebooks: Notebooks, store: Store, store_url: str, backend: str
) -> None:
    """The statement of the document. On PostgreSQL it works on the lens, on SQLite on the table of the lens."""
    if backend == "postgres":
        with psycopg.connect(store_url, autocommit=True) as connection:
            connection.execute("INSERT INTO agno.notebooks(title) VALUES ('By hand')")
            connection.execute("INSERT INTO agno.notebooks DEFAULT VALUES")
    else:
        with closing(sqlite3.connect(store_url.removeprefix("sqlite:///"), isolation_level=None)) as connection:
            connection.execute("INSERT INTO notebooks(title) VALUES ('By hand')")
            connection.execute("INSERT INTO notebooks DEFAULT VALUES")
    listed = await repository.listed(store)
    assert {(notebook.title, notebook.project) for notebook in listed} == {
        ("By hand", "default"),
        ("Untitled notebook", "default"),
    }
    assert all(notebook.updated_at == notebook.created_at for notebook in listed)
