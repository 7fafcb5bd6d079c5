"""`IngestProcessor`: writes the queued bodies into the record.

It works in small parts. Between two parts it lets the server handle requests, and it waits while clients send, unless
the queue is too long. After an interruption it starts the body again, which does not change stored spans.

A body that kills the process would do so after each restart, because it is the first in the queue. So the bodies of
earlier processes are read one by one, and each attempt is counted before it starts.

No body blocks other bodies. If a part cannot be written, it is halved until the failing spans are alone. Their body
goes to quarantine with the reason. The other spans are in the record. The processor waits only if the store does not
work.
"""

import asyncio
import logging
import os
from collections import Counter, deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Final, NamedTuple
from uuid import UUID

from lockstitch.engine.ports.provider import Usage
from lockstitch.engine.usage import price
from lockstitch.errors import (
    LockstitchError,
    SchemaMismatch,
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreReadOnly,
    Unreadable,
    wire_name_of,
)
from lockstitch.integrations.body_reader import SOURCES, Reader, body_items, source_of
from lockstitch.integrations.spans.batch import BatchOutcome
from lockstitch.integrations.spans.budget import ReadingStopped
from lockstitch.integrations.spans.ingest import SpanIngest
from lockstitch.integrations.spans.reader_process import ReaderFailed, ReaderProcesses
from lockstitch.integrations.spans.span import Attachment, Item, SpanFeedback
from lockstitch.model.side_records import IngestBody
from lockstitch.server.ingest_buffer import IngestBuffer, Waiting
from lockstitch.server.settings import Settings
from lockstitch.store import Store, Where
from lockstitch.store.ingest_queue import WAITING

ITEMS: Final = 500
ITEMS_BYTES: Final = 1 << 20
"""Maximum size of a commit, unless a single span is larger."""

ROWS: Final = 256
"""Maximum number of bodies that are read together."""
SMALL: Final = 4 << 10
"""Maximum size of uncompressed bodies that are read in the event loop, in bytes. Reading them takes at most some
milliseconds."""

BACKLOG: Final = 256 << 10
"""Size of the queue in bytes from which on another process helps to read it."""

APART: Final = 16 << 10
"""Minimum size in bytes of bodies that another process reads. Smaller ones take less time than sending them."""

LARGE: Final = 32 << 10
"""Size of a part in bytes above which its rows are computed in a thread. A smaller one takes about ten milliseconds."""

PAUSE: Final = 0.005
QUIET: Final = 0.01
"""Seconds without a new body after which clients are regarded as idle."""
ANSWER: Final = 5.0
"""Seconds to wait for a response of the store."""

PATIENCE: Final = 0.05
"""Maximum seconds to wait for clients before the next part."""

SWEEP: Final = 10.0
"""Seconds between two searches for bodies of other processes."""

ATTEMPTS: Final = 10
"""Maximum number of process deaths while a body is read. A death can have other causes."""

TRIES: Final = 3
"""Failures of a part, with a store that answers, after which the part is regarded as the cause."""

_PROBLEM: Final = 2_000
_log = logging.getLogger("lockstitch.server")


class _RepeatedFailure(Exception):
    """The store responds but failed repeatedly on the same part."""

    def __init__(self, cause: StoreError) -> None:
        super().__init__(str(cause))
        self.cause = cause


class _Read(NamedTuple):
    item: Item
    reader: Reader
    size: int
    """Estimated size of the item in bytes."""


class IngestProcessor:
    """Processes the ingest queue of a store. Runs as one task."""

    def __init__(self, store: Store, intake: IngestBuffer, settings: Settings) -> None:
        self._store = store
        self._intake = intake
        self._settings = settings
        self._leaving = False
        self._reported: set[str] = set()
        self._warm = False
        self._survived: Counter[UUID] = Counter()
        """Counted attempts on a body that the process survived."""
        self._readers: list[Reader] = []
        self._reading: ReaderProcesses | None = None
        """The process that reads large bodies, from the first of them on."""
        self._bodies = store.table(IngestBody)

    async def run(self) -> None:
        """Process bodies until `stop()`."""
        try:
            while not self._leaving:
                try:
                    await self._read()
                except Exception:
                    # All bodies are still in the store, so the next sweep finds them.
                    _log.exception("Ingest processor failed, restarting")
                    await asyncio.sleep(1.0)
        finally:
            self._end_reading()

    async def _read(self) -> None:
        clock = asyncio.get_running_loop().time
        await self._sweep(older_than=0.0)
        swept = clock()
        while not self._leaving:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(swept + SWEEP):
                    await self._intake.arrived.wait()
            if not self._leaving:
                await self._rows(self._intake.next(ROWS, BATCH_BYTES))
            if clock() - swept >= SWEEP and not self._intake.arrived.is_set():
                # No body has arrived for some seconds, so its memory can be used for something else.
                self._end_reading()
                # Another process may have died with unprocessed bodies.
                await self._sweep(older_than=SWEEP)
                swept = clock()

    def stop(self) -> None:
        """Stop after the current part. The next start processes the remaining bodies."""
        self._leaving = True
        # A reader thread may be reading a large body. It stops at its next step; the body stays queued.
        for reader in self._readers:
            reader.budget.stop()
        self._intake.arrived.set()

    async def _rows(self, rows: list[Waiting]) -> None:
        groups: dict[tuple[str, str], list[IngestBody]] = {}
        try:
            for row in await self._with_bodies(rows):
                groups.setdefault((row.project, row.source), []).append(row)
            for group in groups.values():
                await self._process(group)
        except StoreError as exc:
            self._intake.requeue(rows)
            await self._wait(exc)
            return
        if not self._leaving:
            self._intake.done(rows)

    async def _with_bodies(self, rows: Sequence[Waiting]) -> list[IngestBody]:
        """Return the rows with their bodies, from memory or the store. Another process has processed missing rows."""
        absent = [row.id for row in rows if row.body is None]
        ingest_bodies: dict[UUID, IngestBody] = {}
        if absent:
            where = (Where("id", "in", absent), *WAITING)
            ingest_bodies = {row.id: row for row in await self._bodies.find(*where)}
        bodies = [row.body or ingest_bodies.get(row.id) for row in rows]
        return [body for body in bodies if body is not None]

    async def _process_unqueued(self, older_than: float) -> None:
        """Process the bodies that are not in the queue of this process, one by one, oldest first."""
        until = self._store.clock.now() - timedelta(seconds=older_than)
        after: tuple[UUID] | None = None
        while not self._leaving:
            where = (*WAITING, Where("at", "<=", until))
            rows = await self._bodies.find(*where, order=("id",), after=after, limit=1)
            if not rows:
                return
            row = rows[0]
            after = (row.id,)
            if self._intake.knows(row.id):
                continue
            attempts = int(row.headers.get("attempts") or 0) - self._survived.pop(row.id, 0)
            if attempts >= ATTEMPTS:
                await self._keep(row, [f"The server ended {attempts} times while it read this."])
                continue
            # Load before counting the attempt: a process that dies while loading has not read the body.
            await self._make_ready()
            ingest_body = row.changed(headers={**row.headers, "attempts": attempts + 1})
            await self._bodies.put(ingest_body)
            try:
                done = await self._process([ingest_body])
            except StoreError:
                self._survived[row.id] = 1
                raise
            if not done:
                # The server stops, so the attempt does not count.
                await self._bodies.put(row.changed(headers={**row.headers, "attempts": attempts}))

    async def _process(self, rows: Sequence[IngestBody]) -> bool:
        """Write the bodies of one project and source into the record, and remove them from the queue.

        Returns False if the server stops before the end. If the batch fails, each body is processed alone. A body that
        fails alone goes to quarantine. Raises `StoreError` if the store does not work.
        """
        try:
            return await self._process_together(rows)
        except StoreError:
            raise
        except Exception as exc:
            _log.exception("Ingest of %d bodies failed", len(rows))
            if len(rows) > 1:
                return all([await self._process([row]) for row in rows])
            await self._keep(rows[0], [_reason(exc)])
            return True

    async def _process_together(self, rows: Sequence[IngestBody]) -> bool:
        first = rows[0]
        await self._make_ready()
        try:
            trace_source = source_of(first.source)
        except LockstitchError as exc:
            for row in rows:
                await self._keep(row, [str(exc)])
            return True
        settings = self._settings
        store = self._store.in_project(first.project)
        ingest = SpanIngest(store, trace_source, keep_secrets=settings.keep_secrets, hide=settings.redact)
        if await self._process_apart(ingest, rows):
            await self._bodies.delete(Where("id", "in", [row.id for row in rows]))
            return True
        if self._leaving:
            return False
        readers = self._readers = [Reader(row, settings.body_cost) for row in rows]
        waiting = deque(readers)
        small = all(_is_plain(row) for row in rows) and sum(len(row.body) for row in rows) <= SMALL
        while True:
            await self._yield_to_requests()
            if self._leaving:
                return False
            try:
                part = _part(waiting) if small else await asyncio.to_thread(_part, waiting)
            except ReadingStopped:
                return False
            if not part:
                break
            await self._take(ingest, part)
        done = [reader.row.id for reader in readers if not reader.problems]
        if done:
            await self._bodies.delete(Where("id", "in", done))
        for reader in readers:
            if reader.problems:
                await self._keep(reader.row, reader.problems)
        return True

    async def _process_apart(self, ingest: SpanIngest, rows: Sequence[IngestBody]) -> bool:
        """Write bodies that another process reads. Return False if they must be processed in this process.

        That is the case if they are small, if the other process is not ready yet, and if any part of them cannot be
        read or written.
        """
        if self._reading is None and self._intake.size >= BACKLOG and (os.cpu_count() or 1) > 1:
            self._reading = ReaderProcesses()
        reading = self._reading
        if reading is None or not reading.is_ready or sum(len(row.body) for row in rows) < APART:
            return False
        task = ingest.read_task(partial(body_items, rows, self._settings.body_cost))
        complete = False
        try:
            async with aclosing(reading.parts(task, self._store.clock.now)) as parts:
                async for part in parts:
                    if self._leaving or part.bad or part.outcome.refused:
                        return False
                    _, items = await ingest.write_part(part)
                    if items and (await ingest.write(items)).refused:
                        return False
            complete = True
        except (ReaderFailed, Unreadable) as exc:
            _log.warning("Reading %d bodies in this process: %s", len(rows), exc)
        except StoreError:
            raise
        except Exception as exc:
            _log.warning("Cannot write %d bodies at once: %s", len(rows), _reason(exc))
        finally:
            if not complete:
                # It has parts of this task left.
                self._end_reading()
        return complete

    def _end_reading(self) -> None:
        if self._reading is not None:
            self._reading.end()
            self._reading = None

    async def _make_ready(self) -> None:
        """Load the parsers with the first body, because they take time and memory."""
        if not self._warm:
            self._warm = True
            await asyncio.to_thread(_load, self._store.clock.now())

    async def _take(self, ingest: SpanIngest, part: Sequence[_Read]) -> None:
        """Write a part. If it fails, halve it to isolate the failing items."""
        try:
            outcome = await self._try(ingest, part)
        except Exception as exc:
            if isinstance(exc, StoreError):
                raise
            cause = exc.cause if isinstance(exc, _RepeatedFailure) else exc
            if len(part) == 1:
                _log.warning("Cannot write span %s, its body goes to quarantine", _name(part[0].item), exc_info=cause)
                part[0].reader.problems.append(f"span {_name(part[0].item)}: {_reason(cause)}")
                return
            half = len(part) // 2
            await self._take(ingest, part[:half])
            await self._take(ingest, part[half:])
            return
        if outcome.refused:
            readers = {_name(read.item): read.reader for read in part}
            for span_id, why in outcome.refused:
                readers.get(span_id, part[0].reader).problems.append(why)

    async def _try(self, ingest: SpanIngest, part: Sequence[_Read]) -> BatchOutcome:
        """Write a part. Retry a few times if the store fails but responds.

        Raises `StoreError` if the store does not work. Raises another error if the part itself is the cause.
        """
        large = sum(read.size for read in part) > LARGE
        for tries in range(1, TRIES + 1):
            try:
                return await ingest.write([read.item for read in part], large=large)
            except _BROKEN:
                raise
            except StoreError as exc:
                if not await self._answers():
                    raise
                if tries == TRIES:
                    raise _RepeatedFailure(exc) from exc
                await asyncio.sleep(0.1 * 2**tries)
        raise AssertionError

    async def _answers(self) -> bool:
        """True if the store responds to a query."""
        try:
            async with asyncio.timeout(ANSWER):
                await self._store.ping()
        except (StoreError, TimeoutError):
            return False
        return True

    async def _keep(self, row: IngestBody, problems: Sequence[str]) -> None:
        """Move a body to quarantine."""
        text = "; ".join(dict.fromkeys(problems)).encode(errors="replace").decode().replace("\0", "\ufffd")
        headers = {name: value for name, value in row.headers.items() if name != "attempts"}
        await self._bodies.put(row.changed(problem=text[:_PROBLEM], headers=headers))
        _log.warning("Quarantined a body of %s (%s): %s", row.source, row.id, text[:200])

    async def _yield_to_requests(self) -> None:
        """Let the server handle requests and receive bodies before the next part."""
        await asyncio.sleep(0)
        waited = 0.0
        while waited < PATIENCE and self._intake.idle_for() < QUIET and not self._intake.is_full and not self._leaving:
            await asyncio.sleep(PAUSE)
            waited += PAUSE

    async def _sweep(self, older_than: float) -> None:
        """Process the bodies of earlier processes once the store responds."""
        while not self._leaving:
            try:
                await self._process_unqueued(older_than)
                return
            except StoreError as exc:
                await self._wait(exc)

    async def _wait(self, exc: Exception) -> None:
        """Log that the store is unreachable, full or contended, and wait. The bodies stay in the store."""
        if str(exc) not in self._reported:
            self._reported = {str(exc)}
            _log.warning("Ingest paused: %s", exc)
        await asyncio.sleep(1.0)


BATCH_BYTES: Final = 1 << 20
"""Maximum size of a batch of bodies in bytes. A larger body is processed alone."""

_BROKEN: Final = (StoreFull, StoreReadOnly, StoreDamaged, SchemaMismatch)
"""Errors of a store that responds but cannot write. The body is not the cause."""


def _load(now: datetime) -> None:
    """Load the parsers and the price list."""
    for source in SOURCES:
        with suppress(ImportError):
            source_of(source)
    price("openai", "gpt-4o", Usage(), now)


def _part(waiting: deque[Reader]) -> list[_Read]:
    """Return the next items of the bodies, limited in number and size. Empty at the end of all bodies.

    A part ends with a body if possible, because a trace that is in two parts takes more time.
    """
    part: list[_Read] = []
    size = 0
    while waiting and len(part) < ITEMS and size < ITEMS_BYTES:
        reader = waiting[0]
        items = reader.read(ITEMS - len(part), ITEMS_BYTES - size)
        part += [_Read(item, reader, length) for item, length in items]
        size += sum(length for _, length in items)
        if reader.ended:
            waiting.popleft()
            if len(part) > ITEMS // 2 or size > ITEMS_BYTES // 2:
                break
    return part


def _is_plain(row: IngestBody) -> bool:
    return row.body[:2] != b"\x1f\x8b" and row.body[:4] != b"\x28\xb5\x2f\xfd"


def _reason(exc: Exception) -> str:
    return f"{wire_name_of(exc)}: {exc}"


def _name(item: Item) -> str:
    if isinstance(item, Attachment | SpanFeedback):
        return item.span_id or ""
    return item.get("id", "")


@asynccontextmanager
async def ingest_running(store: Store, intake: IngestBuffer, settings: Settings) -> AsyncGenerator[None]:
    """Process the ingest queue while the context is open. On exit, wait for the current part."""
    digester = IngestProcessor(store, intake, settings)
    task = asyncio.create_task(digester.run(), name="lockstitch-server-digester")
    task.add_done_callback(_log_failure)
    try:
        yield
    finally:
        digester.stop()
        with suppress(asyncio.CancelledError):
            await task


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (exc := task.exception()) is not None:
        _log.error("Ingest processor stopped", exc_info=exc)
