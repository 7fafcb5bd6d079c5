"""SQL for people: one statement that only reads, refused by PostgreSQL itself if it would do more.

It runs in a read-only transaction that is never committed, on a connection of its own that is closed afterwards,
because a session can be left changed by a query that only reads (an advisory lock, a setting). Where there is the role
that reads for people, it runs as that, inside a function that belongs to it: `access.sql` says why. None of this is a
boundary between people who may see different things: whoever may ask here may read everything.
"""

import asyncio
import re

import psycopg
from psycopg import AsyncRawCursor
from psycopg import errors as pg
from psycopg.rows import TupleRow

from lockstitch.backend import Answer
from lockstitch.backends.postgres import lenses
from lockstitch.backends.postgres.connection import Connection
from lockstitch.backends.sql.dialect import Dialect
from lockstitch.errors import Refused

# These cannot be the query of a cursor; they read all the same.
_EXPLAIN = re.compile(r"\s*EXPLAIN\b", re.IGNORECASE)
_SHOW = re.compile(r"\s*SHOW\b", re.IGNORECASE)
_PLAN_TYPE = re.compile(r"\s*EXPLAIN\s*\([^)]*\bFORMAT\s+(JSON|XML)\b", re.IGNORECASE)
_MEANT_TO_WRITE = re.compile(
    r"\s*(ALTER|CALL|COPY|CREATE|DELETE|DO|DROP|GRANT|INSERT|MERGE|REVOKE|SET|TRUNCATE|UPDATE|VACUUM)\b", re.IGNORECASE
)


async def query(
    connection: Connection, dialect: Dialect, sql: str, limit: int, seconds: float, lens: str | None
) -> Answer:
    """Run one statement in a read-only transaction with a time limit and a row limit."""
    try:
        async with asyncio.timeout(seconds + 1):
            await connection.execute_one(dialect.statement("query_begin", {}))
            if lens is not None:
                await lenses.require(connection, dialect, lens)
            path = "lockstitch, public" if lens is None else f"{lens}, lockstitch, public"
            limits = {"milliseconds": str(max(1, int(seconds * 1000))), "path": path}
            await connection.execute_one(dialect.statement("query_limits", limits))
            ((as_reader, is_superuser, _),) = await connection.execute_one(dialect.statement("query_role", {}))
            if is_superuser and not as_reader:
                raise Refused(
                    "A superuser, who may read files and run programs, asks through a role that may not, and this "
                    "database does not have it yet. Run `lockstitch migrate`."
                )
            if as_reader and not _SHOW.match(sql):
                return await _ask_through(connection, dialect, sql, limit)
            return await _ask(connection, sql, limit)
    except (pg.QueryCanceled, TimeoutError) as exc:
        raise Refused(f"The query took longer than {seconds:g} s and was stopped.") from exc
    except (pg.ReadOnlySqlTransaction, pg.InsufficientPrivilege) as exc:
        raise Refused(f"Only reading is allowed here: {exc.diag.message_primary}.") from exc
    except (psycopg.Error, UnicodeError) as exc:
        if connection.closed:
            raise
        said = exc.diag.message_primary if isinstance(exc, psycopg.Error) else None
        if _MEANT_TO_WRITE.match(sql):
            raise Refused("Only reading is allowed here: SELECT, WITH, VALUES, TABLE, EXPLAIN and SHOW.") from exc
        raise Refused(f"PostgreSQL refused the query: {said or exc}.") from exc


async def _ask(connection: Connection, sql: str, limit: int) -> Answer:
    """Ask directly."""
    async with AsyncRawCursor(connection) as cursor:
        # Prepared, because then PostgreSQL takes one statement only.
        if _EXPLAIN.match(sql) or _SHOW.match(sql):
            await cursor.execute(sql.encode(), (), prepare=True)
        else:
            await cursor.execute(b"DECLARE asked NO SCROLL CURSOR FOR " + sql.encode(), (), prepare=True)
            await cursor.execute(f"FETCH {limit + 1} FROM asked".encode())
        rows = await cursor.fetchmany(limit + 1)
        columns = [column.name for column in cursor.description or ()]
    return Answer(columns, rows[:limit], len(rows) > limit)


async def _ask_through(connection: Connection, dialect: Dialect, sql: str, limit: int) -> Answer:
    """Ask through the function, which has to be told what columns will come."""
    async with AsyncRawCursor(connection) as cursor:
        if _EXPLAIN.match(sql):
            kind = _PLAN_TYPE.match(sql)
            columns, types = ["QUERY PLAN"], [(kind[1].lower() if kind else "text", False)]
        else:
            columns, types = await _columns(connection, dialect, cursor, sql)
        if not columns:
            return await _ask(connection, sql, limit)
        names = [f"c{number}" for number in range(len(columns))]
        if any(is_pseudo for _, is_pseudo in types):
            sql = _as_text(sql, names, types)
            types = [("text" if is_pseudo else name, is_pseudo) for name, is_pseudo in types]
        shape = ", ".join(f"{name} {kind}" for name, (kind, _) in zip(names, types, strict=True))
        asked = f"SELECT * FROM lockstitch.ask($1, {limit + 1}) AS answer ({shape})"
        await cursor.execute(asked.encode(), (sql,), prepare=False)
        rows = await cursor.fetchall()
    return Answer(columns, rows[:limit], len(rows) > limit)


async def _columns(
    connection: Connection, dialect: Dialect, cursor: AsyncRawCursor[TupleRow], sql: str
) -> tuple[list[str], list[tuple[str, bool]]]:
    """The names and types of what a query gives, from a cursor that is never moved, so nothing is run.

    What cannot be the query of a cursor, or is more than one statement, is refused here already.
    """
    await cursor.execute(b"DECLARE asked NO SCROLL CURSOR FOR " + sql.encode(), (), prepare=True)
    await cursor.execute(b"FETCH 0 FROM asked")
    described = cursor.description or ()
    await cursor.execute(b"CLOSE asked")
    oids = " ".join(str(column.type_code) for column in described)
    types = await connection.execute_one(dialect.statement("query_types", {"oids": oids})) if described else ()
    return [column.name for column in described], [(name, is_pseudo) for name, is_pseudo in types]


def _as_text(sql: str, names: list[str], types: list[tuple[str, bool]]) -> str:
    """The same query with what has no type of its own (a row, nothing) as text. It was found to be one query."""
    shown = [f"{name}::text" if is_pseudo else name for name, (_, is_pseudo) in zip(names, types, strict=True)]
    inner = sql.rstrip().removesuffix(";")
    return f"SELECT {', '.join(shown)} FROM (\n{inner}\n) AS asked ({', '.join(names)})"
