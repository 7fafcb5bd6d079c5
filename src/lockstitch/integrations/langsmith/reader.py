"""`read`: the items of any LangSmith body or export file.

Formats: one run, a list of runs, {"runs": […]} of webhooks and queries, {"post": […], "patch": […]}, JSONL of runs or
of {"operation": …}, multipart bodies, requests that a client saved when it could not send them, and Parquet of bulk
exports. All of them can be plain, gzip or zstd.

Nothing is read completely: the largest record limits the memory, and no record may be larger than RECORD_LIMIT, packed
or not. If a file is damaged, the items before the defect are yielded before the error is raised.
"""

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from io import BytesIO
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryFile
from typing import IO, Any, BinaryIO, Final, cast

from lockstitch.errors import NotFound, Unreadable
from lockstitch.integrations.langsmith.multipart import boundary_of, multipart
from lockstitch.integrations.langsmith.runs import (
    as_object,
    items,
    looks_like_feedback,
    looks_like_run,
    parse_feedback,
    spans_of_run,
    text,
)
from lockstitch.integrations.langsmith.stream import CHUNK, STREAMED, ByteSource, Documents
from lockstitch.integrations.spans.budget import Budget, unlimited
from lockstitch.integrations.spans.share import Share
from lockstitch.integrations.spans.span import Item, SpanFeedback
from lockstitch.model import Json

MAGIC: Final = b"PAR1"
_ROWS: Final = 64


def rows(where: Path | ByteSource, name: str) -> Iterator[Json]:
    """Yield the runs of a Parquet file, with a few rows in memory at a time."""
    try:
        reader: Any = import_module("pyarrow.parquet")
    except ImportError as exc:
        raise Unreadable(name, "Parquet needs pyarrow. Run: pip install 'lockstitch[parquet]'") from exc
    if isinstance(where, Path):
        yield from _rows(reader, str(where), name)
        return
    # The index is at the end of the file, so a stream is stored in a temporary file first.
    with TemporaryFile() as laid:
        copyfileobj(cast("IO[bytes]", where), laid, CHUNK)
        laid.seek(0)
        yield from _rows(reader, laid, name)


def _rows(reader: Any, file: Any, name: str) -> Iterator[Json]:
    number = 0
    try:
        with reader.ParquetFile(file, buffer_size=CHUNK, pre_buffer=False) as opened:
            for batch in opened.iter_batches(batch_size=_ROWS, use_threads=False):
                for row in batch.to_pylist():
                    number += 1
                    yield {key: value for key, value in row.items() if value is not None}
    except (OSError, ValueError) as exc:
        # pyarrow raises these two.
        if isinstance(exc, Unreadable):
            raise
        raise Unreadable(name, f"this is not a valid Parquet file: {exc}", where=f"row {number + 1}") from exc


RECORD_LIMIT: Final = 64 << 20
"""Maximum unpacked bytes of one record: a run, or a part of a multipart body."""

_HEADERS: Final = ".headers.json"
_RUN_PATH: Final = re.compile(r"/runs/([^/?]+)/?(?:\?|$)")
_INNER: Final = ("run", "trace", "data", "body", "payload")
_SAVED: Final = 2
_USUAL_SIZE: Final = 1_000


OnBad = Callable[[Unreadable], None]
"""Called with each part that cannot be read. Without it, the first error is raised."""


def files(path: Path) -> Iterator[Path]:
    """Yield the files of a folder that may contain runs, in the order of their names. A file yields itself."""
    if path.is_file():
        yield path
        return
    if not path.is_dir():
        raise NotFound(f"File or folder {path} not found.")
    for result in sorted(path.rglob("*")):
        hidden = any(part.startswith(".") for part in result.relative_to(path).parts)
        if result.is_file() and not hidden and not result.name.endswith(_HEADERS):
            yield result


def read(
    source: Path | bytes | BinaryIO,
    name: str | None = None,
    headers: Mapping[str, str] | None = None,
    *,
    run_id: str | None = None,
    on_bad: OnBad | None = None,
    budget: Budget | None = None,
    share: Share | None = None,
) -> Iterator[Item]:
    """Yield the items of a file, a body or a stream, or of a share of its records.

    `headers` are the headers of the request. For a recorded body, they are read from the file next to it. `run_id` is
    the run id in the URL, for a body without one. Raises `Unreadable` with the reason and the place. Earlier items are
    valid. With `on_bad`, an invalid record or part is passed to it and reading continues. Raises `BodyTooExpensive` if
    the body exceeds the budget.
    """
    budget = budget or unlimited()
    if isinstance(source, Path):
        name = name or str(source)
        result, run_path = _recorded(source)
        try:
            with source.open("rb") as opened:
                reading = _FileReader(name, headers or result, run_id or run_path, source, on_bad, budget, share)
                yield from reading.items(ByteSource(opened.read, budget=budget))
        except OSError as exc:
            raise Unreadable(name, exc.strerror or str(exc)) from exc
        return
    stream = BytesIO(source) if isinstance(source, bytes) else source
    reading = _FileReader(name or "the input", headers or {}, run_id, None, on_bad, budget, share)
    yield from reading.items(ByteSource(stream.read, budget=budget))


class _FileReader:
    """The reading of one file or body."""

    def __init__(
        self,
        name: str,
        headers: Mapping[str, str],
        run_id: str | None,
        path: Path | None,
        on_bad: OnBad | None = None,
        budget: Budget | None = None,
        share: Share | None = None,
    ) -> None:
        self._budget = budget or unlimited()
        self._share = share or Share()
        self._name = name
        self._headers = headers
        self._run_id = run_id
        self._path = path
        self._on_bad = on_bad

    def items(self, packed: ByteSource, saved: int = 0) -> Iterator[Item]:
        source = packed.unpacked()
        start = source.peek(4)
        if not start:
            raise Unreadable(self._name, source.failure or "it is empty", cut=source.failure is not None)
        if start == MAGIC:
            if self._budget.limited:
                # A few bytes of Parquet can contain gigabytes, which pyarrow unpacks at once. No client sends Parquet.
                raise Unreadable(self._name, "Parquet is read from files only: lockstitch import langsmith FILE")
            where = self._path if self._path and source is packed and not saved else source
            for row in self._share.of(rows(where, self._name), _size):
                yield from spans_of_run(row, budget=self._budget)
        elif boundary := boundary_of(source, self._headers):
            # An attachment must follow its run.
            yield from self._share.whole(multipart(source, boundary, self._name, RECORD_LIMIT, self._on_bad))
        else:
            documents = Documents(source, self._name, RECORD_LIMIT)
            for key, record in self._share.of(documents.records(), _size):
                yield from self._record(record, key, documents.number, saved)

    def _record(self, record: Any, key: str | None, number: int, saved: int) -> Iterator[Item]:
        if isinstance(record, list):
            # One list of runs per trace.
            for item in items(record):
                self._budget.record()
                yield from self._record(item, key, number, saved)
            return
        try:
            yield from self._object(as_object(record), number, saved)
        except Unreadable as exc:
            if self._on_bad is None:
                raise
            self._on_bad(exc)

    def _object(self, result: dict[str, Any], number: int, saved: int) -> Iterator[Item]:
        if text(result.get("body_base64")):
            yield from self._saved(result, number, saved)
        elif "run_type" not in result and any(isinstance(result.get(each), list) for each in STREAMED):
            for each in STREAMED:
                yield from self._record(items(result.get(each)), each, number, saved)
        elif looks_like_feedback(result) and (span_feedback := parse_feedback(result)):
            yield span_feedback
        elif looks_like_run(result):
            yield from spans_of_run(result, parsed=True, budget=self._budget)
        elif inner := next(
            (as_object(result[each]) for each in _INNER if looks_like_run(as_object(result.get(each)))), None
        ):
            yield from spans_of_run(inner, parsed=True, budget=self._budget)
        elif self._run_id and result:
            yield from spans_of_run({**result, "id": self._run_id}, parsed=True, budget=self._budget)
        elif result.get("run_type") or ("inputs" in result and "outputs" in result):
            yield from spans_of_run(result, parsed=True, budget=self._budget)
        else:
            raise Unreadable(self._name, "this is not a LangSmith run", where=f"record {number}")

    def _saved(self, envelope: dict[str, Any], number: int, saved: int) -> Iterator[Item]:
        """Read a request that a client saved because it could not send it: its body and its headers."""
        where = f"record {number}"
        if saved >= _SAVED:
            raise Unreadable(self._name, "a saved request contains a saved request", where=where)
        try:
            body = base64.b64decode(envelope["body_base64"], validate=True)
        except (binascii.Error, ValueError) as exc:
            raise Unreadable(self._name, f"the body of a saved request is not base64: {exc}", where=where) from exc
        headers = {str(key): str(value) for key, value in as_object(envelope.get("headers")).items()}
        match = _RUN_PATH.search(str(envelope.get("endpoint") or ""))
        inner = _FileReader(self._name, headers, _run_named(match), None, self._on_bad, self._budget)
        yield from inner.items(ByteSource(BytesIO(body).read, budget=self._budget), saved + 1)


def _size(record: object) -> int:
    """Return the usual size of a run. Measuring it takes longer than it helps."""
    return _USUAL_SIZE


def _recorded(path: Path) -> tuple[dict[str, str], str | None]:
    """Return the headers of a recorded request, from the file next to its body, and the run id in its URL."""
    beside = path.with_name(path.name.removesuffix(".body") + _HEADERS)
    if path.name == beside.name or not beside.is_file():
        return {}, None
    try:
        document = as_object(json.loads(beside.read_bytes()))
    except (OSError, ValueError):
        return {}, None
    headers = as_object(document.get("headers")) or document
    match = _RUN_PATH.search(str(document.get("path") or ""))
    return {str(key): str(value) for key, value in headers.items()}, _run_named(match)


def _run_named(match: re.Match[str] | None) -> str | None:
    return match[1] if match and match[1] not in ("batch", "multipart", "query") else None


_LIMIT = 8 << 20


def read_feedback(
    body: bytes, name: str, feedback_id: str | None = None, budget: Budget | None = None
) -> Iterator[SpanFeedback]:
    """Yield the feedback in a body. If `feedback_id`, the id in the URL, is set, the body changes that feedback."""
    source = ByteSource(BytesIO(body).read, budget=budget).unpacked()
    documents = Documents(source, name, _LIMIT)
    for _, record in documents.records():
        for item in items(record) or [record]:
            source.budget.item()
            result = as_object(item)
            if feedback_id is not None:
                result = {**result, "id": feedback_id, "key": "-", "run_id": feedback_id}
            read = parse_feedback(result)
            if read is None:
                raise Unreadable(name, "this is not feedback on a run", where=f"record {documents.number}")
            yield read if feedback_id is None else read._replace(span_id=None, amends=True)
