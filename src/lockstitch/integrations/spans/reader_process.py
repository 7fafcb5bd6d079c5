"""`ReaderProcess`: read spans and compute their rows in another process, while this one writes.

Reading and computing take more processor time than writing. The other process is always one part ahead: it computes the
next part while the caller writes the last one. It ends with its caller. Both sides exchange pickled objects, each after
its length.
"""

import asyncio
import logging
import pickle
import signal
import struct
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from logging.handlers import BufferingHandler
from typing import IO, Any, Final, NamedTuple

import orjson

from lockstitch.errors import Conflict, LockstitchError, Refused, Unreadable
from lockstitch.integrations.spans.batch import Batch, BatchOutcome, sort
from lockstitch.integrations.spans.new_traces import NewTraces, prepare
from lockstitch.integrations.spans.rows import MirrorIds
from lockstitch.integrations.spans.span import Attachment, Item, SpanData, SpanFeedback, TraceSource, is_root
from lockstitch.store.writes.mirrors import Encoder

ITEMS: Final = 1_000
"""Maximum number of spans of a part."""
ITEMS_BYTES: Final = 2 << 20
"""Maximum bytes of content of a part. A single larger span is still a part."""
_REMEMBERED: Final = 20_000
"""Number of the last traces and threads that are known to be sent already."""


OnBad = Callable[[LockstitchError], None]
"""Called with the error of a part that cannot be read. Reading continues after that part."""

Items = Callable[[OnBad], Iterator[Item]]
"""Reads the items of a file or of stored bodies. It is pickled and sent to the process."""


@dataclass(slots=True)
class ReadTask:
    """The items to read, and the project and the store that they are for."""

    items: Items
    source: TraceSource
    project: str
    encode: Encoder
    keep_secrets: bool
    hide: frozenset[str]


@dataclass(slots=True)
class Part:
    """Some items of a task."""

    new: NewTraces | None
    """The rows of traces that no earlier part has. None if they must be written in the general way."""
    outcome: BatchOutcome
    """The ids of the spans of `new`, and the spans of the part that cannot be stored."""
    later: list[SpanData]
    """Spans of traces that earlier parts have."""
    others: list[Attachment | SpanFeedback]
    bad: list[str]
    """Errors of parts that cannot be read."""
    children: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    """All spans of complete traces, if the source lists them."""
    logged: list[tuple[str, int, str]] = field(default_factory=list[tuple[str, int, str]])
    """Log messages: logger, level and text."""


class ReaderFailed(Exception):
    """The process ended without a result, or has an error that it does not expect."""


class _End(NamedTuple):
    """The end of a task."""

    error: str | None = None
    """The error that ends the reading."""
    unexpected: str | None = None


class ReaderProcess:
    """A process that reads and computes. One task at a time. It needs a running event loop."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"from {__name__} import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._starting = asyncio.create_task(self._receive())

    @property
    def is_ready(self) -> bool:
        """True if the process has started and waits for a task."""
        return self._starting.done()

    async def parts(self, task: ReadTask, now: Callable[[], datetime]) -> AsyncGenerator[Part]:
        """Yield the parts of a task. Raises `Unreadable` if an error ends the reading, and `ReaderFailed`."""
        await self._starting
        await self._send(task)
        while True:
            await self._send(now())
            part = await self._receive()
            if isinstance(part, _End):
                if part.unexpected is not None:
                    raise ReaderFailed(part.unexpected)
                if part.error is not None:
                    raise Unreadable(part.error)
                return
            for name, level, text in part.logged:
                logging.getLogger(name).log(level, text)
            yield part

    async def spans(self) -> list[SpanData]:
        """Return the spans of the rows of the last part, because they cannot be written at once."""
        await self._send(_SPANS)
        return await self._receive()

    def end(self) -> None:
        """End the process."""
        self._process.kill()
        self._starting.cancel()
        with suppress(OSError), self._process:
            pass

    async def _send(self, value: object) -> None:
        await asyncio.to_thread(self._write, pickle.dumps(value, pickle.HIGHEST_PROTOCOL))

    def _write(self, content: bytes) -> None:
        assert self._process.stdin is not None
        try:
            _write(self._process.stdin, content)
        except OSError as exc:
            raise ReaderFailed(f"The process that reads spans ended with {self._process.wait()}.") from exc

    async def _receive(self) -> Any:
        assert self._process.stdout is not None
        content = await asyncio.to_thread(_read, self._process.stdout)
        if content is None:
            raise ReaderFailed(f"The process that reads spans ended with {self._process.wait()}.")
        return pickle.loads(content)


_SPANS: Final = "spans"


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
    _write(parts, pickle.dumps("ready"))
    while (content := _read(requests)) is not None:
        _answer(pickle.loads(content), requests, parts, log)


def _answer(task: ReadTask, requests: IO[bytes], parts: IO[bytes], log: BufferingHandler) -> None:
    """Send the parts of a task. Each is sent when the caller asks for it, and computed before that."""
    reading = _Reading(task)
    reading.now = _request(requests)
    computed = reading.parts()
    spans: list[SpanData] | None = None
    end: tuple[Part | _End, list[SpanData]] = _End(), []
    while True:
        part: Part | _End
        try:
            part, new_spans = next(computed, end)
        except (LockstitchError, OSError) as exc:
            part, new_spans = _End(error=str(exc)), []
        except Exception as exc:
            part, new_spans = _End(unexpected=f"{type(exc).__name__}: {exc}"), []
        if isinstance(part, Part):
            part.logged = [(record.name, record.levelno, record.getMessage()) for record in log.buffer]
            log.buffer.clear()
        content = pickle.dumps(part, pickle.HIGHEST_PROTOCOL)
        if spans is not None:
            while (request := _request(requests)) == _SPANS:
                _write(parts, pickle.dumps(spans, pickle.HIGHEST_PROTOCOL))
            reading.now = request
        _write(parts, content)
        spans = new_spans
        if isinstance(part, _End):
            return


def _request(requests: IO[bytes]) -> Any:
    """Return the next request. Ends the process if the caller has ended."""
    content = _read(requests)
    if content is None:
        sys.exit()
    return pickle.loads(content)


class _Reading:
    """The state of one task."""

    def __init__(self, task: ReadTask) -> None:
        self.now: datetime | None = None
        """The time at which the caller asked for the last part."""
        self._task = task
        self._names = MirrorIds(task.project, task.source.source)
        self._bad: list[str] = []
        self._sent: dict[str, None] = {}
        """The last traces that were sent, and the conversations of their threads."""

    def parts(self) -> Iterator[tuple[Part, list[SpanData]]]:
        """Yield the parts, each with the spans of its rows."""
        items: list[Item] = []
        size = 0
        for item in self._task.items(lambda exc: self._bad.append(str(exc))):
            items.append(item)
            size += size_of(item)
            if len(items) >= ITEMS or size >= ITEMS_BYTES:
                yield self._part(items)
                items, size = [], 0
        if items or self._bad:
            yield self._part(items)

    def _part(self, items: list[Item]) -> tuple[Part, list[SpanData]]:
        task = self._task
        outcome = BatchOutcome()
        batch, others = sort(items, outcome, keep_secrets=task.keep_secrets, hide=task.hide)
        children: dict[str, set[str]] = {}
        for item in items:
            add_children(item, children)
        new, later = Batch(), list[SpanData]()
        for span_id, span in batch.spans.items():
            if span["trace_id"] in self._sent or span.get("thread_id") in self._sent:
                later.append(span)
            else:
                new.spans[span_id] = span
        outcome.spans -= {span["id"] for span in later}
        self._remember(new.spans.values())
        bad, self._bad = self._bad, []
        return Part(self._prepared(new), outcome, later, others, bad, children), list(new.spans.values())

    def _prepared(self, batch: Batch) -> NewTraces | None:
        if not batch.spans:
            return None
        assert self.now is not None
        try:
            return prepare(batch, self._task.project, self._task.source, self._names, self._task.encode, self.now)
        except (Conflict, Refused, RecursionError):
            return None

    def _remember(self, spans: Iterable[SpanData]) -> None:
        for span in spans:
            self._sent[span["trace_id"]] = None
            if thread := span.get("thread_id"):
                self._sent[thread] = None
        while len(self._sent) > _REMEMBERED:
            del self._sent[next(iter(self._sent))]


def add_children(item: Item, children: dict[str, set[str]]) -> None:
    """Add the spans that a root lists. Its trace is complete then."""
    if isinstance(item, Attachment | SpanFeedback) or not item.get("children") or not is_root(item):
        return
    children.setdefault(item["trace_id"], {item["id"]}).update(item.get("children") or ())


def size_of(item: Item) -> int:
    """Return the estimated size of an item in bytes."""
    if isinstance(item, Attachment):
        return len(item.content)
    if isinstance(item, SpanFeedback):
        return 200
    try:
        return len(orjson.dumps(item))
    except TypeError:
        return 0


if __name__ == "__main__":
    main()
