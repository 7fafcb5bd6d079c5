"""Migrations on PostgreSQL: one transaction under one lock, so two processes that start at once wait for each other."""

from psycopg import errors as pg

from lockstitch.backends.postgres import lenses
from lockstitch.backends.postgres.connection import Connection
from lockstitch.backends.sql import queries
from lockstitch.backends.sql.dialect import Dialect
from lockstitch.backends.sql.schema import refuse_newer, refuse_newer_extension
from lockstitch.extension import Extension


async def migrate(connection: Connection, dialect: Dialect, store: str) -> int:
    """Apply what is missing, refresh the lenses, and return the version. Three questions when nothing is missing."""
    steps = queries.migrations("lockstitch.backends.postgres")
    newest = steps[-1][0]
    try:
        if (
            await _version(connection, dialect) == newest
            and (await lenses.installed_lenses(connection, dialect)).is_current()
        ):
            return newest
    except (pg.UndefinedTable, pg.InvalidSchemaName):
        pass
    async with connection.steps():
        await connection.execute_one(dialect.statement("schema_lock", {}))
        done = await _prepare(connection, dialect)
        refuse_newer(done, newest, store)
        if done < newest:
            await lenses.step_aside(connection, dialect)
        for number, name, text in steps[done:]:
            await _apply(connection, text)
            await connection.execute_one(dialect.statement("version_set", {"version": number, "name": name}))
        await lenses.make(connection, dialect)
    return newest


async def extend(connection: Connection, dialect: Dialect, extension: Extension, store: str) -> None:
    """Apply what is missing of an extension, and give the lenses its part of them."""
    steps = extension.migrations("postgres")
    newest = steps[-1][0]
    about = {"extension": extension.name}
    asked = dialect.statement("extension_version", about)
    known = (await connection.execute_one(asked))[0][0] or 0
    if known == newest and (await lenses.installed_lenses(connection, dialect)).is_current():
        return
    async with connection.steps():
        await connection.execute_one(dialect.statement("schema_lock", {}))
        await connection.execute_one(dialect.statement("schema_path", {}))
        done = (await connection.execute_one(asked))[0][0] or 0
        refuse_newer_extension(done, newest, extension.name, store)
        if done < newest:
            await lenses.step_aside(connection, dialect)
        for number, name, text in steps[done:]:
            await _apply(connection, text)
            await connection.execute_one(dialect.statement("extension_set", {"version": number, "name": name, **about}))
        await lenses.make(connection, dialect)


async def _apply(connection: Connection, text: str) -> None:
    # A script of many statements: it has no parameters and is not prepared.
    await connection.execute(text.encode(), prepare=False)


async def _prepare(connection: Connection, dialect: Dialect) -> int:
    """Make the schema where it is missing; the version that is there."""
    ((has_versions, has_schema),) = await connection.execute_one(dialect.statement("schema_known", {}))
    if not has_schema:
        await connection.execute_one(dialect.statement("schema_create", {}))
    await connection.execute_one(dialect.statement("schema_path", {}))
    if not has_versions:
        await connection.execute_one(dialect.statement("versions_create", {}))
        return 0
    return await _version(connection, dialect)


async def _version(connection: Connection, dialect: Dialect) -> int:
    return (await connection.execute_one(dialect.statement("version", {})))[0][0] or 0
