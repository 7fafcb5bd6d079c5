"""A lake: the speed of the first sync and of one without changes, its size, and aggregates through a lens.

`--only lake --stitches 10000000` needs 15 GB of disk and half an hour.
"""

import asyncio
import os
import sqlite3
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from benchmarks.growth import fill
from benchmarks.places import Places
from benchmarks.report import Measured, Row, at_least, within
from benchmarks.scale import Scale
from lockstitch import sync
from lockstitch.lake.query import LakeReader
from lockstitch.lake.sync import SyncReport
from lockstitch.lake.sync import sync as sync_lake
from lockstitch.lake.target import Lake

T = TypeVar("T")

BACKENDS = ("sqlite",)

PER_SECOND = 50_000
"""Stitches that a first sync writes."""

SHARE = 0.35
"""Bytes of the lake per byte of the file of SQLite."""

SECONDS = 2.0
"""Time of an aggregate over all stitches."""

AGGREGATES = {
    "calls and tokens per model": "SELECT model_name, count(*), sum(input_tokens), sum(output_tokens) "
    "FROM llm_calls GROUP BY model_name",
    "calls per day": "SELECT date_trunc('day', created_at) AS day, count(*) FROM llm_calls GROUP BY day",
    "slowest tools": "SELECT tool_name, count(*), avg(execution_latency_ms) FROM tool_calls GROUP BY tool_name",
    "tokens and cost of runs per model": "SELECT model_name, count(*), sum(total_tokens), sum(total_cost) "
    "FROM agent_runs GROUP BY model_name",
}


async def measure(places: Places, backend: str, scale: Scale) -> Measured:
    with places.fresh(backend) as url, tempfile.TemporaryDirectory() as folder:
        await fill(url, scale.looked_at)
        await places.settle(url)
        return await asyncio.to_thread(_measured, url, backend, os.path.join(folder, "lake"))


def _measured(url: str, backend: str, lake: str) -> Measured:
    before = time.process_time()
    report, first = _timed(lambda: _sync(url, lake))
    work = time.process_time() - before
    _, again = _timed(lambda: _sync(url, lake))
    rows = [
        Row("first sync", backend, report.stitches / first, "stitches/s", PER_SECOND, at_least(1)),
        Row("first sync, processor time", backend, work / report.stitches * 1e6, "µs"),
        Row(f"sync of {report.threads} threads without changes", backend, again, "s"),
    ]
    if backend == "sqlite":
        size = _file_size(url) or 1
        share = sum(file.stat().st_size for file in Path(lake).rglob("*") if file.is_file()) / size
        rows.append(Row("bytes of the lake per byte of the file", backend, share, "", aim=within(SHARE)))
    _, joined = _timed(lambda: Lake(lake).compact(0.0))
    rows.append(Row("compact", backend, joined, "s"))
    with LakeReader(lake, "langsmith") as reader:
        for name, sql in AGGREGATES.items():
            seconds = min(_timed(lambda sql=sql: reader.query(sql, seconds=600))[1] for _ in range(3))
            rows.append(Row(f"{name}, {report.stitches:,} stitches", backend, seconds, "s", aim=within(SECONDS)))
    return Measured(rows, [])


def _sync(url: str, lake: str) -> SyncReport:
    with sync.open_store(url, create=False) as store, store.lens("three_table") as connection:
        return sync_lake(connection, lake)


def _timed(act: Callable[[], T]) -> tuple[T, float]:
    start = time.perf_counter()
    result = act()
    return result, time.perf_counter() - start


def _file_size(url: str) -> int:
    path = url.removeprefix("sqlite:///")
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return os.path.getsize(path)
