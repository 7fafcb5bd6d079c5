"""`import_traces`: import the traces of a source, batch by batch, with a report.

Memory does not grow with the size of a file. Each batch is written at once. Only hashes of the span ids stay in memory,
so that the report counts every span once.
"""

import logging
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from lockstitch.errors import LockstitchError, NotFound, Refused, StoreError, Unreadable
from lockstitch.integrations.spans.batch import BatchOutcome
from lockstitch.integrations.spans.ingest import SpanIngest
from lockstitch.integrations.spans.reader_process import (
    Items,
    OnBad,
    ReaderFailed,
    ReaderProcesses,
    add_children,
)
from lockstitch.integrations.spans.share import Share
from lockstitch.integrations.spans.span import Attachment, Item, SpanFeedback, TraceSource, size_of
from lockstitch.model import Json
from lockstitch.store import Store

BATCH: Final = 2_000
"""Maximum number of spans in one commit."""

BATCH_BYTES: Final = 8 * 1024 * 1024
"""Maximum bytes of content in one commit. A single larger span is still written."""


SEPARATE: Final = 4 << 20
"""Bytes of files from which on other processes read them. They take half a second to start."""

READERS: Final = 2
"""Number of these processes. Each takes about five times as long as writing the same spans."""

_log = logging.getLogger("lockstitch.import")


class ImportSource(NamedTuple):
    """A file or stream to import: its name for the report, and a function that reads its items."""

    name: str
    items: Items
    path: Path | None = None
    """None for standard input, which only this process can read."""


@dataclass(slots=True)
class Report:
    """The totals of an import. The same files give the same totals, also if they are imported again."""

    skipped: list[Json] = field(default_factory=list[Json])
    files: int = 0
    each: "list[_File]" = field(default_factory=list["_File"])
    """The files, in the order in which they were imported."""
    bad_files: set[str] = field(default_factory=set[str])
    removed: int = 0
    _traces: set[int] = field(default_factory=set[int])
    _missing: dict[int, tuple[str, ...]] = field(default_factory=dict[int, tuple[str, ...]])
    """Missing fields by span, for spans that lack expected fields. A later file may contain them."""
    _spans: set[int] = field(default_factory=set[int])
    _model_calls: dict[int, dict[int, tuple[int, int]]] = field(default_factory=dict[int, dict[int, tuple[int, int]]])
    """By thread and position: the tokens of a model call, and the number of tool calls it requests."""
    _tool_calls: dict[int, dict[int, int]] = field(default_factory=dict[int, dict[int, int]])
    """By thread and position: the position of the response that requested a tool call, else 0."""
    _embeddings: dict[int, dict[int, int]] = field(default_factory=dict[int, dict[int, int]])
    """By thread and position: the tokens of an embedding."""

    @property
    def traces(self) -> int:
        return len(self._traces)

    @property
    def missing(self) -> Counter[str]:
        """Expected fields that spans lack, with the number of spans."""
        return Counter(name for names in self._missing.values() for name in names)

    @property
    def spans(self) -> int:
        return len(self._spans)

    def add(self, outcome: BatchOutcome) -> None:
        self._traces.difference_update(map(_hash, outcome.removed_spans))
        self._traces.update(map(_hash, outcome.traces))
        self._spans.update(map(_hash, outcome.spans))
        for span_id, missing in outcome.missing.items():
            span = _hash(span_id)
            self._missing.pop(span, None)
            if missing and span in self._spans:
                self._missing[span] = tuple(missing)
        for thread_id in outcome.dissolved:
            self._tool_calls.pop(hash(thread_id), None)
            self._model_calls.pop(hash(thread_id), None)
            self._embeddings.pop(hash(thread_id), None)
        for row in outcome.rows:
            thread = hash(row.thread_id)
            tools, models = self._tool_calls.setdefault(thread, {}), self._model_calls.setdefault(thread, {})
            tools.pop(row.position, None)
            models.pop(row.position, None)
            if row.type == "span" and row.tokens:
                self._embeddings.setdefault(thread, {})[row.position] = row.tokens
            elif thread in self._embeddings:
                self._embeddings[thread].pop(row.position, None)
            if row.type == "llm_call":
                models[row.position] = row.tokens, row.calls
            elif row.type == "tool_call":
                tools[row.position] = row.reply_to

    def _tool_call_count(self) -> int:
        """Return the number of tool calls: requested ones, with or without a span, and spans without a request."""
        requested = sum(calls for models in self._model_calls.values() for _, calls in models.values())
        return requested + sum(
            asker not in self._model_calls[thread]
            for thread, tools in self._tool_calls.items()
            for asker in tools.values()
        )

    def has_span(self, span_id: str) -> bool:
        return _hash(span_id) in self._spans

    def as_json(self) -> Json:
        return {
            "traces": self.traces,
            "runs": self.spans,
            "llm_calls": sum(map(len, self._model_calls.values())),
            "tool_calls": self._tool_call_count(),
            "tokens": sum(tokens for models in self._model_calls.values() for tokens, _ in models.values())
            + sum(tokens for spans in self._embeddings.values() for tokens in spans.values()),
            "skipped": self.skipped,
            "missing": dict(sorted(self.missing.items())),
            "files": [file.as_json() for file in self.each],
        }


ImportProgress = Callable[[Report, str], None]


class TraceImport:
    """One import into one project of a store."""

    def __init__(
        self,
        store: Store,
        trace_source: TraceSource,
        *,
        replace: bool = False,
        keep_secrets: bool = False,
        progress: ImportProgress | None = None,
    ) -> None:
        self._ingest = SpanIngest(store, trace_source, keep_secrets=keep_secrets)
        self._now = store.clock.now
        self._reading: ReaderProcesses | None = None
        """The processes that read the files, if these are large."""
        self._replace = replace
        self._progress = progress
        self._report = Report()
        self._listed_spans: dict[str, set[str]] = {}
        """Span ids of traces with a root that lists all its descendants."""

    async def run(self, sources: Iterator[ImportSource]) -> Report:
        """Import file by file and return the report. Parts that cannot be read or written are reported and skipped.

        Each file is committed before the next one is read. Raises `StoreError` if the store fails. Earlier files are
        stored then. If there is only one file and nothing of it can be written, the error of that file is raised.
        """
        try:
            return await self._run(list(sources))
        finally:
            if self._reading is not None:
                self._reading.end()

    async def _run(self, sources: Sequence[ImportSource]) -> Report:
        if _is_large(sources):
            self._reading = ReaderProcesses(READERS)
        traces: set[str] = set()
        failure: Exception | None = None
        for source in sources:
            self._report.files += 1
            file = _File(source.name)
            await self._import(source, file)
            self._report.each.append(file)
            traces |= file.traces
            failure = failure or file.failure
        if failure is not None and self._report.files == 1 and not self._report.spans:
            raise failure
        if self._report.bad_files:
            # Spans of a file that was not imported completely are missing here, but not in the trace.
            traces = set()
        for trace_id in sorted(traces if self._replace else self._listed_spans):
            keep = self._report.has_span if self._replace else self._listed_spans[trace_id].__contains__
            self._report.removed += await self._ingest.drop_others(trace_id, keep)
        return self._report

    async def _import(self, source: ImportSource, file: "_File") -> None:
        """Read and write one file, batch by batch."""
        if self._reading is not None and source.path is not None:
            skipped = len(self._report.skipped)
            try:
                await self._import_parts(self._reading, source, file)
                return
            except ReaderFailed as exc:
                _log.warning("Reading %s in this process: %s", source.name, exc)
            # Spans that are written already do not change.
            self._reading.end()
            self._reading = None
            del self._report.skipped[skipped:]
            file.spans = file.skipped = 0
        batch: list[Item] = []
        size = 0
        items = source.items(partial(self._skip, file), Share())
        while True:
            try:
                item = next(items)
            except StopIteration:
                break
            except (LockstitchError, OSError) as exc:
                self._skip(file, exc)
                break
            batch.append(item)
            size += size_of(item)
            if len(batch) >= BATCH or size >= BATCH_BYTES:
                await self._write(batch, file)
                batch, size = [], 0
        if batch:
            await self._write(batch, file)

    async def _import_parts(self, reading: ReaderProcesses, source: ImportSource, file: "_File") -> None:
        """Write one file that other processes read."""
        task = self._ingest.read_task(source.items)
        try:
            async with aclosing(reading.parts(task, self._now)) as parts:
                async for part in parts:
                    for why in part.bad:
                        self._skip(file, Unreadable(why))
                    outcome, items = await self._ingest.write_part(part)
                    if outcome is not None:
                        self._add(outcome, file)
                    for trace_id, spans in part.children.items():
                        self._listed_spans.setdefault(trace_id, set()).update(spans)
                    if items:
                        await self._write(items, file)
        except Unreadable as exc:
            self._skip(file, exc)

    async def _write(self, batch: Sequence[Item], file: "_File") -> None:
        """Write a batch. If that fails, halve it until the spans that cannot be written are alone."""
        try:
            outcome = await self._ingest.write(batch)
        except StoreError:
            raise
        except Exception as exc:
            if len(batch) > 1:
                half = len(batch) // 2
                await self._write(batch[:half], file)
                await self._write(batch[half:], file)
                return
            file.failure = file.failure or exc
            self._skip(file, exc, f"{file.name}: span {_name(batch[0])}: {exc}")
            return
        for item in batch:
            add_children(item, self._listed_spans)
        self._add(outcome, file)

    def _add(self, outcome: BatchOutcome, file: "_File") -> None:
        """Add the outcome of a commit to the report."""
        self._report.add(outcome)
        file.add(outcome)
        for _, why in outcome.refused:
            self._report.skipped.append({"file": file.name, "why": why})
            file.skipped += 1
        if self._progress is not None:
            self._progress(self._report, file.name)

    def _skip(self, file: "_File", exc: Exception, why: str = "") -> None:
        self._report.bad_files.add(file.name)
        self._report.skipped.append({"file": file.name, "why": why or str(exc)})
        file.skipped += 1
        file.error = file.error or why or str(exc)


def _is_large(sources: Sequence[ImportSource]) -> bool:
    """True if other processes should read the files: they are large, and there is a second processor."""
    with suppress(OSError):
        paths = (source.path for source in sources if source.path is not None)
        return (os.cpu_count() or 1) > 1 and sum(path.stat().st_size for path in paths) >= SEPARATE
    return False


@dataclass(slots=True)
class _File:
    """The result of the import of one file."""

    name: str
    traces: set[str] = field(default_factory=set[str])
    spans: int = 0
    skipped: int = 0
    """Number of parts that could not be read or written."""
    error: str | None = None
    """The first reason why a part could not be read or written."""
    failure: Exception | None = None
    """The first error that writing the file raised."""

    def add(self, outcome: BatchOutcome) -> None:
        self.traces = (self.traces - outcome.removed_spans) | outcome.traces
        self.spans += len(outcome.spans)

    def as_json(self) -> Json:
        return {
            "file": self.name,
            "traces": len(self.traces),
            "runs": self.spans,
            "skipped": self.skipped,
            "error": self.error,
        }


def _name(item: Item) -> str:
    if isinstance(item, Attachment | SpanFeedback):
        return item.span_id or ""
    return item["id"]


def _hash(name: str) -> int:
    """Return a hash of 64 bits that is the same during an import."""
    return hash(name)


NAMES: Final = ("langsmith", "otel", "langfuse")
STANDARD_INPUT: Final = "-"
_PIPED: Final = "standard input"


async def import_traces(
    store: Store,
    source: str,
    path: str,
    *,
    replace: bool = False,
    keep_secrets: bool = False,
    progress: ImportProgress | None = None,
) -> Report:
    """Import traces of another system into the project of a store.

    Args:
        store: Open store. The traces become threads of its project.
        source: Format of the traces: `langsmith`, `otel` or `langfuse`.
        path: File or folder. `-` is standard input.
        replace: The traces are complete. Stored spans that they no longer contain are deleted.
        keep_secrets: Do not redact values in metadata that look like secrets.
        progress: Function that receives the report while the import runs.

    Returns:
        The report with the numbers of read and stored spans.

    Raises:
        NotFound: If the path does not exist.
        Refused: If the source is unknown, or its package is not installed.
    """
    opened = open_source(source, path, sys.stdin.buffer)
    return await opened.into(store, replace=replace, keep_secrets=keep_secrets, progress=progress)


class Opened(NamedTuple):
    """An integration and the files to read with it."""

    source: TraceSource
    sources: Iterator[ImportSource]

    async def into(
        self, store: Store, *, replace: bool = False, keep_secrets: bool = False, progress: ImportProgress | None = None
    ) -> Report:
        """Import all files into the project of a store.

        With `replace`, the traces are complete and stored spans that they no longer contain are removed. Values in
        metadata that look like secrets are redacted, unless `keep_secrets` is set.
        """
        importing = TraceImport(store, self.source, replace=replace, keep_secrets=keep_secrets, progress=progress)
        return await importing.run(self.sources)


def open_source(name: str, path: str, standard_input: BinaryIO) -> Opened:
    """Return the integration `name` with the files of a path. A folder is read in order, `-` is standard input."""
    if path != STANDARD_INPUT and not Path(path).exists():
        raise NotFound(f"File or folder {path} not found.")
    if name == "langsmith":
        return _langsmith(path, standard_input)
    if name == "otel":
        return _otel(path, standard_input)
    if name == "langfuse":
        return _langfuse(path, standard_input)
    raise Refused(f"{name!r} is not a source of traces. Use one of: {', '.join(NAMES)}.")


def _langsmith(path: str, standard_input: BinaryIO) -> Opened:
    from lockstitch.integrations import langsmith

    def source(path: Path | None) -> ImportSource:
        if path is None:
            return ImportSource(_PIPED, partial(_langsmith_items, standard_input))
        return ImportSource(str(path), partial(_langsmith_items, path), path)

    return Opened(langsmith.LangSmith(), map(source, _files(path, langsmith.files)))


def _langsmith_items(source: Path | BinaryIO, on_bad: OnBad, share: Share) -> Iterator[Item]:
    from lockstitch.integrations import langsmith

    return langsmith.read(source, None if isinstance(source, Path) else _PIPED, share=share)


def _otel(path: str, standard_input: BinaryIO) -> Opened:
    try:
        from lockstitch.integrations import otel
    except ModuleNotFoundError as exc:
        raise Refused("The source otel needs opentelemetry-proto. Run: pip install 'lockstitch[otel]'") from exc

    def source(path: Path | None) -> ImportSource:
        if path is None:
            return ImportSource(_PIPED, partial(_otel_items, standard_input))
        return ImportSource(str(path), partial(_otel_items, path), path)

    return Opened(otel.OpenTelemetry(), map(source, _files(path, otel.files)))


def _otel_items(source: Path | BinaryIO, on_bad: OnBad, share: Share) -> Iterator[Item]:
    from lockstitch.integrations import otel

    if isinstance(source, Path):
        return otel.read_file(source, on_bad=on_bad, share=share)
    return otel.read_stream(source, _PIPED, on_bad=on_bad, share=share)


def _langfuse(path: str, standard_input: BinaryIO) -> Opened:
    from lockstitch.integrations import langfuse, otel

    if path == STANDARD_INPUT:
        # An export is read twice, so that of a pipe is read into memory.
        opened: list[tuple[str, Callable[[], BinaryIO]]] = [(_PIPED, partial(BytesIO, standard_input.read()))]
    else:
        opened = [(str(file), partial(_open, file)) for file in langfuse.files(Path(path))]
    export = langfuse.Export(opened)

    def source(file: tuple[str, Callable[[], BinaryIO]]) -> ImportSource:
        return ImportSource(file[0], partial(export.items, *file))

    return Opened(otel.OpenTelemetry(), map(source, opened))


def _open(path: Path) -> BinaryIO:
    return path.open("rb")


def _files(path: str, below: Callable[[Path], Iterable[Path]]) -> Iterable[Path | None]:
    """Return the files of a path. None is standard input."""
    return [None] if path == STANDARD_INPUT else below(Path(path))
