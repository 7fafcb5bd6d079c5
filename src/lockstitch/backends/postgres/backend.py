"""`PostgresBackend`: the backend for a PostgreSQL database."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from datetime import datetime
from functools import partial
from typing import Any, Literal, TypeVar
from uuid import UUID

import psycopg
from psycopg import errors as pg

from lockstitch.backend import (
    ChangeHint,
    Commit,
    Fields,
    Find,
    QueryResult,
    Receipt,
    SearchHit,
    Sizes,
    ThreadEdit,
    ThreadUsage,
    Where,
)
from lockstitch.backends.postgres import records as bulk
from lockstitch.backends.postgres.append import begin, change, fits, is_ready, makes_work, wakes
from lockstitch.backends.postgres.append_group import AppendGroup
from lockstitch.backends.postgres.caller_transaction import ExternalTransaction, insert, place, undone_alone
from lockstitch.backends.postgres.connection import translate
from lockstitch.backends.postgres.dialect import dialect, speaking
from lockstitch.backends.postgres.notify import Notifier, Watcher
from lockstitch.backends.postgres.pool import Pool, parse
from lockstitch.backends.postgres.query import Searcher, query
from lockstitch.backends.postgres.reader_login import Readers
from lockstitch.backends.postgres.records import claim, claim_unlimited, delete, read, restore
from lockstitch.backends.postgres.schema import extend, looking, migrate
from lockstitch.backends.sql import operations, reports, totals
from lockstitch.backends.sql.operations import new_threads_only, query_rows
from lockstitch.backends.sql.queries import Rows, Script, Statement
from lockstitch.errors import Refused, StoreError
from lockstitch.extension import Extension
from lockstitch.model import Clock, Limit, Record, Run, Stitch, Thread, Worker
from lockstitch.model.statistics import LatencyRow, StatsFilter, StitchOutline, UsageRow
from lockstitch.model.worker import ClaimRequest, EndCause

R = TypeVar("R", bound=Record)
T = TypeVar("T")


class PostgresBackend:
    """One database that many processes use. It connects at the first operation."""

    archive_encoding: Literal["gzip", "none"] = "none"
    encode = staticmethod(bulk.encode)

    def __init__(self, url: str, clock: Clock) -> None:
        self._clock = clock
        self._dialect = dialect(clock)
        self._pool = Pool(parse(url))
        self._appends = AppendGroup(self._pool)
        self._notifier = Notifier(self._pool, self._dialect)
        self._watcher = Watcher(self._pool, self._dialect, self._notifier)
        self._searcher = Searcher(self._pool, self._dialect)
        self._days = totals.SettledDays()
        self._readers = Readers(self._pool, self._dialect)

    async def migrate(self) -> int:
        shown = self._pool.address.shown
        return await self._pool.run(lambda connection: migrate(connection, self._dialect, shown))

    async def append(self, commit: Commit) -> list[Receipt]:
        step = commit.only_change
        if step is not None and fits(step):
            receipt = await self._appends.run(lambda: change(self._dialect, step))
            self._notifier.notify(step.thread_id, receipt.position or 0)
            if wakes(step, receipt, self._clock.now()):
                self._notifier.notify_ready()
            return [receipt]
        new = new_threads_only(commit, blob_refs=len(commit.new_threads) == 1) or ()
        if len(new) == 1 and fits(new[0].change):
            receipts = await self._pool.alone(lambda: begin(self._dialect, new[0]), repeatable=False)
        elif len(new) > 1 and sum(len(new_thread.change.stitches) for new_thread in new) > bulk.MANY:
            receipts = await self._pool.run(lambda connection: bulk.begin(connection, self._dialect, new))
        elif _is_one_statement(commit):
            receipts = await self._appends.run(lambda: self._commit(commit))
        else:
            # If a blob got a new reference concurrently, its foreign key rejects the deletion. The retry sees the
            # reference.
            again = (pg.ForeignKeyViolation,) if commit.deleted_threads or commit.superseded else ()
            receipts = await self._pool.transact(lambda: self._commit(commit), again=again)
        for thread in commit.new_threads:
            self._notifier.notify(thread.id, thread.position)
        for step, receipt in zip(commit.steps, receipts, strict=True):
            self._notifier.notify(step.thread_id, receipt.position or 0)
        if makes_work(commit, receipts, self._clock.now()):
            self._notifier.notify_ready()
        return receipts

    async def append_encoded(self, rows: Any, *, new_ids: bool) -> None:
        encoded: bulk.EncodedThreads = rows
        await self._pool.run(lambda connection: bulk.write_encoded(connection, self._dialect, encoded))
        for thread_id, position in encoded.positions.items():
            self._notifier.notify(thread_id, position)

    async def extend(self, extension: Extension) -> None:
        shown = self._pool.address.shown
        await self._pool.run(lambda connection: extend(connection, self._dialect, extension, shown))

    async def extensions(self) -> list[str]:
        return await self._read(self._extensions)

    async def run_query(
        self, extension: Extension, name: str, parameters: Fields, into: type[Record] | None, *, writes: bool
    ) -> list[Any]:
        dialect = speaking(self._dialect, extension)
        script = partial(query_rows, dialect, extension, name, parameters, into)
        return await (self._pool.transact(script) if writes else self._read(script))

    async def insert_within(self, connection: object, thread: Thread) -> None:
        guest = ExternalTransaction(connection, self._pool.address.shown)
        here, there = await self._read(lambda: place(self._dialect)), await guest.run(place(self._dialect))
        if here != there:
            raise Refused(f"`connection` belongs to another database than the store {self._pool.address.shown}.")
        await guest.run(undone_alone(insert(self._dialect, thread, self._clock)))

    async def read(self, thread_id: UUID, ranges: Sequence[tuple[int, int | None]]) -> list[Stitch]:
        if not ranges:
            return []
        return await self._read(lambda: read(self._dialect, thread_id, ranges))

    async def get(self, kind: type[R], key: Sequence[Any]) -> R | None:
        where = [Where(field, "=", value) for field, value in zip(kind.primary_key, key, strict=True)]
        matches = await self.find(Find(kind, where, limit=1))
        return matches[0] if matches else None

    async def find(self, find: Find[R]) -> list[R]:
        return await self._read(lambda: operations.find(self._dialect, find))

    async def put(self, records: Sequence[Record], *, new: bool = False) -> None:
        if len(records) > bulk.MANY and not new:
            await self._pool.run(lambda connection: bulk.put(connection, self._dialect, records))
            return
        if len(records) == 1 and not isinstance(records[0], Stitch):
            await self._pool.alone(lambda: operations.put(self._dialect, records, new=new), repeatable=False)
        else:
            await self._pool.transact(lambda: operations.put(self._dialect, records, new=new))
        for record in records:
            if isinstance(record, Stitch):
                self._notifier.notify(record.thread_id, record.position)
            elif isinstance(record, Thread):
                self._notifier.notify(record.id, record.position)
                if is_ready(record, self._clock.now()):
                    self._notifier.notify_ready()

    async def delete(self, find: Find[Any], *, force: bool = False) -> int:
        if find.kind is not Thread:
            return await self._pool.alone(lambda: delete(self._dialect, find, force), repeatable=False)
        # If a blob got a new reference concurrently, its foreign key rejects the deletion. The retry sees the
        # reference.
        again = (pg.ForeignKeyViolation,)
        return await self._pool.transact(lambda: delete(self._dialect, find, force), again=again)

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
        if thread_id is None and not limits:
            return await self._pool.run(lambda connection: claim_unlimited(connection, self._dialect, claim_request))
        return await self._pool.transact(lambda: claim(self._dialect, claim_request, thread_id))

    async def heartbeat(self, worker: Worker) -> bool:
        return await self._pool.alone(lambda: operations.heartbeat(self._dialect, worker), repeatable=True)

    async def release(self, worker_id: UUID, *, expired_only: bool = False, cause: EndCause = "stopped") -> list[UUID]:
        given_back = await self._pool.transact(
            lambda: operations.release(self._dialect, worker_id, expired_only, cause)
        )
        for thread_id in given_back:
            self._notifier.notify(thread_id, 0)
        if given_back:
            self._notifier.notify_ready()
        return given_back

    def watch(self, *, work_only: bool = False) -> AsyncGenerator[ChangeHint, None]:
        return self._watcher.watch(work_only=work_only)

    async def close(self) -> None:
        await self._notifier.close()
        await self._watcher.close()
        await self._readers.close()
        await self._pool.close()

    async def count(self, find: Find[Any]) -> int:
        return await self._read(lambda: operations.count(self._dialect, find))

    async def seconds_until_ready(self, agents: Sequence[str], project: str | None) -> float | None:
        return await self._read(lambda: operations.seconds_until_ready(self._dialect, agents, project))

    async def average_tokens(self, project: str, since: datetime) -> list[ThreadUsage]:
        return await self._read(lambda: reports.average_tokens(self._dialect, project, since))

    async def usage(self, stats_filter: StatsFilter) -> list[UsageRow]:
        await self._settle(stats_filter)
        return await self._read_each(reports.usage(self._dialect, self._days, stats_filter))

    async def latencies(self, stats_filter: StatsFilter, kind: Literal["tool", "model"]) -> list[LatencyRow]:
        await self._settle(stats_filter)
        return await self._read_each(reports.latencies(self._dialect, self._days, stats_filter, kind))

    async def _settle(self, stats_filter: StatsFilter) -> None:
        """Store missing daily totals for a report. If they cannot be stored, the report reads the runs."""
        if not totals.has_totals(stats_filter) or not self._days.is_due():
            return
        with suppress(StoreError):
            if await self._read_each(totals.days_to_settle(self._dialect)):
                await self._days.store(self._settle_next)

    async def _settle_next(self) -> bool:
        return await self._pool.transact(lambda: reports.settle(self._dialect))

    async def list_runs(self, stats_filter: StatsFilter, order: Literal["newest", "slowest"], limit: int) -> list[Run]:
        return await self._read_each(reports.runs(self._dialect, self._days, stats_filter, order, limit))

    async def mirrored_run(self, project: str, foreign_id: str) -> Run | None:
        return await self._read(lambda: reports.mirrored(self._dialect, project, foreign_id))

    async def outline(self, run_id: UUID) -> list[StitchOutline]:
        return await self._read(lambda: reports.outline(self._dialect, run_id))

    async def search(self, project: str, text: str, limit: int, *, complete: bool = True) -> list[SearchHit]:
        return await self._searcher.search(project, text, limit, complete=complete)

    async def unindexed(self) -> int:
        return await self._searcher.unindexed()

    async def prepare_reports(self) -> bool:
        if await self._searcher.prepare():
            return True
        return await self._days.prepare(
            lambda: self._read_each(totals.days_to_settle(self._dialect)), self._settle_next
        )

    async def size(self, thread_id: UUID | None) -> Sizes:
        sizes = await self._read(lambda: reports.size(self._dialect, thread_id, "octet_length({}::text)"))
        if thread_id is None:
            sizes["disk"] = await self._read(self._disk)
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
        async with nullcontext() if own else self._readers.places:
            connection = await (self._pool.connect(prepared=True) if own else self._readers.connect(force=force))
            try:
                return await query(connection, self._dialect, sql, limit, seconds, lens)
            except psycopg.Error as exc:
                raise translate(exc, self._pool.address.shown) from exc
            finally:
                await connection.close()

    def lens(self, name: str, *, blocking: bool = False) -> AbstractAsyncContextManager[Any]:
        return looking(self._pool, self._dialect, name, blocking)

    def _commit(self, commit: Commit) -> Script[list[Receipt]]:
        return operations.commit(self._dialect, operations.Parts(change, self._remove, restore), commit, self._clock)

    def _remove(self, find: Find[Any], force: bool) -> Script[int]:
        return delete(self._dialect, find, force=force)

    def _extensions(self) -> Script[list[str]]:
        rows = yield self._dialect.statement("extensions", {})
        return [row[0] for row in rows]

    async def _read(self, script: Callable[[], Script[T]]) -> T:
        return await self._pool.alone(script, repeatable=True)

    async def _read_each(self, script: Script[T]) -> T:
        """Run a script that only reads. Each statement has its own snapshot."""
        try:
            statement = next(script)
            while True:
                statement = script.send(await self._read(partial(_one, statement)))
        except StopIteration as stop:
            return stop.value

    def _disk(self) -> Script[int]:
        rows = yield self._dialect.statement("disk", {})
        return int(rows[0][0])


def _one(statement: Statement) -> Script[Rows]:
    return (yield statement)


def _is_one_statement(commit: Commit) -> bool:
    """True if the commit is a single edit or new record, which needs no explicit transaction."""
    if commit.deleted_threads or commit.superseded:
        return False
    records = (commit.records, commit.new_records, commit.default_records, commit.deleted_records)
    records += (commit.changed_records, commit.restored_stitches)
    if sum(map(len, (commit.steps, commit.new_threads, commit.webhook_events, *records))) != 1:
        return False
    step = commit.steps[0] if commit.steps else None
    return step is None or isinstance(step, ThreadEdit)
