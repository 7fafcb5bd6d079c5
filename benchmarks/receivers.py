"""The same OTLP requests to Lockstitch, MLflow and Phoenix, each on SQLite: spans per second until all are in tables.

The servers take turns. Each turn starts with an empty database, so that all have the same share of a slow moment of the
machine. The figure of a server is the median of its turns.
"""

import asyncio
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.foreign.otel import SPANS
from benchmarks.peers.trace_servers import SERVERS, TraceServer, stored_spans
from benchmarks.places import Places
from benchmarks.receiving import (
    BODY,
    PATIENCE,
    Bodies,
    Received,
    file_bytes,
    free_port,
    receive,
    received,
    running,
    write_bodies,
)
from benchmarks.report import Measured, Row, at_least
from benchmarks.scale import Scale

BACKENDS = ("sqlite",)

CONCURRENCY = 1
"""One request after the other: with concurrent requests MLflow on SQLite answered 503 (database locked)."""

TIMES = 10
"""Times as fast as the better peer."""
OURS = "Lockstitch"


async def measure(places: Places, backend: str, scale: Scale) -> Measured:
    # The peers need up to ten milliseconds for a span.
    return await asyncio.to_thread(_measure, max(10, scale.received // 25), scale.import_rounds)


def _measure(traces: int, rounds: int) -> Measured:
    peers = {name: server for name, server in SERVERS.items() if server.environment.install()}
    turns: dict[str, list[Received]] = {name: [] for name in (OURS, *peers)}
    for _ in range(rounds):
        for name in turns:
            with TemporaryDirectory(prefix="lockstitch-receivers-") as folder:
                bodies = write_bodies(Path(folder), traces, CONCURRENCY)
                peer = peers.get(name)
                url = f"sqlite:///{folder}/ours.db"
                figures = _turn(peer, Path(folder), bodies) if peer else receive(url, bodies)
            print(_note(name, [figures]), file=sys.stderr, flush=True)
            turns[name].append(figures)
    best = max((_median(turns[name], _recorded) for name in peers), default=None)
    what = f"{traces * SPANS:,} OTLP spans over HTTP, {BODY * SPANS} a request"
    rows = [
        Row(
            f"{what}, in the tables of {name}",
            "sqlite",
            _median(each, _recorded),
            "spans/s",
            floor=best if name == OURS else None,
            aim=at_least(TIMES) if name == OURS and best else None,
        )
        for name, each in turns.items()
    ]
    for figure, unit, read in _FURTHER:
        rows += [Row(f"{figure} of {name}", "sqlite", _median(each, read), unit) for name, each in turns.items()]
    missing = [name for name in SERVERS if name not in peers]
    notes = [_note(name, each) for name, each in turns.items()]
    if missing:
        notes.append(f"not installed: {', '.join(missing)}")
    return Measured(rows, notes)


def _turn(peer: TraceServer, folder: Path, bodies: Bodies) -> Received:
    database, port = folder / peer.environment.name / "peer.db", free_port()
    database.parent.mkdir()
    environment = {**peer.environment.variables, **peer.variables(database, port, free_port())}
    command = peer.command(peer.environment.home / "bin", database, port)
    with running(command, port, peer.health, environment, PATIENCE) as (process, start):
        endpoint = f"http://127.0.0.1:{port}/v1/traces"
        count, disk = partial(stored_spans, database), partial(file_bytes, database)
        return received(process.pid, start, endpoint, bodies, count, disk, *peer.headers)


_FURTHER: tuple[tuple[str, str, Callable[[Received], float]], ...] = (
    ("processor time a span", "µs", lambda figures: figures.processor_us),
    ("disk a span", "bytes", lambda figures: figures.disk_bytes),
    ("memory", "MB", lambda figures: figures.megabytes),
)


def _recorded(figures: Received) -> float:
    return figures.recorded


def _median(turns: list[Received], figure: Callable[[Received], float]) -> float:
    return median(figure(each) for each in turns)


def _note(name: str, turns: list[Received]) -> str:
    acknowledged = _median(turns, lambda figures: figures.acknowledged)
    processor = _median(turns, lambda figures: figures.processor_us)
    p95, megabytes = _median(turns, lambda figures: figures.p95_ms), _median(turns, lambda figures: figures.megabytes)
    disk, of_sent = _median(turns, lambda figures: figures.disk_bytes), _median(turns, lambda turn: turn.disk_of_sent)
    rates = ", ".join(f"{figures.recorded:,.0f}" for figures in turns)
    return (
        f"{name}: {rates} spans/s in its tables, {processor:,.0f} µs of processor time a span; acknowledged "
        f"{acknowledged:,.0f} spans/s, 95 of 100 requests within {p95:,.0f} ms; {megabytes:,.0f} MB of "
        f"memory; {disk:,.0f} bytes on disk a span, {of_sent:.1f} of the sent bytes"
    )
