"""Any LangSmith body or export file as items.

    one run · a list of runs · {"runs": […]} of webhooks and queries · {"post": […], "patch": […]} ·
    JSONL of runs or of {"operation": …} · multipart bodies · what a client saved when it could not send it ·
    Parquet of bulk exports · all of it as it is, in gzip or in zstd

Nothing is read whole: memory is bounded by the largest record, and no record may be larger than RECORD_LIMIT, packed
or not. What a file holds before it breaks comes out before the error does.
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
from lockstitch.integrations.langsmith.runs import bag, items, looks_like_feedback, looks_like_run, pieces, remark, text
from lockstitch.integrations.langsmith.stream import CHUNK, STREAMED, ByteSource, Documents
from lockstitch.integrations.spans.budget import Budget, unlimited
from lockstitch.integrations.spans.span import Item, SpanFeedback
from lockstitch.model import Json

MAGIC: Final = b"PAR1"
_ROWS: Final = 64


def rows(where: Path | ByteSource, name: str) -> Iterator[Json]:
    """The runs of a Parquet file, a few rows in memory at a time."""
    try:
        reader: Any = import_module("pyarrow.parquet")
    except ImportError as exc:
        raise Unreadable(name, "Parquet needs pyarrow: pip install 'lockstitch[parquet]'") from exc
    if isinstance(where, Path):
        yield from _rows(reader, str(where), name)
        return
    # Its index stands at its end, so what only streams is laid down first.
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
        # pyarrow's errors are these two
        if isinstance(exc, Unreadable):
            raise
        raise Unreadable(name, f"this is no Parquet file, or a damaged one: {exc}", where=f"row {number + 1}") from exc


RECORD_LIMIT: Final = 64 << 20
"""Bytes that one record may have, unpacked: a run, or a part of a multipart body."""

_HEADERS: Final = ".headers.json"
_RUN_PATH: Final = re.compile(r"/runs/([^/?]+)/?(?:\?|$)")
_INNER: Final = ("run", "trace", "data", "body", "payload")
_SAVED: Final = 2


OnBad = Callable[[Unreadable], None]
"""Is told of what cannot be read; without one the first such thing is raised."""


def files(path: Path) -> Iterator[Path]:
    """The files of a folder that may hold runs, in order of their names; a file is itself."""
    if path.is_file():
        yield path
        return
    if not path.is_dir():
        raise NotFound(f"There is no file or folder {path}.")
    for found in sorted(path.rglob("*")):
        hidden = any(part.startswith(".") for part in found.relative_to(path).parts)
        if found.is_file() and not hidden and not found.name.endswith(_HEADERS):
            yield found


def read(
    source: Path | bytes | BinaryIO,
    name: str | None = None,
    headers: Mapping[str, str] | None = None,
    *,
    run_id: str | None = None,
    on_bad: OnBad | None = None,
    budget: Budget | None = None,
) -> Iterator[Item]:
    """The items of a file, a body or a stream.

    `headers` are those of the request that it was, where there was one; beside a recorded body they are found by
    themselves. `run_id` is what the URL of the request names, for a body that does not. Unreadable says what is wrong
    and where; what came before it stands. With `on_bad` a record or part that makes no sense is told there, and what
    follows it is read. Raises `BodyTooExpensive` if the budget does not allow all of it.
    """
    budget = budget or unlimited()
    if isinstance(source, Path):
        name = name or str(source)
        found, run_path = _recorded(source)
        try:
            with source.open("rb") as opened:
                reading = _Reading(name, headers or found, run_id or run_path, source, on_bad, budget)
                yield from reading.items(ByteSource(opened.read, budget=budget))
        except OSError as exc:
            raise Unreadable(name, exc.strerror or str(exc)) from exc
        return
    stream = BytesIO(source) if isinstance(source, bytes) else source
    reading = _Reading(name or "the input", headers or {}, run_id, None, on_bad, budget)
    yield from reading.items(ByteSource(stream.read, budget=budget))


class _Reading:
    """One file or body on its way in."""

    def __init__(
        self,
        name: str,
        headers: Mapping[str, str],
        run_id: str | None,
        path: Path | None,
        on_bad: OnBad | None = None,
        budget: Budget | None = None,
    ) -> None:
        self._budget = budget or unlimited()
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
                # A few bytes of Parquet can contain gigabytes, which pyarrow unpacks at once. No client sends it.
                raise Unreadable(self._name, "Parquet is read from files only: lockstitch import langsmith FILE")
            where = self._path if self._path and source is packed and not saved else source
            for row in rows(where, self._name):
                yield from pieces(row, budget=self._budget)
        elif boundary := boundary_of(source, self._headers):
            yield from multipart(source, boundary, self._name, RECORD_LIMIT, self._on_bad)
        else:
            documents = Documents(source, self._name, RECORD_LIMIT)
            for key, record in documents.records():
                yield from self._record(record, key, documents.number, saved)

    def _record(self, record: Any, key: str | None, number: int, saved: int) -> Iterator[Item]:
        if isinstance(record, list):
            # one list of runs per trace
            for each in items(record):
                self._budget.record()
                yield from self._record(each, key, number, saved)
            return
        try:
            yield from self._object(bag(record), number, saved)
        except Unreadable as exc:
            if self._on_bad is None:
                raise
            self._on_bad(exc)

    def _object(self, found: dict[str, Any], number: int, saved: int) -> Iterator[Item]:
        if text(found.get("body_base64")):
            yield from self._saved(found, number, saved)
        elif "run_type" not in found and any(isinstance(found.get(each), list) for each in STREAMED):
            for each in STREAMED:
                yield from self._record(items(found.get(each)), each, number, saved)
        elif looks_like_feedback(found) and (said := remark(found)):
            yield said
        elif looks_like_run(found):
            yield from pieces(found, parsed=True, budget=self._budget)
        elif inner := next((bag(found[each]) for each in _INNER if looks_like_run(bag(found.get(each)))), None):
            yield from pieces(inner, parsed=True, budget=self._budget)
        elif self._run_id and found:
            yield from pieces({**found, "id": self._run_id}, parsed=True, budget=self._budget)
        elif found.get("run_type") or ("inputs" in found and "outputs" in found):
            yield from pieces(found, parsed=True, budget=self._budget)
        else:
            raise Unreadable(self._name, "this is no run of LangSmith's", where=f"record {number}")

    def _saved(self, envelope: dict[str, Any], number: int, saved: int) -> Iterator[Item]:
        """What a client could not send: the body of its request, with the headers."""
        where = f"record {number}"
        if saved >= _SAVED:
            raise Unreadable(self._name, "a saved request holds a saved request", where=where)
        try:
            body = base64.b64decode(envelope["body_base64"], validate=True)
        except (binascii.Error, ValueError) as exc:
            raise Unreadable(self._name, f"the body of a saved request is no base64: {exc}", where=where) from exc
        headers = {str(key): str(value) for key, value in bag(envelope.get("headers")).items()}
        match = _RUN_PATH.search(str(envelope.get("endpoint") or ""))
        inner = _Reading(self._name, headers, _run_named(match), None, self._on_bad, self._budget)
        yield from inner.items(ByteSource(BytesIO(body).read, budget=self._budget), saved + 1)


def _recorded(path: Path) -> tuple[dict[str, str], str | None]:
    """The headers of a recorded request that stand beside its body, and the run that its URL names."""
    beside = path.with_name(path.name.removesuffix(".body") + _HEADERS)
    if path.name == beside.name or not beside.is_file():
        return {}, None
    try:
        said = bag(json.loads(beside.read_bytes()))
    except (OSError, ValueError):
        return {}, None
    given = bag(said.get("headers")) or said
    match = _RUN_PATH.search(str(said.get("path") or ""))
    return {str(key): str(value) for key, value in given.items()}, _run_named(match)


def _run_named(match: re.Match[str] | None) -> str | None:
    return match[1] if match and match[1] not in ("batch", "multipart", "query") else None


_LIMIT = 8 << 20


def read_feedback(
    body: bytes, name: str, feedback_id: str | None = None, budget: Budget | None = None
) -> Iterator[SpanFeedback]:
    """Yield the remarks of a body. `feedback_id` is the id in the URL: the body then changes that remark."""
    source = ByteSource(BytesIO(body).read, budget=budget).unpacked()
    documents = Documents(source, name, _LIMIT)
    for _, record in documents.records():
        for said in items(record) or [record]:
            source.budget.item()
            found = bag(said)
            if feedback_id is not None:
                found = {**found, "id": feedback_id, "key": "-", "run_id": feedback_id}
            read = remark(found)
            if read is None:
                raise Unreadable(name, "this is no feedback about a run", where=f"record {documents.number}")
            yield read if feedback_id is None else read._replace(span_id=None, amends=True)
