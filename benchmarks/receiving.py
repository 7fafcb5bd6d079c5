"""Traces over HTTP: OTLP spans per second, durable and in the record; memory and start time of the server."""

import asyncio
import http.client
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import psycopg

from benchmarks.foreign import otel
from benchmarks.places import SQL, Places, sqlite_path
from benchmarks.report import Aim, Measured, Row, within
from benchmarks.scale import Scale

BACKENDS = SQL

BODY = 50
"""Traces of ten spans in one request: about the batch of an SDK."""
CONCURRENCY = 4

SPANS_A_SECOND = 8_700
"""Ten times the durable spans per second of the better peer."""
MEGABYTES = 200
SECONDS = 2.0
PATIENCE = 600.0


class Bodies(NamedTuple):
    """The requests: one for warm-up, which is not counted, and all other requests."""

    first: Path
    folder: Path
    spans: int
    """Spans of all other requests."""
    concurrency: int
    """Number of concurrent requests."""

    @property
    def size(self) -> int:
        """Bytes of all other requests."""
        return sum(path.stat().st_size for path in self.folder.iterdir())


class Received(NamedTuple):
    """Results of one server."""

    start: float
    acknowledged: float
    """Spans per second until the last response."""
    recorded: float
    """Spans per second until the last one can be read."""
    p95_ms: float
    megabytes: float
    processor_us: float
    """Processor time of the server per span."""
    disk_bytes: float
    """Growth of the database per span."""
    disk_of_sent: float
    """The same in relation to the bytes that were sent."""


async def measure(places: Places, backend: str, scale: Scale) -> Measured:
    with TemporaryDirectory(prefix="lockstitch-receiving-") as folder:
        bodies = write_bodies(Path(folder), scale.received, CONCURRENCY)
        with places.fresh(backend) as url:
            figures = await asyncio.to_thread(receive, url, bodies)
    spans = bodies.spans
    name = f"{spans:,} OTLP spans over HTTP, {BODY * otel.SPANS} a request"
    durable = Aim("value", ">=", SPANS_A_SECOND) if backend == "sqlite" else None
    rows = [
        Row(f"{name}, durable", backend, figures.acknowledged, "spans/s", aim=durable, concurrency=CONCURRENCY),
        Row(f"{name}, in the record", backend, figures.recorded, "spans/s", concurrency=CONCURRENCY),
        Row("peak memory of the server", backend, figures.megabytes, "MB", aim=within(MEGABYTES)),
        Row("start of `lockstitch serve` until it answers", backend, figures.start, "s", aim=within(SECONDS)),
    ]
    return Measured(rows, [f"95 of 100 requests were answered within {figures.p95_ms:.0f} ms"])


def write_bodies(folder: Path, traces: int, concurrency: int) -> Bodies:
    """Requests as files."""
    bodies = Bodies(folder / "first", folder / "bodies", traces * otel.SPANS, concurrency)
    bodies.first.mkdir()
    bodies.folder.mkdir()
    # Concatenated protobuf messages are one message with all fields.
    first, *requests = [otel.request(trace) for trace in otel.agents(traces + 1)]
    (bodies.first / "first.body").write_bytes(first)
    for number, place in enumerate(range(0, len(requests), BODY)):
        (bodies.folder / f"{number:06}.body").write_bytes(b"".join(requests[place : place + BODY]))
    return bodies


def receive(url: str, bodies: Bodies) -> Received:
    port = free_port()
    arguments = ("-m", "lockstitch", "--store", url, "serve", "--port", str(port))
    with running([sys.executable, *arguments], port, "/info") as (process, start):
        endpoint = f"http://127.0.0.1:{port}/v1/traces"
        return received(process.pid, start, endpoint, bodies, lambda: stitches(url), lambda: disk_bytes(url))


def received(
    pid: int,
    start: float,
    endpoint: str,
    bodies: Bodies,
    count: Callable[[], int],
    disk: Callable[[], int],
    *headers: str,
) -> Received:
    """Send all requests and wait until the spans are in the record. The first request is a warm-up."""
    send(endpoint, bodies.first, 1, *headers)
    _wait_for(count, otel.SPANS)
    started, processor, before = time.perf_counter(), processor_seconds(pid), disk()
    sent_figures = send(endpoint, bodies.folder, bodies.concurrency, *headers)
    _wait_for(count, otel.SPANS + bodies.spans)
    recorded, processor = time.perf_counter() - started, processor_seconds(pid) - processor
    grown = disk() - before
    return Received(
        start=start,
        acknowledged=bodies.spans / sent_figures["seconds"],
        recorded=bodies.spans / recorded,
        p95_ms=sent_figures["p95_ms"],
        megabytes=peak_of(pid),
        processor_us=1e6 * processor / bodies.spans,
        disk_bytes=grown / bodies.spans,
        disk_of_sent=grown / bodies.size,
    )


def _wait_for(count: Callable[[], int], expected: int) -> None:
    until = time.perf_counter() + PATIENCE
    while (current := count()) < expected:
        if time.perf_counter() > until:
            raise RuntimeError(f"{current} of {expected} spans are there")
        time.sleep(0.05)


def send(url: str, folder: Path, concurrency: int, *headers: str) -> dict[str, float]:
    """Send all requests from another process. Return its output."""
    command = [sys.executable, "-m", "benchmarks.processes.send", url, str(folder), str(concurrency), *headers]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode:
        raise RuntimeError(f"not everything was taken: {process.stderr.strip().splitlines()[-1]}")
    return json.loads(process.stdout)


def stitches(url: str) -> int:
    """Return the number of rows of the record, with a separate connection."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(sqlite_path(url))) as connection:
            return connection.execute("SELECT count(*) FROM stitch_rows").fetchone()[0]
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute("SELECT count(*) FROM lockstitch.stitches").fetchone()
        assert row is not None
        return row[0]


def disk_bytes(url: str) -> int:
    """Return the bytes that a database uses, with a separate connection."""
    if url.startswith("sqlite"):
        return file_bytes(sqlite_path(url))
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute("SELECT pg_database_size(current_database())").fetchone()
        assert row is not None
        return row[0]


def file_bytes(database: Path | str) -> int:
    """Return the bytes of the used pages of a SQLite file, with those that are still in its write-ahead log."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=30)) as connection:
        size, used, free = (
            connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_size", "page_count", "freelist_count")
        )
    return size * (used - free)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@contextmanager
def running(
    command: list[str], port: int, path: str, environment: dict[str, str] | None = None, patience: float = 120.0
) -> Iterator[tuple[subprocess.Popen[bytes], float]]:
    """Start a server. Return it with the seconds until its first response."""
    started = time.perf_counter()
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(
        command, stdout=quiet, stderr=quiet, env={**os.environ, **(environment or {})}, start_new_session=True
    )
    try:
        while not _answers(port, path):
            if process.poll() is not None or time.perf_counter() - started > patience:
                raise RuntimeError(f"{command[0]} does not answer")
            time.sleep(0.01)
        yield process, time.perf_counter() - started
    finally:
        # A new session, because some servers have several processes.
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def peak_of(pid: int) -> float:
    """Return the peak memory of a process and its children, in MB."""
    return _peak(pid) + sum(map(peak_of, _children(pid)))


def processor_seconds(pid: int) -> float:
    """Return the processor time of a process and its children, also of those that ended."""
    # The name of the program comes first, in parentheses, and may contain spaces.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    own = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return own + sum(map(processor_seconds, _children(pid)))


def _children(pid: int) -> list[int]:
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for children in lists for child in children.read_text().split()]


def _peak(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0


def _answers(port: int, path: str) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status < 500
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
