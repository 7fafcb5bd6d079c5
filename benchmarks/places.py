"""Fresh stores to measure on. PostgreSQL is a real one of our own, and it waits for the disk where that is measured."""

import shutil
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg

from tests.servers import PostgresServer

SQL = ("sqlite", "postgres")
ALL = (*SQL, "files")


class Places:
    """Makes stores in a folder, and a server when the first one is wanted."""

    def __init__(self, folder: Path, *, durable: bool = True) -> None:
        self._folder = folder
        self._settings = {} if durable else {"fsync": "off"}
        self._server: PostgresServer | None = None

    @contextmanager
    def fresh(self, backend: str) -> Iterator[str]:
        """The URL of an empty store, which goes when it has been used."""
        if backend == "postgres":
            url = self._postgres.create_database()
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
        """Let the database finish what a bulk load leaves behind, so that it does not disturb what is measured."""
        if url.startswith("sqlite"):
            with closing(sqlite3.connect(sqlite_path(url))) as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        elif url.startswith("postgres"):
            async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
                await connection.execute("VACUUM (ANALYZE)")
                await connection.execute("CHECKPOINT")

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    @property
    def _postgres(self) -> PostgresServer:
        if self._server is None:
            self._server = PostgresServer(**self._settings)
        return self._server


def sqlite_path(url: str) -> str:
    """The file of a store's URL."""
    return url.removeprefix("sqlite:///")
