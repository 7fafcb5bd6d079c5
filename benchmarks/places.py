"""New stores for benchmarks. PostgreSQL is a separate server, with durable commits unless `durable` is false.

Its stores are copies of a migrated database, because a migration takes longer than many of the quick benchmarks.
"""

import shutil
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cached_property
from pathlib import Path

import psycopg

from lockstitch import sync
from tests.servers import PostgresServer

SQL = ("sqlite", "postgres")
ALL = (*SQL, "files")


class Places:
    """Creates stores in a folder, and a server when the first PostgreSQL store is needed."""

    def __init__(self, folder: Path, *, durable: bool = True) -> None:
        self._folder = folder
        self._settings = {} if durable else {"fsync": "off"}
        self._server: PostgresServer | None = None

    @contextmanager
    def fresh(self, backend: str) -> Iterator[str]:
        """Return the URL of an empty store, which is deleted after use."""
        if backend == "postgres":
            url = self._postgres.create_database(self._template)
            try:
                yield url
            finally:
                self._postgres.drop_database(url)
            return
        folder = self._folder / uuid.uuid4().hex
        folder.mkdir(parents=True)
        try:
            yield f"sqlite:///{folder / 'store.db'}" if backend == "sqlite" else f"file:///{folder / 'store'}"
        finally:
            shutil.rmtree(folder)

    @staticmethod
    async def settle(url: str) -> None:
        """Let the database finish its work after a bulk load, so that it does not disturb the measurement."""
        if url.startswith("sqlite"):
            with closing(sqlite3.connect(sqlite_path(url))) as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        elif url.startswith("postgres"):
            async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
                await connection.execute("VACUUM (ANALYZE)")
                await connection.execute("CHECKPOINT")

    def dump(self, url: str) -> None:
        """Read a whole PostgreSQL store with pg_dump, and write nothing."""
        self._postgres.execute("pg_dump", "--format=custom", "--compress=0", "--no-sync", "--file=/dev/null", url)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    @cached_property
    def _template(self) -> str:
        """The name of a migrated database."""
        url = self._postgres.create_database()
        with sync.open_store(url):
            return url.partition("?")[0].rpartition("/")[2]

    @property
    def _postgres(self) -> PostgresServer:
        if self._server is None:
            self._server = PostgresServer(**self._settings)
        return self._server


def sqlite_path(url: str) -> str:
    """Return the file of a store's URL."""
    return url.removeprefix("sqlite:///")
