"""A backend on a fresh database, a wire to listen to and cut, and a server that may be stopped."""

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
from tests.servers import PostgresServer


@pytest.fixture
async def postgres(postgres_url: str) -> AsyncIterator[PostgresBackend]:
    """The backend on a database of its own, migrated."""
    backend = PostgresBackend(postgres_url, SystemClock())
    await backend.migrate()
    yield backend
    await backend.close()


@pytest.fixture
def admin(postgres_url: str) -> Iterator[psycopg.Connection]:
    """Another session on the same database, for looking behind the scenes and getting in the way."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
async def wire(postgres_url: str) -> AsyncIterator[Wire]:
    """A wire to the database through which a backend may be connected: see `Wire.url`."""
    # A socket's path must be short.
    folder = Path(tempfile.mkdtemp(prefix="wire"))
    wire = Wire(postgres_url, folder)
    await wire.open()
    yield wire
    await wire.close()
    shutil.rmtree(folder)


@pytest.fixture
async def wired(wire: Wire, postgres: PostgresBackend) -> AsyncIterator[PostgresBackend]:
    """A second backend on the same database, behind the wire."""
    backend = PostgresBackend(wire.url, SystemClock())
    yield backend
    await backend.close()


@pytest.fixture(scope="session")
def mortal_server() -> Iterator[PostgresServer]:
    """A server of its own that tests stop and start."""
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
    """A user of this database with the rights that a test names, and their URL."""
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
