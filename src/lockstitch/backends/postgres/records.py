"""Bulk writes with COPY, deletes, reads of several ranges, and claims."""

import asyncio
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID

from psycopg import AsyncRawCursor
from psycopg import errors as pg

from lockstitch.backend import Commit, Find, Receipt
from lockstitch.backends.postgres.connection import Connection, bind
from lockstitch.backends.postgres.dialect import SCHEMA
from lockstitch.backends.postgres.dialect import dialect as postgres_dialect
from lockstitch.backends.sql import operations
from lockstitch.backends.sql.dialect import Dialect
from lockstitch.backends.sql.operations import NewThread, choice, choosing, claim_thread, claimed_threads
from lockstitch.backends.sql.queries import Rows, Script, Statement
from lockstitch.backends.sql.tables import table_of
from lockstitch.backends.sql.totals import unsettle
from lockstitch.errors import Conflict, Refused
from lockstitch.model import ColumnKind, Record, Run, Stitch, SystemClock, Thread, columns
from lockstitch.model.record import column_kinds
from lockstitch.model.worker import ClaimRequest

MANY = 50
"""Number of records above which COPY is faster than statements."""

_BLOCK = 1 << 17
"""Bytes of COPY text after which other tasks get their turn."""

BREATH = 500
"""Number of rows after which other tasks get their turn."""


async def put(connection: Connection, dialect: Dialect, records: Sequence[Record]) -> None:
    """Write records of one class, replacing those with the same key, all or none."""
    kind = type(records[0])
    # If two records have the same key, the last one counts, as if they were written one by one.
    key = kind.primary_key
    wanted = list({tuple(record.__dict__[field] for field in key): record for record in records}.values())
    names = [name for name, _ in columns(kind) if name != "log_id"]
    try:
        async with connection.steps():
            await _copy(connection, dialect, wanted, f"{SCHEMA}.{kind.table}", names)
            await _unsettle(connection, dialect, wanted)
    except pg.UniqueViolation:
        async with connection.steps():
            listed = ", ".join(names)
            await connection.execute_one(dialect.statement("incoming", {}, columns=listed, table=kind.table))
            await _copy(connection, dialect, wanted, "incoming", names)
            await connection.execute_one(_upsert(dialect, kind, names))
            await _unsettle(connection, dialect, wanted)


async def _unsettle(connection: Connection, dialect: Dialect, records: Sequence[Record]) -> None:
    for statement in unsettle(dialect, records):
        await connection.execute_one(statement)


async def begin(connection: Connection, dialect: Dialect, new: Sequence[NewThread]) -> list[Receipt]:
    """Write new threads with their first changes, in one transaction."""
    parts: tuple[Sequence[Record], ...] = (
        [new_thread.head for new_thread in new],
        [run for new_thread in new for run in new_thread.change.new_runs],
        [stitch for new_thread in new for stitch in new_thread.change.stitches],
    )
    async with connection.steps():
        for records in parts:
            if records:
                kind = type(records[0])
                names = [name for name, _ in columns(kind) if name != "log_id"]
                await _copy(connection, dialect, records, f"{SCHEMA}.{kind.table}", names)
    return [new_thread.receipt for new_thread in new]


class EncodedThreads(NamedTuple):
    """New threads with their runs, stitches and side records, in the text form of COPY."""

    tables: list[tuple[type[Record], tuple[str, ...], bytes]]
    """The class, the columns and the rows of each table."""
    positions: dict[UUID, int]
    """The last position of each thread."""


def encode(commit: Commit, records: Sequence[Record]) -> EncodedThreads | None:
    """Return the rows of new threads and of their side records, for `write_encoded`."""
    new = operations.new_threads_only(commit)
    if new is None:
        return None
    kinds: tuple[Sequence[Record], ...] = (
        [head for head, _ in new],
        [run for _, change in new for run in change.new_runs],
        [stitch for _, change in new for stitch in change.stitches],
        records,
    )
    tables = [(type(rows[0]), *_copy_text(rows)) for rows in kinds if rows]
    return EncodedThreads(tables, {head.id: head.position for head, _ in new})


def _copy_text(records: Sequence[Record]) -> tuple[tuple[str, ...], bytes]:
    """Return the columns and the rows of records of one class."""
    table = table_of(_encoding(), records, frozenset({"log_id"}))
    kinds = column_kinds(type(records[0]))
    # Only these can have characters that COPY escapes.
    contents = [
        list(map(_escaped if kinds[name] in (ColumnKind.TEXT, ColumnKind.JSON) else _or_null, content))
        for name, content in zip(table.names, table.columns, strict=True)
    ]
    lines = ["\t".join(row) for row in zip(*contents, strict=True)]
    return table.names, "\n".join([*lines, ""]).encode()


def _or_null(text: str | None) -> str:
    return "\\N" if text is None else text


def _escaped(text: str | None) -> str:
    if text is None:
        return "\\N"
    text = text.replace("\\", "\\\\")
    if text.isprintable():
        return text
    return text.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")


@lru_cache(maxsize=1)
def _encoding() -> Dialect:
    """Return a dialect to encode values. Its clock is not used."""
    return postgres_dialect(SystemClock())


async def write_encoded(connection: Connection, dialect: Dialect, encoded: EncodedThreads) -> None:
    """Write the rows of `encode` in one transaction. Raises `Conflict` if one of the ids exists."""
    try:
        async with connection.steps():
            for kind, names, text in encoded.tables:
                parts = {"into": f"{SCHEMA}.{kind.table}", "columns": ", ".join(names)}
                sql, _, _ = bind(dialect.statement("copy", {}, **parts))
                async with AsyncRawCursor(connection) as cursor, cursor.copy(sql) as copy:
                    for start in range(0, len(text), _BLOCK):
                        await copy.write(text[start : start + _BLOCK])
    except pg.UniqueViolation as exc:
        raise Conflict("Another writer has stored one of these traces. Nothing was written.") from exc


async def _copy(
    connection: Connection, dialect: Dialect, records: Sequence[Record], into: str, names: Sequence[str]
) -> None:
    sql, _, _ = bind(dialect.statement("copy", {}, into=into, columns=", ".join(names)))
    kind = type(records[0])
    async with AsyncRawCursor(connection) as cursor, cursor.copy(sql) as copy:
        for number, record in enumerate(records):
            values = dialect.encode(kind, record.__dict__)
            await copy.write_row([values[name] for name in names])
            if number % BREATH == BREATH - 1:
                await asyncio.sleep(0)


def _upsert(dialect: Dialect, kind: type[Record], names: Sequence[str]) -> Statement:
    key = dialect.target(kind).key
    changed = [name for name in dialect.target(kind).values if name not in key]
    changes = ", ".join(f"{name} = excluded.{name}" for name in changed)
    return dialect.statement(
        "incoming_upsert",
        {},
        table=kind.table,
        columns=", ".join(names),
        key=", ".join(key),
        action=f"UPDATE SET {changes}" if changed else "NOTHING",
    )


SPARE = 10
"""Additional candidates of a claim, at least. Other transactions may hold this many without the claim returning too
few."""


def _spare(limit: int) -> int:
    """Return the number of additional candidates of a claim.

    The number of all candidates is a part of the text. It is a power of two, because each text is a separate prepared
    statement.
    """
    return (1 << (limit + SPARE - 1).bit_length()) - limit


def claim(dialect: Dialect, claim_request: ClaimRequest, thread_id: UUID | None) -> Script[list[Thread]]:
    """Claim one thread, or ready threads.

    It locks the worker first, then threads. `release` has the same order, so the two cannot deadlock.
    """
    yield _worker_hold(dialect, claim_request)
    if thread_id is not None:
        return (yield from claim_thread(dialect, claim_request, thread_id))
    statement = yield from choosing(dialect, claim_request, _spare(claim_request.limit))
    if statement is None:
        return []
    rows = yield statement
    if _all_locked(claim_request, rows):
        # Some of the transactions that hold them may have ended by now, and there may be further threads.
        rows = yield statement
    return _taken(dialect, claim_request, rows)


async def claim_unlimited(connection: Connection, dialect: Dialect, claim_request: ClaimRequest) -> list[Thread]:
    """Claim ready threads that no limit covers, in one round trip. The locks and their order are those of `claim`."""
    if claim_request.agents is not None and not claim_request.agents:
        return []
    statements = [
        _worker_hold(dialect, claim_request),
        dialect.statement("claim_due", {}),
        choice(dialect, claim_request, _spare(claim_request.limit)),
    ]
    *_, rows = await connection.together(statements)
    if _all_locked(claim_request, rows):
        *_, rows = await connection.together(statements)
    return _taken(dialect, claim_request, rows)


def _worker_hold(dialect: Dialect, claim_request: ClaimRequest) -> Statement:
    return dialect.statement("worker_hold", {"worker_id": dialect.encode_id(claim_request.worker_id)})


def _taken(dialect: Dialect, claim_request: ClaimRequest, rows: Rows) -> list[Thread]:
    """Return the threads that a claim took."""
    if claim_request.suspects:
        return [dialect.decode(Thread, row) for row in rows]
    return claimed_threads(dialect, claim_request, [row for _, *row in rows if row[0] is not None])


def _all_locked(claim_request: ClaimRequest, rows: Rows) -> bool:
    """True if there were candidates, and other transactions had locked all of them."""
    if claim_request.suspects:
        return False
    candidates, first, *_ = rows[0]
    return candidates > 0 and first is None


def delete(dialect: Dialect, find: Find[Any], force: bool) -> Script[int]:
    """Delete the records that `find` selects and return their number."""
    if find.kind is Run:
        raise Refused("Runs cannot be deleted without their thread. Nothing was deleted.")
    if find.kind is Thread:
        return (yield from _threads(dialect, find, force))
    if find.kind is Stitch:
        find = operations.stitches_between(*operations.stitch_range(find))
    rows = yield dialect.delete(find)
    return int(rows[0][0])


def _threads(dialect: Dialect, find: Find[Thread], force: bool) -> Script[int]:
    """Delete threads with their descendants. Return the number of selected threads, without descendants."""
    number, ids = yield from operations.tree_of(dialect, find)
    yield from operations.delete_threads(dialect, ids, force)
    return number


def restore(dialect: Dialect, stitches: Sequence[Stitch]) -> Script[None]:
    """Write archived stitches of a thread as rows again, and add those to the index that are not after its mark."""
    yield from operations.restore(dialect, stitches)
    yield dialect.statement("search_share", {})
    span = {"first": str(stitches[0].position), "last": str(stitches[-1].position)}
    yield dialect.statement("search_restore", {"thread_id": dialect.encode_id(stitches[0].thread_id), **span})


END = 2**63 - 1
"""A position that no log reaches."""


def read(dialect: Dialect, thread_id: UUID, ranges: Sequence[tuple[int, int | None]]) -> Script[list[Stitch]]:
    """Return the stitches in these ranges, in one statement."""
    parts = operations.disjoint(ranges)
    if len(parts) == 1:
        return (yield from operations.read(dialect, thread_id, parts))
    rows = yield dialect.statement(
        "ranges",
        {
            "thread_id": dialect.encode_id(thread_id),
            "firsts": [str(first) for first, _ in parts],
            "lasts": [str(END if last is None else last) for _, last in parts],
        },
        columns=dialect.names(Stitch),
    )
    return [dialect.decode(Stitch, row) for row in rows]
