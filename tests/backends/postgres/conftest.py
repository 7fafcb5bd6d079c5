"""Fixtures: a backend on a new database, a wire that records and cuts connections, and a server that tests can stop."""

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from lockstitch.backends.postgres.backend import PostgresBackend
from lockstitch.model import SystemClock
from tests.backends.postgres.wire import Wire
from tests.servers import Databases, PostgresServer


@pytest.fixture
def unused_database() -> None:
    """Make `postgres_url` a new database, for a test that reads the statistics of its tables."""


@pytest.fixture
def postgres_url(request: pytest.FixtureRequest, postgres_server: PostgresServer) -> Iterator[str]:
    """A database for one test: migrated if the test uses `postgres`, which would migrate it, otherwise empty."""
    if "postgres" in request.fixturenames and "unused_database" not in request.fixturenames:
        databases: Databases = request.getfixturevalue("databases")
        url = databases.take()
        yield url
        databases.give_back(url)
    else:
        url = postgres_server.create_database()
        yield url
        postgres_server.drop_database(url)


@pytest.fixture
async def postgres(postgres_url: str) -> AsyncIterator[PostgresBackend]:
    """A backend on a separate, migrated database."""
    backend = PostgresBackend(postgres_url, SystemClock())
    await backend.migrate()
    yield backend
    await backend.close()


@pytest.fixture
def admin(postgres_url: str) -> Iterator[psycopg.Connection]:
    """A second session on the same database, to inspect it and to hold locks."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
async def wire(postgres_url: str) -> AsyncIterator[Wire]:
    """A wire to the database through which a backend can connect: see `Wire.url`."""
    # The path of a socket must be short.
    folder = Path(tempfile.mkdtemp(prefix="wire"))
    wire = Wire(postgres_url, folder)
    await wire.open()
    yield wire
    await wire.close()
    shutil.rmtree(folder)


@pytest.fixture
async def wired(wire: Wire, postgres: PostgresBackend) -> AsyncIterator[PostgresBackend]:
    """A second backend on the same database, connected through the wire."""
    backend = PostgresBackend(wire.url, SystemClock())
    yield backend
    await backend.close()


@pytest.fixture(scope="session")
def mortal_server() -> Iterator[PostgresServer]:
    """A separate server that tests stop and start."""
    server = PostgresServer()
    if not server.own:
        pytest.skip("this server is not ours to stop")
    yield server
    server.close()


@pytest.fixture
def mortal_url(mortal_server: PostgresServer) -> Iterator[str]:
    url = mortal_server.create_database()
    yield url
    mortal_server.drop_database(url)


@pytest.fixture
def role(postgres_url: str, admin: psycopg.Connection, request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """Create a user of this database with the given rights, and return the URL."""
    rights: str = getattr(request, "param", "")
    database = (admin.execute("SELECT current_database()").fetchone() or ("",))[0]
    name = f"{database}_owner"
    user = sql.Identifier(name)
    admin.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'secret' ").format(user) + sql.SQL(rights))  # type: ignore[arg-type]
    admin.execute(sql.SQL("GRANT CREATE ON DATABASE {} TO {}").format(sql.Identifier(database), user))
    yield name, postgres_url.replace("//", f"//{name}:secret@", 1).replace("@postgres:@", "@", 1)
    admin.execute(sql.SQL("DROP OWNED BY {} CASCADE").format(user))
    for member in admin.execute(
        "SELECT grantor.rolname FROM pg_auth_members m JOIN pg_roles grantor ON grantor.oid = m.grantor "
        "JOIN pg_roles granted ON granted.oid = m.roleid WHERE granted.rolname = 'lockstitch_reader'"
    ).fetchall():
        if member[0] == name:
            admin.execute(sql.SQL("REVOKE lockstitch_reader FROM {} GRANTED BY {} CASCADE").format(user, user))
    admin.execute(sql.SQL("DROP ROLE {}").format(user))
