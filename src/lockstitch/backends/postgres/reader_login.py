"""`Readers`: connections for SQL of users, logged in as a role that can only read.

A session that has logged in with more rights cannot drop them permanently. A query that calls set_config undoes SET
ROLE and SET SESSION AUTHORIZATION, even in a text that is only parsed when it runs (query_to_xml). So SQL of users runs
on a connection that has never had more rights:

1. If the URL names a login (`reader=user:password`), that login.
2. Else, if the store's own user may create roles, a login that this process creates. It is a member of
   `lockstitch_reader` and nothing else. Its password is random, exists only in memory, and expires within a day. The
   login is dropped when the store is closed. The next process that creates a login drops expired ones.
3. Else the query is refused, unless the caller forces it. A forced query has all rights of the store's own user. Only
   the read-only transaction protects the store then.

Each login is checked before it is used, also one that the URL names.
"""

import asyncio
import secrets
from contextlib import suppress
from typing import Final

import psycopg
from psycopg import errors as pg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from lockstitch.backends.postgres.connection import Connection
from lockstitch.backends.postgres.pool import Pool
from lockstitch.backends.postgres.schema import READER
from lockstitch.backends.sql.dialect import Dialect
from lockstitch.errors import LockstitchError, Refused

VALID: Final = "1 day"
AT_ONCE: Final = 10
"""Maximum number of concurrent statements of users in one store. Further statements wait."""
CONNECTIONS: Final = 2 * AT_ONCE
"""Maximum number of sessions of one login. A closed session counts until its server process has ended."""

_INSTEAD: Final = (
    "Add a read-only login to the store's URL (reader=user:password), or force the query, which then runs "
    "with all rights of the store's user."
)

# Set for every session of the login. A query may change them, but values that are already in effect for it stay.
_SETTINGS: Final = (
    ("default_transaction_read_only", "on"),
    ("idle_in_transaction_session_timeout", "60s"),
    ("idle_session_timeout", "60s"),
)
_SETTINGS_OF_SUPERUSERS: Final = (("temp_file_limit", "1GB"),)


class Readers:
    """Opens connections for SQL of users, and manages the login of this process. Safe to use from many tasks."""

    def __init__(self, pool: Pool, dialect: Dialect) -> None:
        self._pool = pool
        self._dialect = dialect
        self._login: str | None = None
        """Name of the login that this process has created."""
        self._conninfo = ""
        self._making = asyncio.Lock()
        self.places = asyncio.Semaphore(AT_ONCE)
        """Acquired while a connection of `connect` is open."""

    async def connect(self, *, force: bool) -> Connection:
        """Return a new connection that can only read.

        With `force`, return a connection of the store's own user if there is no other way. Raises `Refused` if there is
        no read-only login.
        """
        try:
            return await self._connect()
        except Refused:
            if not force:
                raise
            return await self._pool.connect(prepared=True)

    async def close(self) -> None:
        """Drop the login of this process."""
        login, self._login = self._login, None
        if login is None:
            return
        # A login that cannot be dropped now expires later. Then another process drops it.
        with suppress(psycopg.Error, LockstitchError):
            connection = await self._pool.connect(listening=True)
            try:
                await connection.execute(sql.SQL("DROP ROLE IF EXISTS {}").format(sql.Identifier(login)))
            finally:
                await connection.close()

    async def _connect(self) -> Connection:
        if self._pool.address.reader is not None:
            return await self._open(self._pool.address.reader, "The login in the option reader= of the store's URL")
        result = "The login that Lockstitch created for reading"
        conninfo = await self._ensure_login()
        try:
            return await self._open(conninfo, result)
        except _LoginFailed:
            # It may have expired, or an administrator has dropped it.
            conninfo = await self._ensure_login(instead_of=conninfo)
        return await self._open(conninfo, result)

    async def _open(self, conninfo: str, what: str) -> Connection:
        try:
            connection = await Connection.open(conninfo, prepare=True)
        except psycopg.OperationalError as exc:
            # If the server is unreachable, this fails too, with the right error.
            await (await self._pool.connect(listening=True)).close()
            reason = str(exc).strip().splitlines()[-1]
            raise _LoginFailed(f"{what} cannot connect ({reason}). {_INSTEAD}") from exc
        try:
            ((faults,),) = await connection.execute_one(self._dialect.statement("reader_faults", {}))
        except BaseException:
            await connection.close()
            raise
        if faults:
            await connection.close()
            raise Refused(f"{what} has more rights than reading: it {faults}. {_INSTEAD}")
        return connection

    async def _ensure_login(self, instead_of: str | None = None) -> str:
        """Return the connection string of the login.

        Replace a login that failed, unless another task has replaced it.
        """
        async with self._making:
            if self._conninfo == instead_of:
                await self.close()
            if self._login is None:
                self._login, self._conninfo = await self._make()
            return self._conninfo

    async def _make(self) -> tuple[str, str]:
        """Create a login. Return its name and its connection string."""
        name, password = f"lockstitch_sql_{secrets.token_hex(8)}", secrets.token_urlsafe(32)
        connection = await self._pool.connect(listening=True)
        try:
            ((has_group, may_create, is_superuser),) = await connection.execute_one(
                self._dialect.statement("reader_possible", {})
            )
            if not has_group or not may_create:
                raise Refused(_why_not(has_group, is_superuser))
            for (expired,) in await connection.execute_one(self._dialect.statement("reader_expired", {})):
                with suppress(psycopg.Error):
                    await connection.execute(sql.SQL("DROP ROLE IF EXISTS {}").format(sql.Identifier(expired)))
            async with connection.transaction():
                await self._create(connection, name, password, is_superuser)
        except (pg.InsufficientPrivilege, pg.ReadOnlySqlTransaction) as exc:
            raise Refused(f"The store's user cannot create a login ({exc.diag.message_primary}). {_INSTEAD}") from exc
        finally:
            await connection.close()
        return name, make_conninfo(self._pool.address.listening, user=name, password=password)

    async def _create(self, connection: Connection, name: str, password: str, is_superuser: bool) -> None:
        # Hash the password here, so that it does not appear in the log of the server. Without a named algorithm libpq
        # asks the server for one, which blocks the event loop.
        hashed = connection.pgconn.encrypt_password(password.encode(), name.encode(), b"scram-sha-256").decode()
        login = sql.Identifier(name)
        ((until,),) = await connection.execute_one(self._dialect.statement("reader_until", {"valid": VALID}))
        await connection.execute(
            sql.SQL(
                "CREATE ROLE {} LOGIN PASSWORD {} NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION INHERIT "
                "CONNECTION LIMIT {} VALID UNTIL {} IN ROLE {}"
            ).format(
                login, sql.Literal(hashed), sql.Literal(CONNECTIONS), sql.Literal(str(until)), sql.Identifier(READER)
            )
        )
        for setting, value in (*_SETTINGS, *(_SETTINGS_OF_SUPERUSERS if is_superuser else ())):
            await connection.execute(
                sql.SQL("ALTER ROLE {} SET {} = {}").format(login, sql.Identifier(setting), sql.Literal(value))
            )


class _LoginFailed(Refused):
    """The server rejects a login."""


def _why_not(has_group: bool, is_superuser: bool) -> str:
    if not has_group and is_superuser:
        return (
            "SQL of users runs as the role lockstitch_reader, which this database does not have yet. "
            "Run `lockstitch migrate`."
        )
    if is_superuser:
        return f"SQL of users needs a read-only login. {_INSTEAD}"
    return f"SQL of users needs a read-only login, and the store's user cannot create one. {_INSTEAD}"
