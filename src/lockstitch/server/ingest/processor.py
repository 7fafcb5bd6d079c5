"""The digester: reads what has arrived into the record, beside everything else that a server does.

It works in small parts and gives way: to requests between two of them, and to senders while they send, unless too much
waits already. Whatever it is stopped at is begun again, which changes nothing that is there.

A body that ends the process would do so for ever, since it is the first to be read after a restart. So what was left by
an earlier process is read one by one, and each attempt is counted before it is made.

No body blocks the others. If a part cannot be written, it is halved until the spans that fail are alone. Their body
goes to quarantine with the reason. Everything else of it is in the record. Only a store that does not work is waited
for.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
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
    wire_name_of,
)
from lockstitch.integrations.spans.batch import BatchOutcome
from lockstitch.integrations.spans.budget import ReadingStopped
from lockstitch.integrations.spans.ingest import SpanIngest
from lockstitch.integrations.spans.span import Attachment, Item, SpanFeedback
from lockstitch.model.side_records import IngestBody
from lockstitch.server.ingest.body_reader import SOURCES, Reader, bridge_of
from lockstitch.server.ingest_buffer import IngestBuffer, Waiting
from lockstitch.server.settings import Settings
from lockstitch.store import Store, Where
from lockstitch.store.ingest_queue import WAITING

ITEMS: Final = 64
ITEMS_BYTES: Final = 256 << 10
"""What one commit carries at most, unless one span alone has more: some ten milliseconds of the event loop."""

ROWS: Final = 32
SMALL: Final = 4 << 10
"""Bytes of bodies that are read in the thread of the event loop, if they are not packed. Reading costs at most some
milliseconds for them, whatever they hold."""

LARGE: Final = 64 << 10
"""Bytes of a part whose secrets are looked for beside the event loop."""

PAUSE: Final = 0.005
QUIET: Final = 0.01
"""Seconds without a new body after which senders are not being kept waiting."""
ANSWER: Final = 5.0
"""Seconds in which a store that works answers."""

PATIENCE: Final = 0.05
"""Seconds that it gives way to senders at most before the next part."""

SWEEP: Final = 10.0
"""Seconds between two looks for what other processes have left."""

ATTEMPTS: Final = 10
"""How often a body may be under way when the process ends, which may have had other reasons for it."""

TRIES: Final = 3
"""Failures of a part, with a store that answers, after which the part is regarded as the cause."""

_PROBLEM: Final = 2_000
_log = logging.getLogger("lockstitch.server")


class _Blamed(Exception):
    """A store that answers failed again and again on the same part."""

    def __init__(self, cause: StoreError) -> None:
        super().__init__(str(cause))
        self.cause = cause


class _Read(NamedTuple):
    item: Item
    reader: Reader
    weight: int
    """About how many bytes the item has."""


class IngestProcessor:
    """Reads the arrivals of one store."""

    def __init__(self, store: Store, intake: IngestBuffer, settings: Settings) -> None:
        self._store = store
        self._intake = intake
        self._settings = settings
        self._leaving = False
        self._reported: set[str] = set()
        self._warm = False
        self._survived: Counter[UUID] = Counter()
        """Attempts on a body that were counted and that did not end the process."""
        self._readers: list[Reader] = []
        self._bodies = store.table(IngestBody)

    async def run(self) -> None:
        """Read until told to leave."""
        while not self._leaving:
            try:
                await self._read()
            except Exception:
                # All bodies are still in the store. The next sweep finds them.
                _log.exception("Reading arrivals failed; it starts again")
                await asyncio.sleep(1.0)

    async def _read(self) -> None:
        clock = asyncio.get_running_loop().time
        await self._sweep(older_than=0.0)
        swept = clock()
        while not self._leaving:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(swept + SWEEP):
                    await self._intake.arrived.wait()
            if not self._leaving:
                await self._rows(self._intake.next(ROWS, IN_ONE_GO))
            if clock() - swept >= SWEEP and not self._intake.arrived.is_set():
                # Another process may have ended without having read what it took.
                await self._sweep(older_than=SWEEP)
                swept = clock()

    def leave(self) -> None:
        """Have it end after the part that it is in; what is left is read after the next start."""
        self._leaving = True
        # A reader thread may be in the middle of a large body. It stops at its next step, and the body waits.
        for reader in self._readers:
            reader.budget.stop()
        self._intake.arrived.set()

    async def _rows(self, rows: list[Waiting]) -> None:
        groups: dict[tuple[str, str], list[IngestBody]] = {}
        try:
            for row in await self._with_bodies(rows):
                groups.setdefault((row.project, row.source), []).append(row)
            for group in groups.values():
                await self._digest(group)
        except StoreError as exc:
            self._intake.requeue(rows)
            await self._wait(exc)
            return
        if not self._leaving:
            self._intake.done(rows)

    async def _with_bodies(self, rows: Sequence[Waiting]) -> list[IngestBody]:
        """The rows with their bodies, from memory where they are; one that is gone was read by another process."""
        absent = [row.id for row in rows if row.body is None]
        found: dict[UUID, IngestBody] = {}
        if absent:
            where = (Where("id", "in", absent), *WAITING)
            found = {row.id: row for row in await self._bodies.find(*where)}
        bodies = [row.body or found.get(row.id) for row in rows]
        return [body for body in bodies if body is not None]

    async def _left_behind(self, older_than: float) -> None:
        """Read what no process of now has at hand, one by one, the oldest first."""
        until = self._store.clock.now() - timedelta(seconds=older_than)
        after: tuple[UUID] | None = None
        while not self._leaving:
            where = (*WAITING, Where("at", "<=", until))
            found = await self._bodies.find(*where, order=("id",), after=after, limit=1)
            if not found:
                return
            row = found[0]
            after = (row.id,)
            if self._intake.knows(row.id):
                continue
            attempts = int(row.headers.get("attempts") or 0) - self._survived.pop(row.id, 0)
            if attempts >= ATTEMPTS:
                await self._keep(row, [f"The server ended {attempts} times while it read this."])
                continue
            # Before the attempt is counted: a process that is ended while it still loads has not tried anything.
            await self._make_ready()
            counted = row.changed(headers={**row.headers, "attempts": attempts + 1})
            await self._bodies.put(counted)
            try:
                done = await self._digest([counted])
            except StoreError:
                self._survived[row.id] = 1
                raise
            if not done:
                # The server is stopped, which is not the fault of the body.
                await self._bodies.put(row.changed(headers={**row.headers, "attempts": attempts}))

    async def _digest(self, rows: Sequence[IngestBody]) -> bool:
        """Write the bodies of one project and source into the record, and remove them from the queue.

        Returns False if the server is stopped before. If it fails as a whole, each body is read alone. One that fails
        alone goes to quarantine. Raises `StoreError` if the store does not work.
        """
        try:
            return await self._digest_together(rows)
        except StoreError:
            raise
        except Exception as exc:
            _log.exception("Arrivals cannot be read")
            if len(rows) > 1:
                return all([await self._digest([row]) for row in rows])
            await self._keep(rows[0], [_reason(exc)])
            return True

    async def _digest_together(self, rows: Sequence[IngestBody]) -> bool:
        first = rows[0]
        await self._make_ready()
        try:
            bridge = bridge_of(first.source)
        except LockstitchError as exc:
            for row in rows:
                await self._keep(row, [str(exc)])
            return True
        settings = self._settings
        store = self._store.in_project(first.project)
        ingest = SpanIngest(store, bridge, keep_secrets=settings.keep_secrets, hide=settings.redact)
        readers = self._readers = [Reader(row, settings.body_cost) for row in rows]
        waiting = deque(readers)
        small = all(_is_plain(row) for row in rows) and sum(len(row.body) for row in rows) <= SMALL
        while True:
            await self._give_way()
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

    async def _make_ready(self) -> None:
        """Load what reads bodies: with the first of them, since it takes a while, and some memory."""
        if not self._warm:
            self._warm = True
            await asyncio.to_thread(_load, self._store.clock.now())

    async def _take(self, ingest: SpanIngest, part: Sequence[_Read]) -> None:
        """Write a part. What cannot be written is found by halves, so that nothing else suffers from it."""
        try:
            outcome = await self._try(ingest, part)
        except Exception as exc:
            if isinstance(exc, StoreError):
                raise
            cause = exc.cause if isinstance(exc, _Blamed) else exc
            if len(part) == 1:
                _log.warning("A span of an arrival cannot be written", exc_info=cause)
                part[0].reader.problems.append(f"span {_name(part[0].item)}: {_reason(cause)}")
                return
            half = len(part) // 2
            await self._take(ingest, part[:half])
            await self._take(ingest, part[half:])
            return
        if outcome.refused:
            readers = {_name(each.item): each.reader for each in part}
            for span_id, why in outcome.refused:
                readers.get(span_id, part[0].reader).problems.append(why)

    async def _try(self, ingest: SpanIngest, part: Sequence[_Read]) -> BatchOutcome:
        """Write a part, a few times if the store fails and yet answers.

        Raises `StoreError` if the store does not work. Raises another error if the part itself is the cause.
        """
        large = sum(each.weight for each in part) > LARGE
        for tries in range(1, TRIES + 1):
            try:
                return await ingest.write([each.item for each in part], large=large)
            except _BROKEN:
                raise
            except StoreError as exc:
                if not await self._answers():
                    raise
                if tries == TRIES:
                    raise _Blamed(exc) from exc
                await asyncio.sleep(0.1 * 2**tries)
        raise AssertionError

    async def _answers(self) -> bool:
        """True if the store answers a question, so that it is not the store that fails."""
        try:
            async with asyncio.timeout(ANSWER):
                await self._store.ping()
        except (StoreError, TimeoutError):
            return False
        return True

    async def _keep(self, row: IngestBody, problems: Sequence[str]) -> None:
        """Put a body into quarantine."""
        said = "; ".join(dict.fromkeys(problems)).encode(errors="replace").decode().replace("\0", "\ufffd")
        headers = {name: value for name, value in row.headers.items() if name != "attempts"}
        await self._bodies.put(row.changed(problem=said[:_PROBLEM], headers=headers))
        _log.warning("A body of %s (%s) is in quarantine: %s", row.source, row.id, said[:200])

    async def _give_way(self) -> None:
        """Let requests be answered, and whoever sends go on sending, before the next part."""
        await asyncio.sleep(0)
        waited = 0.0
        while waited < PATIENCE and self._intake.idle_for() < QUIET and not self._intake.is_full and not self._leaving:
            await asyncio.sleep(PAUSE)
            waited += PAUSE

    async def _sweep(self, older_than: float) -> None:
        """Read what was left behind, as soon as the store lets one."""
        while not self._leaving:
            try:
                await self._left_behind(older_than)
                return
            except StoreError as exc:
                await self._wait(exc)

    async def _wait(self, exc: Exception) -> None:
        """The store is away, full or contended. Nothing is lost by waiting."""
        if str(exc) not in self._reported:
            self._reported = {str(exc)}
            _log.warning("Arrivals wait: %s", exc)
        await asyncio.sleep(1.0)


IN_ONE_GO: Final = 1 << 20
"""Bytes of bodies that are taken together; a larger one comes alone."""

_BROKEN: Final = (StoreFull, StoreReadOnly, StoreDamaged, SchemaMismatch)
"""Errors of a store that answers and cannot be written. They are never the fault of a body."""


def _load(now: datetime) -> None:
    """Load the parsers and the list of prices."""
    for source in SOURCES:
        with suppress(ImportError):
            bridge_of(source)
    price("openai", "gpt-4o", Usage(), now)


def _part(waiting: deque[Reader]) -> list[_Read]:
    """The next items of these bodies, a bounded number of them; none at the end of all."""
    part: list[_Read] = []
    size = 0
    while waiting and len(part) < ITEMS and size < ITEMS_BYTES:
        item = waiting[0].next()
        if item is None:
            waiting.popleft()
            continue
        part.append(_Read(item, waiting[0], waiting[0].weight))
        size += waiting[0].weight
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
    """While this is open, arrivals are read. Leaving waits for the part that is being written."""
    digester = IngestProcessor(store, intake, settings)
    task = asyncio.create_task(digester.run(), name="lockstitch-server-digester")
    task.add_done_callback(_told)
    try:
        yield
    finally:
        digester.leave()
        with suppress(asyncio.CancelledError):
            await task


def _told(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (exc := task.exception()) is not None:
        _log.error("Arrivals are not read any more", exc_info=exc)
