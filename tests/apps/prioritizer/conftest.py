"""Stores with the tables of the prioritizer on both databases, and plain SQL without validation."""

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import psycopg
import pytest

from lockstitch.apps.prioritizer.retention import EXTENSION
from lockstitch.errors import Refused
from lockstitch.model import FakeClock
from lockstitch.store import Store, open_store

Direct = Callable[[str], Awaitable[list[tuple[Any, ...]]]]
"""Runs one SQL statement. Raises `Refused` if the database rejects it."""


@pytest.fixture(params=["sqlite", "postgres"])
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
async def office(store: Store) -> Store:
    await store.extend(EXTENSION)
    return store


@pytest.fixture
async def timed_office(store_url: str, clock: FakeClock) -> AsyncIterator[Store]:
    async with open_store(store_url, clock=clock) as store:
        await store.extend(EXTENSION)
        yield store


@pytest.fixture
def direct(backend: str, store_url: str) -> Direct:
    async def sqlite(statement: str) -> list[tuple[Any, ...]]:
        connection = sqlite3.connect(store_url.removeprefix("sqlite:///"))
        try:
            connection.execute("PRAGMA foreign_keys = ON")
            with connection:
                return connection.execute(statement).fetchall()
        except sqlite3.IntegrityError as exc:
            raise Refused(str(exc)) from exc
        finally:
            connection.close()

    async def postgres(statement: str) -> list[tuple[Any, ...]]:
        async with await psycopg.AsyncConnection.connect(store_url, autocommit=True) as connection:
            await connection.execute("SET search_path TO lockstitch")
            try:
                cursor = await connection.execute(statement)  # pyright: ignore[reportArgumentType]
            except psycopg.IntegrityError as exc:
                raise Refused(str(exc)) from exc
            return await cursor.fetchall() if cursor.description else []

    return sqlite if backend == "sqlite" else postgres
