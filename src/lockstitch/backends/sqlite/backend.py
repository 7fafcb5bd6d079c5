"""`SqliteBackend`: the backend for one SQLite file."""

import asyncio
import os
import sqlite3
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager, closing, suppress
from datetime import datetime
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any, Literal, TypeVar
from uuid import UUID

from lockstitch.backend import (
    WATCHING,
    WORK_READY,
    ChangeHint,
    Commit,
    Fields,
    Find,
    QueryResult,
    Receipt,
    SearchHit,
    Sizes,
    ThreadChange,
    ThreadUsage,
    Where,
)
from lockstitch.backends.sql import operations, reports, totals
from lockstitch.backends.sql.dialect import Dialect
from lockstitch.backends.sql.operations import (
    choosing,
    claim_thread,
    claimed_threads,
    new_threads_only,
    query_rows,
    with_extension,
)
from lockstitch.backends.sql.queries import Rows, Script
from lockstitch.backends.sqlite import bulk
from lockstitch.backends.sqlite import query as search
from lockstitch.backends.sqlite.append import begin, change
from lockstitch.backends.sqlite.connection import connect, run, translate, uri_of
from lockstitch.backends.sqlite.dialect import dialect
from lockstitch.backends.sqlite.packing import add_complete_stitches, replaced
from lockstitch.backends.sqlite.query import create_lens_views, internal_query, views
from lockstitch.backends.sqlite.query_processes import AT_ONCE, query
from lockstitch.backends.sqlite.reader import ReadConnections
from lockstitch.backends.sqlite.schema import extend, migrate
from lockstitch.backends.sqlite.writer import GroupCommitWriter
from lockstitch.errors import StoreError
from lockstitch.extension import Extension
from lockstitch.model import Clock, Limit, Record, Run, Stitch, Thread, Worker
from lockstitch.model.clock import uptime
from lockstitch.model.statistics import LatencyRow, StatsFilter, StitchOutline, UsageRow
from lockstitch.model.worker import ClaimRequest, EndCause

R = TypeVar("R", bound=Record)
T = TypeVar("T")

POLL = 0.02
"""Seconds between two checks for new commits."""


class SqliteBackend:
    """One SQLite file, or `:memory:` for a store that ends with its process."""

    archive_encoding: Literal["gzip", "none"] = "gzip"
    encode = staticmethod(bulk.encode)

    def __init__(self, path: str, clock: Clock, *, synchronous: str = "FULL") -> None:
        self._path = path
        self._absolute = os.path.abspath(path)
        self._clock = clock
        self._dialect = dialect(clock)
        try:
            connection = connect(path, synchronous=synchronous)
        except sqlite3.Error as exc:
            raise translate(exc, path) from exc
        self._writer = GroupCommitWriter(connection, path)
        self._reader = ReadConnections(path, self._writer)
        self._days = totals.SettledDays()
        self._preparing = False
        """True while `prepare_reports` fills the index."""
        self._query_slots = asyncio.Semaphore(AT_ONCE)
        self._query_threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="lockstitch-sql")

    async def migrate(self) -> int:
        return await asyncio.to_thread(self._migrate)

    async def append(self, commit: Commit) -> list[Receipt]:
        step = commit.only_change
        if step is not None and not step.replaced_stitches:
            # The only step is rejected before it has written anything. All other commits need a savepoint.
            return [await self._writer.run(lambda cursor: change(cursor, self._dialect, step), several=False)]
        new = new_threads_only(commit, blob_refs=True)
        if new is not None:
            return await self._writer.run(
                lambda cursor: [begin(cursor, self._dialect, new_thread) for new_thread in new]
            )
        return await self._write(
            lambda: operations.commit(
                self._dialect, operations.Parts(self._change, self._delete, search.restore), commit, self._clock
            )
        )

    async def append_encoded(self, rows: Any, *, new_ids: bool) -> None:
        encoded: bulk.EncodedThreads = rows
        await self._writer.run(lambda cursor: bulk.write_encoded(cursor, self._dialect, encoded), large=True)

    async def read(self, thread_id: UUID, ranges: Sequence[tuple[int, int | None]]) -> list[Stitch]:
        return await self._reader.run(lambda: operations.read(self._dialect, thread_id, ranges))

    async def get(self, kind: type[R], key: Sequence[Any]) -> R | None:
        where = [Where(field, "=", value) for field, value in zip(kind.primary_key, key, strict=True)]
        wanted = Find(kind, where, limit=1)
        matches = await self.find(wanted)
        return matches[0] if matches else None

    async def find(self, find: Find[R]) -> list[R]:
        return await self._reader.run(lambda: operations.find(self._dialect, find))

    async def put(self, records: Sequence[Record], *, new: bool = False) -> None:
        await self._write(lambda: self._put(records, new=new))

    async def delete(self, find: Find[Any], *, force: bool = False) -> int:
        return await self._write(lambda: self._delete(find, force))

    async def claim(
        self,
        worker_id: UUID,
        *,
        thread_id: UUID | None = None,
        agents: Sequence[str] | None = None,
        project: str | None = None,
        limit: int = 1,
        after: str = "",
        limits: Sequence[Limit] = (),
        suspects: bool | None = None,
        alone: bool = False,
    ) -> list[Thread]:
        claim_request = ClaimRequest(worker_id, agents, project, limit, after, limits, suspects, alone)
        if thread_id is not None:
            return await self._write(lambda: claim_thread(self._dialect, claim_request, thread_id))
        return await self._write(lambda: self._claim(claim_request))

    async def heartbeat(self, worker: Worker) -> bool:
        measured = worker.changed(uptime=uptime(self._clock))
        return await self._write(lambda: operations.heartbeat(self._dialect, measured))

    async def release(self, worker_id: UUID, *, expired_only: bool = False, cause: EndCause = "stopped") -> list[UUID]:
        return await self._write(lambda: operations.release(self._dialect, worker_id, expired_only, cause))

    async def watch(self, *, work_only: bool = False) -> AsyncGenerator[ChangeHint, None]:
        """Yield hints. SQLite provides a counter that changes when another connection commits."""
        try:
            async with aclosing(self._hints()) as hints:
                async for hint in hints:
                    yield hint
        except sqlite3.Error as exc:
            raise translate(exc, self._path) from exc

    async def _hints(self) -> AsyncGenerator[ChangeHint, None]:
        own = self._path == ":memory:"
        connection = self._writer.connection if own else connect(self._path, synchronous="FULL", read_only=True)
        try:
            seen = _changes(connection, own)
            mark = connection.execute("SELECT coalesce(max(log_id), 0) FROM stitch_rows").fetchone()[0]
            yield WATCHING
            while True:
                version = _changes(connection, own)
                if version != seen:
                    seen = version
                    rows = connection.execute(*self._dialect.statement("sightings", {"mark": mark})).fetchall()
                    work = connection.execute(*self._dialect.statement("work", {})).fetchone()[0]
                    for thread_id, position, log_id in rows:
                        mark = max(mark, log_id)
                        yield ChangeHint(UUID(thread_id), position)
                    if work:
                        yield WORK_READY
                await asyncio.sleep(POLL)
        finally:
            if not own:
                connection.close()

    async def close(self) -> None:
        self._query_threads.shutdown(wait=False)
        self._reader.close()
        self._writer.close()

    async def count(self, find: Find[Any]) -> int:
        return await self._reader.run(lambda: operations.count(self._dialect, find))

    async def seconds_until_ready(self, agents: Sequence[str], project: str | None) -> float | None:
        return await self._reader.run(lambda: operations.seconds_until_ready(self._dialect, agents, project))

    async def average_tokens(self, project: str, since: datetime) -> list[ThreadUsage]:
        return await self._reader.run(lambda: reports.average_tokens(self._dialect, project, since))

    async def usage(self, stats_filter: StatsFilter) -> list[UsageRow]:
        await self._settle(stats_filter)
        return await self._reader.run(lambda: reports.usage(self._dialect, self._days, stats_filter))

    async def latencies(self, stats_filter: StatsFilter, kind: Literal["tool", "model"]) -> list[LatencyRow]:
        await self._settle(stats_filter)
        return await self._reader.run(lambda: reports.latencies(self._dialect, self._days, stats_filter, kind))

    async def _settle(self, stats_filter: StatsFilter) -> None:
        """Store missing daily totals for a report. If they cannot be stored, the report reads the runs."""
        if not totals.has_totals(stats_filter) or not self._days.is_due():
            return
        with suppress(StoreError):
            if await self._reader.run(lambda: totals.days_to_settle(self._dialect)):
                await self._days.store(self._settle_next)

    async def _settle_next(self) -> bool:
        return await self._writer.run(lambda cursor: run(cursor, reports.settle(self._dialect)), large=True)

    async def list_runs(self, stats_filter: StatsFilter, order: Literal["newest", "slowest"], limit: int) -> list[Run]:
        return await self._reader.run(lambda: reports.runs(self._dialect, self._days, stats_filter, order, limit))

    async def mirrored_run(self, project: str, foreign_id: str) -> Run | None:
        return await self._reader.run(lambda: reports.mirrored(self._dialect, project, foreign_id))

    async def outline(self, run_id: UUID) -> list[StitchOutline]:
        return await self._reader.run(lambda: reports.outline(self._dialect, run_id))

    async def search(self, project: str, text: str, limit: int, *, complete: bool = True) -> list[SearchHit]:
        # Only if stitches are left, because a search must not wait for other writers without need.
        if (complete or not self._preparing) and await self.unindexed():
            while await self._index(search.BATCH if complete else search.SMALL_BATCH) and complete:
                pass
        return await self._reader.run(lambda: search.search(self._dialect, project, text, limit), large=True)

    async def unindexed(self) -> int:
        return await self._reader.run(lambda: search.unindexed(self._dialect))

    async def prepare_reports(self) -> bool:
        self._preparing = True
        try:
            if await self.unindexed() and await self._index(search.SMALL_BATCH):
                return True
            return await self._days.prepare(
                lambda: self._reader.run(lambda: totals.days_to_settle(self._dialect)), self._settle_next
            )
        finally:
            self._preparing = False

    async def size(self, thread_id: UUID | None) -> Sizes:
        sizes = await self._reader.run(lambda: reports.size(self._dialect, thread_id, "length(CAST({} AS BLOB))"))
        if thread_id is None:
            sizes["disk"] = await self._reader.run(self._disk)
        return sizes

    async def query(
        self,
        sql: str,
        *,
        limit: int,
        seconds: float,
        lens: str | None = None,
        force: bool = False,
        own: bool = False,
    ) -> QueryResult | None:
        if own:
            with closing(self._beside()) as connection:
                return await _run_query(connection, sql, limit, seconds, lens)
        before = views(lens, await self.extensions())
        async with self._query_slots, self._as_file() as path:
            uri = uri_of(path, read_only=True)
            threads = self._query_threads
            return await query(self._path, uri, sql, limit=limit, seconds=seconds, threads=threads, before=before)

    @asynccontextmanager
    async def lens(self, name: str, *, blocking: bool = False) -> AsyncGenerator[sqlite3.Connection]:
        """Yield a read-only connection with the views of a lens. `blocking` makes no difference on SQLite."""
        with closing(self._beside()) as connection:
            create_lens_views(connection, name)
            connection.execute("PRAGMA query_only = ON")
            yield connection

    async def extend(self, extension: Extension) -> None:
        await asyncio.to_thread(self._extend, extension)

    async def extensions(self) -> list[str]:
        return [row[0] for row in await self._reader.run(self._extensions)]

    async def run_query(
        self, extension: Extension, name: str, parameters: Fields, into: type[Record] | None, *, writes: bool
    ) -> list[Any]:
        dialect = with_extension(self._dialect, extension, "sqlite")
        script = partial(query_rows, dialect, extension, name, parameters, into)
        return await (self._write(script) if writes else self._reader.run(script))

    async def _index(self, batch: int) -> bool:
        return await self._writer.run(lambda cursor: run(cursor, search.catch_up(self._dialect, batch)), large=True)

    async def _write(self, script: Callable[[], Script[T]]) -> T:
        return await self._writer.run(lambda cursor: run(cursor, script()))

    @asynccontextmanager
    async def _as_file(self) -> AsyncGenerator[str]:
        """Yield the path of a file that another process can open. A store in memory is copied to a file."""
        if self._path != ":memory:":
            yield self._absolute
            return
        with TemporaryDirectory(prefix="lockstitch-") as folder:
            path = os.path.join(folder, "copy.db")
            await asyncio.to_thread(self._copy_to, path)
            yield path

    def _copy_to(self, path: str) -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as copy, self._writer.lock:
            copy.execute("PRAGMA synchronous = OFF")
            self._writer.connection.backup(copy)

    def _beside(self) -> sqlite3.Connection:
        """Return a separate connection that cannot write to the store."""
        if self._path != ":memory:":
            return connect(self._path, synchronous="FULL", read_only=True)
        # A store in memory exists only in one connection, so a separate connection gets a copy.
        copy = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        with self._writer.lock:
            self._writer.connection.backup(copy)
        add_complete_stitches(copy)
        return copy

    def _change(self, dialect: Dialect, thread_change: ThreadChange) -> Script[Receipt]:
        """Write a change as a step of a commit, which already has the writer's cursor."""
        yield from ()
        receipt = change(self._writer.cursor, dialect, thread_change)
        if thread_change.replaced_stitches:
            yield from replaced(dialect, thread_change.thread_id, thread_change.replaced_stitches, self._put)
        return receipt

    def _migrate(self) -> int:
        # Take the lock in this thread: the event loop's thread would deadlock if two tasks migrate at once.
        try:
            with self._writer.lock:
                return migrate(self._writer.connection, self._dialect, self._path)
        except sqlite3.Error as exc:
            raise translate(exc, self._path) from exc

    def _extend(self, extension: Extension) -> None:
        try:
            with self._writer.lock:
                extend(self._writer.connection, self._dialect, extension, self._path)
        except sqlite3.Error as exc:
            raise translate(exc, self._path) from exc

    def _extensions(self) -> Script[Rows]:
        return (yield self._dialect.statement("extensions", {}))

    def _claim(self, claim_request: ClaimRequest) -> Script[list[Thread]]:
        statement = yield from choosing(self._dialect, claim_request)
        if statement is None:
            return []
        return claimed_threads(self._dialect, claim_request, (yield statement))

    def _put(self, records: Sequence[Record], *, new: bool = False) -> Script[None]:
        stitches = [record for record in records if isinstance(record, Stitch)]
        put = operations.put(self._dialect, records, new=new)
        return search.replace(self._dialect, stitches, put) if stitches else put

    def _delete(self, find: Find[Any], force: bool) -> Script[int]:
        dialect = self._dialect
        if find.kind is Thread:
            number, ids = yield from operations.tree_of(dialect, find)
            yield from search.forget(dialect, [str(thread_id) for thread_id in ids])
            yield from operations.delete_threads(dialect, ids, force)
            return number
        if find.kind is Stitch:
            return (yield from self._delete_stitches(*operations.stitch_range(find)))
        number = yield dialect.count(find)
        yield dialect.delete(find)
        return int(number[0][0])

    def _delete_stitches(self, thread_id: UUID, first: int, last: int) -> Script[int]:
        dialect = self._dialect
        span = {"thread_id": str(thread_id), "first": first, "last": last}
        number = yield dialect.count(operations.stitches_between(thread_id, first, last))
        yield from search.forget(dialect, [str(thread_id)], first, last)
        yield dialect.statement("previous_keep", span)
        yield dialect.statement("previous_cut", span)
        yield dialect.statement("stitches_delete", span)
        return int(number[0][0])

    def _disk(self) -> Script[int]:
        rows = yield self._dialect.statement("disk", {})
        return int(rows[0][0])


def _changes(connection: sqlite3.Connection, own: bool) -> int:
    """Return a number that changes with every commit: of other connections, or of this one if it is the only one."""
    return connection.total_changes if own else connection.execute("PRAGMA data_version").fetchone()[0]


async def _run_query(
    connection: sqlite3.Connection, sql: str, limit: int, seconds: float, lens: str | None
) -> QueryResult:
    """Run a query in a thread. If the caller is cancelled, stop the query before its connection is closed."""
    asking = asyncio.ensure_future(asyncio.to_thread(internal_query, connection, sql, limit, seconds, lens))
    # Retrieve the exception of an interrupted query, so that asyncio does not log it as unhandled.
    asking.add_done_callback(lambda done: done.cancelled() or done.exception())
    try:
        return await asyncio.shield(asking)
    except asyncio.CancelledError:
        # Repeat: an interrupt before the statement starts has no effect.
        while not asking.done():
            connection.interrupt()
            await asyncio.wait([asking], timeout=0.02)
        raise
