"""Migrations under one lock, lens schemas, and read-only lens connections.

A lens schema belongs to Lockstitch if its comment says so. The comment contains the digest of the scripts that created
its views. A schema of another application is not changed. Neither is a schema that this user may not change, or with
views that other objects depend on. Only that lens is affected: it is refused, or shows its old views.

After that digest, the comment contains the digests of the parts that applications have added. Code that does not know
an application leaves its part unchanged. If it must rebuild the lens, it does so without the part, and the next process
that knows the application adds it again.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from importlib import resources
from typing import Any, NamedTuple

import psycopg
from psycopg import AsyncConnection
from psycopg import errors as pg

from lockstitch import extension
from lockstitch.backends.postgres.connection import Connection, translate
from lockstitch.backends.postgres.pool import Pool
from lockstitch.backends.sql import queries
from lockstitch.backends.sql.dialect import Dialect
from lockstitch.backends.sql.queries import Rows, supported_extension, supported_version
from lockstitch.errors import Refused
from lockstitch.extension import Extension
from lockstitch.lenses import catalog

MARK = "Lockstitch lens "
"""Prefix of the comment on a lens schema."""

READER = "lockstitch_reader"
"""Role that can read the record and cannot log in. Logins for SQL of users are its members."""

# Errors that leave a lens unchanged: no privilege, dependent views of other applications, a long reading transaction,
# or another database of the same server that creates the same role at the same time.
_LENS_UNCHANGED = (
    pg.InsufficientPrivilege,
    pg.DependentObjectsStillExist,
    pg.LockNotAvailable,
    pg.DuplicateSchema,
    pg.DuplicateObject,
    pg.UniqueViolation,
    pg.InternalError_,
)


class InstalledLenses(NamedTuple):
    """State of the lenses in a database."""

    marks: dict[str, str | None]
    """Comments of the schemas that have the name of a lens."""
    owned: frozenset[str]
    """Schemas that this user owns."""
    views: dict[str, int]
    """Number of views by schema. If a core table is replaced by another one, its views are dropped."""
    may_create: bool
    lacks_reader: bool
    """True if the role for reading is missing and this user can create it."""
    extensions: Sequence[Extension]
    """Extensions in the store that this process can load."""

    def is_current(self) -> bool:
        """True if nothing has to be created or rebuilt."""
        return not self.lacks_reader and not self.stale()

    def stale(self) -> list[str]:
        """Return the lenses to create or rebuild."""
        return [name for name in catalog.written("postgres") if self._is_stale(name)]

    def marked(self) -> list[str]:
        """Return the existing lenses that this user can change."""
        return [name for name, mark in self.marks.items() if name in self.owned and (mark or "").startswith(MARK)]

    def _is_stale(self, name: str) -> bool:
        if name not in self.marks:
            return self.may_create
        if name not in self.marked():
            return False
        parts = self.parts(name)
        is_whole = self.views[name] >= len(catalog.views(name, list(parts.values())))
        digest, *theirs = (self.marks[name] or "").removeprefix(MARK).split(" ")
        is_ours = digest == catalog.digest(name, "postgres")
        return not is_whole or not is_ours or not set(_marks(parts)) <= set(theirs)

    def parts(self, name: str) -> dict[str, str]:
        """Return the parts that applications add to a lens, by application."""
        result = {extension.name: extension.lens(name, "postgres") for extension in self.extensions}
        return {added: part for added, part in result.items() if part}


async def installed_lenses(connection: Connection, dialect: Dialect) -> InstalledLenses:
    """Return the state of the lenses in the database."""
    rows = await connection.execute_one(dialect.statement("lenses_known", {"names": " ".join(catalog.NAMES)}))
    schemas = [row for row in rows if row[0]]
    extended = any(there for name, what, there, _ in rows if not name and what == "extensions")
    added: Rows = await connection.execute_one(dialect.statement("extensions", {})) if extended else ()
    return InstalledLenses(
        marks={name: mark for name, mark, _, _ in schemas},
        owned=frozenset(name for name, _, owned, _ in schemas if owned),
        views={name: number for name, _, _, number in schemas},
        may_create=any(may for name, what, may, _ in rows if not name and what is None),
        lacks_reader=any(lacks for name, what, lacks, _ in rows if not name and what == "reader"),
        extensions=extension.known([row[0] for row in added]),
    )


async def drop_outdated_views(connection: Connection, dialect: Dialect) -> None:
    """Drop the views of all lenses, because they would prevent migrations of the tables they read."""
    for name in (await installed_lenses(connection, dialect)).marked():
        if await _attempt(connection, lambda name=name: _drop(connection, dialect, name)):
            await _run(connection, f"COMMENT ON SCHEMA {name} IS '{MARK}'")


async def make(connection: Connection, dialect: Dialect) -> None:
    """Create missing lenses and rebuild stale ones, within the transaction of the migration."""
    there = await installed_lenses(connection, dialect)
    stale = there.stale()
    has_reader = await _attempt(connection, lambda: _run(connection, _access()))
    free = [name for name in stale if await _attempt(connection, lambda name=name: _drop(connection, dialect, name))]
    if not await _attempt(connection, lambda: _run(connection, catalog.script("shared", "postgres"))):
        return
    for name in free:
        await _attempt(connection, lambda name=name: _make(connection, name, there.parts(name)))
    if has_reader:
        for name in (await installed_lenses(connection, dialect)).marked():
            await _attempt(connection, lambda name=name: _grant(connection, name))


async def require(connection: Connection, dialect: Dialect, name: str) -> None:
    """Raise `Refused` if a lens is not in this database."""
    marks = (await installed_lenses(connection, dialect)).marks
    if (marks.get(name) or "").startswith(MARK):
        return
    if name in marks:
        raise Refused(
            f"The schema {name} of this database does not belong to Lockstitch, so the lens cannot use that name. "
            "Rename that schema and run `lockstitch migrate`."
        )
    raise Refused(
        f"The lens {name} is not in this database. Run `lockstitch migrate` as a user who can create schemas in it."
    )


def _access() -> str:
    return resources.files("lockstitch.backends.postgres").joinpath("access.sql").read_text(encoding="utf-8")


async def _drop(connection: Connection, dialect: Dialect, name: str) -> None:
    await connection.execute_one(dialect.statement("lens_patience", {}))
    rows = await connection.execute_one(dialect.statement("lens_views", {"name": name}))
    if rows:
        # All at once, because they depend on each other. Views of other applications are not dropped.
        await _run(connection, f"DROP VIEW {', '.join(view for (view,) in rows)}")


async def _make(connection: Connection, name: str, parts: Mapping[str, str]) -> None:
    await _run(connection, f"CREATE SCHEMA IF NOT EXISTS {name}; SET LOCAL search_path TO {name}")
    await _run(connection, catalog.composed(name, "postgres", list(parts.values())))
    mark = " ".join((MARK + catalog.digest(name, "postgres"), *_marks(parts)))
    await _run(connection, f"COMMENT ON SCHEMA {name} IS '{mark}'")


def _marks(parts: Mapping[str, str]) -> list[str]:
    return [f"{added}={sha256(part.encode()).hexdigest()[:16]}" for added, part in parts.items()]


async def _grant(connection: Connection, name: str) -> None:
    await _run(connection, f"GRANT USAGE ON SCHEMA {name} TO {READER}")
    await _run(connection, f"GRANT SELECT ON ALL TABLES IN SCHEMA {name} TO {READER}")


async def _run(connection: Connection, text: str) -> None:
    """Run a script of many statements. It has no parameters and is not prepared."""
    if text.strip():
        await connection.execute(text.encode(), prepare=False)


async def _attempt(connection: Connection, act: Callable[[], Awaitable[None]]) -> bool:
    """Return True if `act` succeeded. If not, its changes are undone and the transaction continues."""
    await _run(connection, "SAVEPOINT lens")
    try:
        await act()
    except _LENS_UNCHANGED:
        await _run(connection, "ROLLBACK TO SAVEPOINT lens")
        return False
    await _run(connection, "RELEASE SAVEPOINT lens")
    return True


async def migrate(connection: Connection, dialect: Dialect, store: str) -> int:
    """Apply the missing migrations, rebuild stale lenses, and return the version.

    If nothing is missing, this costs three queries. A newer store keeps the lenses of newer code.
    """
    steps = queries.migrations("lockstitch.backends.postgres")
    newest = steps[-1][0]
    try:
        version = await _version(connection, dialect, store)
        if version > newest or (version == newest and (await installed_lenses(connection, dialect)).is_current()):
            return version
    except (pg.UndefinedTable, pg.InvalidSchemaName):
        pass
    async with connection.steps():
        await connection.execute_one(dialect.statement("schema_lock", {}))
        done = await _prepare(connection, dialect, store)
        if done > newest:
            return done  # newer code has just migrated the store
        if done < newest:
            await drop_outdated_views(connection, dialect)
        for number, name, text in steps[done:]:
            await _apply(connection, text)
            await connection.execute_one(dialect.statement("version_set", {"version": number, "name": name}))
        await make(connection, dialect)
    return newest


async def extend(connection: Connection, dialect: Dialect, extension: Extension, store: str) -> None:
    """Apply the missing migrations of an extension, and add its parts to the lenses."""
    steps = extension.migrations("postgres")
    newest = steps[-1][0]
    about = {"extension": extension.name}
    statement = dialect.statement("extension_version", about)

    async def stored() -> int:
        return supported_extension((await connection.execute_one(statement))[0], newest, extension.name, store)

    version = await stored()
    if version > newest or (version == newest and await _lenses_are_current(connection, dialect, store)):
        return
    async with connection.steps():
        await connection.execute_one(dialect.statement("schema_lock", {}))
        await connection.execute_one(dialect.statement("schema_path", {}))
        done = await stored()
        if done > newest:
            return  # newer code has just migrated the tables
        if done < newest:
            await drop_outdated_views(connection, dialect)
        for number, name, text in steps[done:]:
            await _apply(connection, text)
            await connection.execute_one(dialect.statement("extension_set", {"version": number, "name": name, **about}))
        await make(connection, dialect)


async def _apply(connection: Connection, text: str) -> None:
    # A script of many statements has no parameters and is not prepared.
    await connection.execute(text.encode(), prepare=False)


async def _lenses_are_current(connection: Connection, dialect: Dialect, store: str) -> bool:
    """True if this code does not have to rebuild a lens. The lenses of a newer store belong to newer code."""
    lenses = await installed_lenses(connection, dialect)
    return lenses.is_current() or await _version(connection, dialect, store) > _newest()


async def _prepare(connection: Connection, dialect: Dialect, store: str) -> int:
    """Create the schema if it is missing. Return its version."""
    ((has_versions, has_schema),) = await connection.execute_one(dialect.statement("schema_known", {}))
    if not has_schema:
        await connection.execute_one(dialect.statement("schema_create", {}))
    await connection.execute_one(dialect.statement("schema_path", {}))
    if not has_versions:
        await connection.execute_one(dialect.statement("versions_create", {}))
        return 0
    return await _version(connection, dialect, store)


async def _version(connection: Connection, dialect: Dialect, store: str) -> int:
    (row,) = await connection.execute_one(dialect.statement("version", {}))
    return supported_version(row, _newest(), store)


def _newest() -> int:
    return queries.migrations("lockstitch.backends.postgres")[-1][0]


@asynccontextmanager
async def looking(pool: Pool, dialect: Dialect, name: str, blocking: bool) -> AsyncGenerator[Any]:
    """Yield a connection of the driver with a lens, without a pooler, because its session settings must stay.

    Every statement is a separate transaction, so that an idle reader does not prevent the vacuum of old rows.
    """
    own = await pool.connect(listening=True)
    try:
        await require(own, dialect, name)
        ((reader,),) = await own.execute_one(dialect.statement("reader_known", {}))
    finally:
        await own.close()
    setup = ["SET default_transaction_read_only = on", f"SET search_path TO {name}, lockstitch, public"]
    if reader:
        setup.append(f"SET ROLE {READER}")
    address = pool.address
    try:
        if blocking:
            connection = await asyncio.to_thread(psycopg.Connection.connect, address.listening, autocommit=True)
            try:
                for statement in setup:
                    await asyncio.to_thread(connection.execute, statement.encode())
                connection.read_only = True
                yield connection
            finally:
                await asyncio.to_thread(connection.close)
        else:
            async with await AsyncConnection.connect(address.listening, autocommit=True) as connection:
                for statement in setup:
                    await connection.execute(statement.encode())
                await connection.set_read_only(True)
                yield connection
    except psycopg.OperationalError as exc:
        raise translate(exc, address.shown) from exc
