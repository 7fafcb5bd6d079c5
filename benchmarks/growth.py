"""The cost of each operation in stores of ten thousand, a million and ten million stitches.

It runs only if it is named. `--stitches` adds a larger store: `--only growth --stitches 10000000` needs 40 GB of disk
and an hour for each database. Rows have the elapsed time and the processor time of this process and of the database.
"""

import asyncio
import os
import sqlite3
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any, Final

import psycopg

from benchmarks import lenses, sessions, varied
from benchmarks.copies import multiply
from benchmarks.counting import Processor
from benchmarks.places import SQL, Places, sqlite_path
from benchmarks.report import Measured, Row
from benchmarks.reports import calls
from benchmarks.scale import Scale
from lockstitch.model import Entry
from lockstitch.store import CopyReport, Store, open_store
from lockstitch.store.maintenance.doctor import DoctorReport, ThreadCheck

BACKENDS = SQL

COPIED: Final = 50_000
"""Stitches that are written one by one. All other stitches are copies of them."""

TREES: Final = 20
"""Number of threads that are archived and purged."""

_VERIFIED: Final = 1_000
"""Number of threads that the check of a store reads. It reads each thread for itself."""

_APPENDS: Final = 50
_CALLS: Final = 5
_SLOW: Final = 2.0
"""A call that takes longer than this number of seconds is measured once."""

_MOST_COPIED: Final = 100_000
"""Stitches after which the copy of a store is cancelled."""

Call = Callable[[], Awaitable[object]]


async def measure(places: Places, backend: str, scale: Scale) -> Measured:
    rows: list[Row] = []
    notes: list[str] = []
    for number in scale.grown:
        with places.fresh(backend) as url:
            started = time.perf_counter()
            known = await fill(url, number)
            await places.settle(url)
            _log(f"{number:,} stitches filled", started)
            async with open_store(url) as store, _Meter(url, backend, number) as meter:
                await _measure_store(meter, store, known)
                with places.fresh(backend) as target:
                    await _measure_copy(meter, store, target)
                await _measure_backup(meter, url, places)
                await _measure_reports(meter, store, known)
            rows += meter.rows
            _log(f"{number:,} stitches measured", started)
    return Measured(rows, notes)


async def fill(url: str, number: int) -> sessions.Known:
    """Write this number of stitches. Return the threads that queries of lenses select."""
    first = min(number, COPIED)
    period = sessions.SPREAD / (number // first)
    async with open_store(url) as store:
        await varied.fill(store, first, period)
    if number > first:
        multiply(url, number // first - 1, period)
    async with open_store(url) as store:
        return await sessions.fill(store, 0)


class _Meter:
    """Measures calls and collects their rows."""

    def __init__(self, url: str, backend: str, number: int) -> None:
        self.rows: list[Row] = []
        self._url = url
        self.backend = backend
        self._stitches = f"{number:,} stitches"

    async def __aenter__(self) -> "_Meter":
        self._processor = Processor(os.getpid(), self._url)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._processor.__exit__()

    async def calls(self, name: str, call: Call, times: int = _CALLS) -> None:
        """Add the median time of a call and its mean processor time. The first call warms caches."""
        before, started = self._processor.milliseconds, time.perf_counter()
        await call()
        spent = [time.perf_counter() - started]
        if spent[0] < _SLOW:
            before, spent = self._processor.milliseconds, []
            for _ in range(times):
                started = time.perf_counter()
                await call()
                spent.append(time.perf_counter() - started)
        work = (self._processor.milliseconds - before) / len(spent)
        self._add(name, median(spent) * 1000, work)

    async def once(self, name: str, call: Call, per: Callable[[Any], float] = lambda _: 1) -> None:
        """Add the times of one call, divided by the size of its result."""
        before, started = self._processor.milliseconds, time.perf_counter()
        result = await call()
        spent = (time.perf_counter() - started) * 1000
        work = self._processor.milliseconds - before
        size = max(per(result), 1)
        self._add(name, spent / size, work / size)

    def add_size(self, megabytes: float) -> None:
        self.rows.append(Row(f"size of the store, {self._stitches}", self.backend, megabytes, "MB"))

    def _add(self, name: str, elapsed: float, work: float) -> None:
        self.rows.append(Row(f"{name}, {self._stitches}", self.backend, elapsed, "ms"))
        self.rows.append(Row(f"{name}, {self._stitches}, processor time", self.backend, work, "ms"))
        _log(f"{name}, {self._stitches}: {elapsed:.4g} ms, {work:.4g} ms of the processor")


async def _measure_store(meter: _Meter, store: Store, known: sessions.Known) -> None:
    await _measure_writes(meter, store)
    for lens in lenses.LENSES:
        questions = list(lenses.questions(lens, meter.backend, known))
        async with store.lens(lens) as views:
            for question in questions:
                await meter.calls(f"{lens}: {question.heading}", lambda sql=question.sql: lenses.answer(views, sql))
    await _measure_retention(meter, store)
    await meter.once("doctor, counts", store.counts)
    heads = await store.threads(limit=_VERIFIED)

    async def verify() -> int:
        report = DoctorReport()
        for head in heads:
            await ThreadCheck(store, head, report).run()
        if not report.ok:
            raise RuntimeError(f"the store is damaged: {report.problems[:3]}")
        return report.stitches

    await meter.once("doctor --verify, per 1,000 stitches", verify, lambda stitches: stitches / 1000)


async def _measure_reports(meter: _Meter, store: Store, known: sessions.Known) -> None:
    """Measure the index of words and the totals of past days, which servers prepare in the background, then reports."""

    async def prepare() -> None:
        while await store.prepare_reports():
            pass

    await meter.once("index of words and totals of all days", prepare)
    for name, call in calls(store, known.typical.thread.user_id).items():
        await meter.calls(name, call)


async def _measure_writes(meter: _Meter, store: Store) -> None:
    head = await store.claim(await store.create())

    async def append() -> None:
        nonlocal head
        message = {"role": "user", "content": "Where is the order?"}
        head = (await store.append(head, [Entry(type="input", message=message)])).head

    async def claim() -> None:
        await store.create(kind="goal", goal="Count the invoices", agent="worker")
        (claimed,) = await store.claim_next(agents=["worker"])
        await store.append(claimed, fields={"status": "completed", "result": {"text": "done"}})

    await meter.calls("append", append, _APPENDS)
    await meter.calls("create, claim and finish", claim, _APPENDS)


async def _measure_retention(meter: _Meter, store: Store) -> None:
    """Archive and purge the oldest threads, and then again, when there is nothing to do."""

    async def oldest(condition: str) -> datetime:
        table = "threads" if meter.backend == "sqlite" else "lockstitch.threads"
        sql = f"SELECT updated_at FROM {table} WHERE {condition} ORDER BY updated_at LIMIT 1 OFFSET {TREES}"
        value = (await store.sql(sql, seconds=60, force=True)).rows[0][0]
        return value if isinstance(value, datetime) else datetime.fromisoformat(value)

    before = await oldest("kind IN ('goal', 'task')")
    await meter.once("archive, per turn", lambda: store.archive(before), float)
    await meter.once("archive without anything to do", lambda: store.archive(before))
    before = await oldest("true")
    await meter.once("purge, per thread", lambda: store.purge(before=before), float)
    await meter.once("purge without anything to do", lambda: store.purge(before=before))


class _Enough(Exception):
    """The copy has as many stitches as are measured."""


async def _measure_copy(meter: _Meter, store: Store, url: str) -> None:
    def check(report: CopyReport) -> None:
        nonlocal copied
        copied = report.stitches
        if copied >= _MOST_COPIED:
            raise _Enough

    copied = 0

    async def copy() -> int:
        async with open_store(url) as target:
            with suppress(_Enough):
                await store.copy_to(target, progress=check)
        return copied

    await meter.once("copy, per 1,000 stitches", copy, lambda number: number / 1000)


async def _measure_backup(meter: _Meter, url: str, places: Places) -> None:
    if url.startswith("sqlite"):
        path = Path(sqlite_path(url))

        def back_up() -> float:
            target = path.with_name("backup.db")
            with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(target)) as copy:
                source.backup(copy)
            size = target.stat().st_size
            target.unlink()
            return size / 1e6
    else:

        def back_up() -> float:
            with psycopg.connect(url) as connection:
                (size,) = connection.execute("SELECT pg_database_size(current_database())").fetchone() or (0,)
            places.dump(url)
            return size / 1e6

    sizes: list[float] = []

    async def call() -> float:
        sizes.append(await asyncio.to_thread(back_up))
        return sizes[-1]

    await meter.once("backup, per MB", call, float)
    meter.add_size(sizes[0])


def _log(text: str, started: float | None = None) -> None:
    spent = "" if started is None else f" after {time.perf_counter() - started:.0f} s"
    print(f"  {text}{spent}", file=sys.stderr, flush=True)
