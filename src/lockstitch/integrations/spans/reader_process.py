"""`ReaderProcesses`: read spans and compute their rows in other processes, while this one writes.

Reading and computing take more processor time than writing. Each process reads its share of the records of a source: if
there are two, one reads the first stretch, the other one the second, the first one the third. A part is computed in two
steps. First the process reads the spans and sends the names of their traces. The caller answers with those names that
earlier parts have. Then the process computes the rows of all other traces. So the order of the parts does not depend on
the number of processes. Each process is one part ahead of the caller. It ends with its caller. Both sides exchange
pickled objects, each after its length.
"""

import asyncio
import gc
import logging
import pickle
import signal
import struct
import subprocess
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from logging.handlers import BufferingHandler
from typing import IO, Any, Final, NamedTuple

import orjson

from lockstitch.errors import Conflict, LockstitchError, Refused, Unreadable
from lockstitch.integrations.spans.batch import Batch, BatchOutcome, sort
from lockstitch.integrations.spans.new_traces import NewTraces, prepare
from lockstitch.integrations.spans.rows import MirrorIds
from lockstitch.integrations.spans.share import STRETCH, Share
from lockstitch.integrations.spans.span import Attachment, Item, SpanData, SpanFeedback, TraceSource, is_root, size_of
from lockstitch.model.record import new_dict, new_list
from lockstitch.store.writes.mirrors import Encoder

ITEMS: Final = 500
"""Maximum number of spans of a part."""
ITEMS_BYTES: Final = 2 << 20
"""Maximum bytes of content of a part. A single larger span is still a part."""
_REMEMBERED: Final = 20_000
"""Number of the last traces and conversations that are known."""


OnBad = Callable[[LockstitchError], None]
"""Called with the error of a part that cannot be read. Reading continues after that part."""

Items = Callable[[OnBad, Share], Iterator[Item]]
"""Reads a share of the items of a file or of stored bodies. It is pickled and sent to the process."""


@dataclass(slots=True)
class ReadTask:
    """The items to read, and the project and the store that they are for."""

    items: Items
    source: TraceSource
    project: str
    encode: Encoder
    keep_secrets: bool
    hide: frozenset[str]
    share: Share = field(default_factory=Share)
    """The share of the process that gets the task."""


@dataclass(slots=True)
class Part:
    """Some items of a task."""

    new: NewTraces | None
    """The rows of traces that no earlier part has. None if they must be written in the general way."""
    outcome: BatchOutcome
    """The ids of the spans of `new`, and the spans of the part that cannot be stored."""
    serialized_spans: bytes
    """The spans of `new`: JSON, or pickled if they contain a number that orjson does not write."""
    later: list[SpanData]
    """Spans of traces that earlier parts have."""
    others: list[Attachment | SpanFeedback]
    bad: list[str]
    """Errors of parts that cannot be read."""
    ends_stretch: bool
    children: dict[str, set[str]] = field(default_factory=new_dict)
    """All spans of complete traces, if the source lists them."""
    logged: list[tuple[str, int, str]] = field(default_factory=new_list)
    """Log messages: logger, level and text."""

    def spans(self) -> list[SpanData]:
        """Return the spans of `new`. They are needed only if the rows cannot be written at once."""
        serialized = self.serialized_spans
        return orjson.loads(serialized) if serialized.startswith(b"[") else pickle.loads(serialized)


class ReaderFailed(Exception):
    """A process ended without a result, or has an error that it does not expect."""


class _Names(NamedTuple):
    """The traces and conversations of the spans that a process has read for a part."""

    names: set[str]
    ends_stretch: bool


class _End(NamedTuple):
    """The end of a task."""

    error: str | None = None
    """The error that ends the reading."""
    unexpected: str | None = None


class ReaderProcesses:
    """Processes that read and compute. One task at a time. It needs a running event loop."""

    def __init__(self, number: int = 1, stretch: int = STRETCH) -> None:
        self._processes = [_Process() for _ in range(number)]
        self._stretch = stretch

    @property
    def is_ready(self) -> bool:
        """True if the processes have started and wait for a task."""
        return all(process.starting.done() for process in self._processes)

    @property
    def pids(self) -> list[int]:
        """The ids of the processes."""
        return [process.pid for process in self._processes]

    async def parts(self, task: ReadTask, now: Callable[[], datetime]) -> AsyncGenerator[Part]:
        """Yield the parts of a task in order. Raises `Unreadable` if an error ends the reading, and `ReaderFailed`.

        A caller that closes the generator before its end must end the processes.
        """
        number = len(self._processes)
        for index, process in enumerate(self._processes):
            await process.starting
            await process.send(replace(task, share=Share(index, number, self._stretch)))
        turns = _Turns(number)
        exchanges = [_Exchange(process, index, turns, now) for index, process in enumerate(self._processes)]
        error: str | None = None
        remaining = deque(exchanges)
        try:
            while remaining:
                part = await remaining[0].next()
                if isinstance(part, _End):
                    if part.unexpected is not None:
                        raise ReaderFailed(part.unexpected)
                    # All processes find the same error.
                    error = error or part.error
                    remaining.popleft()
                    continue
                for name, level, text in part.logged:
                    logging.getLogger(name).log(level, text)
                if part.ends_stretch:
                    remaining.rotate(-1)
                yield part
        finally:
            for exchange in exchanges:
                exchange.end()
        if error is not None:
            raise Unreadable(error)

    def end(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.end()


class _Turns:
    """The order of the stretches, and the names that earlier parts have."""

    def __init__(self, number: int) -> None:
        self._order = deque(range(number))
        self._changed = asyncio.Condition()
        self._sent: dict[str, None] = {}
        """The last traces and conversations that were read."""

    async def known(self, index: int, read: _Names) -> set[str]:
        """Wait until all earlier stretches are read. Return the names that they have, too."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._order[0] == index)
            repeated = {name for name in read.names if name in self._sent}
            self._sent.update(dict.fromkeys(read.names))
            while len(self._sent) > _REMEMBERED:
                del self._sent[next(iter(self._sent))]
            if read.ends_stretch:
                self._order.rotate(-1)
                self._changed.notify_all()
        return repeated

    async def leave(self, index: int) -> None:
        """Take a process that has read everything out of the order."""
        async with self._changed:
            self._order.remove(index)
            self._changed.notify_all()


class _Exchange:
    """The exchange with one process during a task. It continues while the caller writes a part of another process."""

    def __init__(self, process: "_Process", index: int, turns: _Turns, now: Callable[[], datetime]) -> None:
        self._process = process
        self._parts = asyncio.Queue[Part | _End](1)
        self._task = asyncio.create_task(self._run(index, turns, now))

    async def next(self) -> Part | _End:
        """Return the next part."""
        return await self._parts.get()

    def end(self) -> None:
        self._task.cancel()

    async def _run(self, index: int, turns: _Turns, now: Callable[[], datetime]) -> None:
        try:
            while isinstance(read := await self._process.receive(), _Names):
                repeated = await turns.known(index, read)
                await self._process.send((repeated, now()))
                await self._parts.put(await self._process.receive())
            await turns.leave(index)
        except ReaderFailed as exc:
            read = _End(unexpected=str(exc))
        await self._parts.put(read)


class _Process:
    """One process."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"from {__name__} import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.starting = asyncio.create_task(self.receive())

    @property
    def pid(self) -> int:
        return self._process.pid

    async def send(self, value: object) -> None:
        await asyncio.to_thread(self._write, pickle.dumps(value, pickle.HIGHEST_PROTOCOL))

    def _write(self, content: bytes) -> None:
        assert self._process.stdin is not None
        try:
            _write(self._process.stdin, content)
        except OSError as exc:
            raise ReaderFailed(f"The process that reads spans ended with {self._process.wait()}.") from exc

    async def receive(self) -> Any:
        assert self._process.stdout is not None
        content = await asyncio.to_thread(_read, self._process.stdout)
        if content is None:
            raise ReaderFailed(f"The process that reads spans ended with {self._process.wait()}.")
        return pickle.loads(content)

    def end(self) -> None:
        self._process.kill()
        self.starting.cancel()
        with suppress(OSError), self._process:
            pass


def _write(pipe: IO[bytes], content: bytes) -> None:
    pipe.write(struct.pack(">Q", len(content)))
    pipe.write(content)
    pipe.flush()


def _read(pipe: IO[bytes]) -> bytes | None:
    head = pipe.read(8)
    if len(head) < 8:
        return None
    (length,) = struct.unpack(">Q", head)
    content = pipe.read(length)
    return content if len(content) == length else None


# The process


def main() -> None:
    """Read tasks from standard input until it ends. Write their parts to standard output."""
    requests, parts = sys.stdin.buffer, sys.stdout.buffer
    # An interrupt reaches the caller too, which ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Nothing else may write to the pipe.
    sys.stdout = sys.stderr
    log = BufferingHandler(1_000)
    logging.getLogger("lockstitch").addHandler(log)
    # Spans are trees. Searching thousands of them for cycles takes a tenth of the time.
    gc.freeze()
    gc.set_threshold(50_000)
    _write(parts, pickle.dumps("ready"))
    while (content := _read(requests)) is not None:
        _answer(pickle.loads(content), requests, parts, log)


def _answer(task: ReadTask, requests: IO[bytes], parts: IO[bytes], log: BufferingHandler) -> None:
    """Send the parts of a task, each after its names."""
    reading = _Reading(task)
    end = _End()
    try:
        for gathered in reading.gathered():
            _send(parts, gathered.names)
            repeated, now = _request(requests)
            part = reading.part(gathered, repeated, now)
            part.logged = [(record.name, record.levelno, record.getMessage()) for record in log.buffer]
            log.buffer.clear()
            _send(parts, part)
    except (LockstitchError, OSError) as exc:
        end = _End(error=str(exc))
    except Exception as exc:
        end = _End(unexpected=f"{type(exc).__name__}: {exc}")
    _send(parts, end)


def _send(pipe: IO[bytes], value: object) -> None:
    _write(pipe, pickle.dumps(value, pickle.HIGHEST_PROTOCOL))


def _request(requests: IO[bytes]) -> Any:
    """Return the next request. Ends the process if the caller has ended."""
    content = _read(requests)
    if content is None:
        sys.exit()
    return pickle.loads(content)


class _Gathered(NamedTuple):
    """The spans of a part before their rows are computed."""

    batch: Batch
    others: list[Attachment | SpanFeedback]
    outcome: BatchOutcome
    children: dict[str, set[str]]
    bad: list[str]
    ends_stretch: bool

    @property
    def names(self) -> _Names:
        spans = self.batch.spans.values()
        names = {span["trace_id"] for span in spans} | {thread for span in spans if (thread := span.get("thread_id"))}
        return _Names(names, self.ends_stretch)


class _Reading:
    """The state of one task."""

    def __init__(self, task: ReadTask) -> None:
        self._task = task
        self._names = MirrorIds(task.project, task.source.source)
        self._bad: list[str] = []

    def gathered(self) -> Iterator[_Gathered]:
        """Yield the spans of the parts. Items before an error that ends the reading are yielded first."""
        share = self._task.share
        stretch = share.index
        items: list[Item] = []
        size = 0
        error: Exception | None = None
        reading = self._task.items(lambda exc: self._bad.append(str(exc)), share)
        while True:
            try:
                item = next(reading, None)
            except (LockstitchError, OSError) as exc:
                item, error = None, exc
            if item is None:
                break
            while stretch < share.stretch:
                # A stretch without items has an empty part.
                yield self._gather(items, ends_stretch=True)
                items, size = [], 0
                stretch += share.count
            if len(items) >= ITEMS or size >= ITEMS_BYTES:
                yield self._gather(items, ends_stretch=False)
                items, size = [], 0
            items.append(item)
            size += size_of(item)
        if items or self._bad:
            yield self._gather(items, ends_stretch=True)
        if error is not None:
            raise error

    def _gather(self, items: list[Item], *, ends_stretch: bool) -> _Gathered:
        outcome = BatchOutcome()
        batch, others = sort(items, outcome, keep_secrets=self._task.keep_secrets, hide=self._task.hide)
        children: dict[str, set[str]] = {}
        for item in items:
            add_children(item, children)
        bad, self._bad = self._bad, []
        return _Gathered(batch, others, outcome, children, bad, ends_stretch)

    def part(self, gathered: _Gathered, repeated: set[str], now: datetime) -> Part:
        """Return the part with the rows of the traces that are not repeated."""
        new, later = Batch(), list[SpanData]()
        for span_id, span in gathered.batch.spans.items():
            if span["trace_id"] in repeated or span.get("thread_id") in repeated:
                later.append(span)
            else:
                new.spans[span_id] = span
        outcome = gathered.outcome
        outcome.spans -= {span["id"] for span in later}
        return Part(
            self._prepared(new, now),
            outcome,
            _serialized(list(new.spans.values())),
            later,
            gathered.others,
            gathered.bad,
            gathered.ends_stretch,
            gathered.children,
        )

    def _prepared(self, batch: Batch, now: datetime) -> NewTraces | None:
        if not batch.spans:
            return None
        task = self._task
        try:
            return prepare(batch, task.project, task.source, self._names, task.encode, now)
        except (Conflict, Refused, RecursionError):
            return None


def _serialized(spans: list[SpanData]) -> bytes:
    try:
        # Four times as fast as pickling.
        return orjson.dumps(spans)
    except TypeError:
        return pickle.dumps(spans, pickle.HIGHEST_PROTOCOL)


def add_children(item: Item, children: dict[str, set[str]]) -> None:
    """Add the spans that a root lists. Its trace is complete then."""
    if isinstance(item, Attachment | SpanFeedback) or not item.get("children") or not is_root(item):
        return
    children.setdefault(item["trace_id"], {item["id"]}).update(item.get("children") or ())


if __name__ == "__main__":
    main()
