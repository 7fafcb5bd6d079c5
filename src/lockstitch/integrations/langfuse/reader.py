"""`Export`: the items of an export of Langfuse: files of traces, observations and scores.

The content of a file decides about its format: JSON (a list of rows, a page of the API, a downloaded trace or session),
JSONL or CSV, each plain, in gzip or in zstd.
"""

import csv
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

from lockstitch.errors import LockstitchError, Unreadable
from lockstitch.integrations.langfuse.rows import Index, items_of, kind_of, normal
from lockstitch.integrations.langsmith.reader import RECORD_LIMIT
from lockstitch.integrations.langsmith.stream import CHUNK, ByteSource, Documents
from lockstitch.integrations.otel.values import as_json, as_list, loads
from lockstitch.integrations.spans.share import Share
from lockstitch.integrations.spans.span import Item
from lockstitch.model import Json

OnBad = Callable[[LockstitchError], None]

_LISTS: Final = ("data", "traces", "observations", "scores")
"""Members with rows, or with objects that contain rows."""
_DEEPEST: Final = 6


class Export:
    """The files of an export. All of them are read once before the first one yields items."""

    def __init__(self, sources: "list[tuple[str, Callable[[], BinaryIO]]]") -> None:
        self._sources = sources
        self._index: Index | None = None

    def items(self, name: str, opened: Callable[[], BinaryIO], on_bad: OnBad, share: Share) -> Iterator[Item]:
        """Yield a share of the items of one file. A row that cannot be read is passed to `on_bad`."""
        index = self._index = self._index or self._indexed()
        with opened() as stream:
            for number, row in share.whole(_rows(stream, name)):
                try:
                    if kind_of(row) is None:
                        raise Unreadable(name, "this is not a row of a Langfuse export", where=f"record {number}")
                    yield from items_of(row, index)
                except LockstitchError as exc:
                    on_bad(exc)

    def _indexed(self) -> Index:
        index = Index()
        for name, opened in self._sources:
            try:
                with opened() as stream:
                    for _, row in _rows(stream, name):
                        index.add(row)
            except (LockstitchError, OSError):
                # The same error is reported when the items of this file are read.
                continue
        return index


def files(path: Path) -> list[Path]:
    """Return the files of a folder, in the order of their paths. A file yields itself."""
    if not path.is_dir():
        return [path]
    return sorted(item for item in path.rglob("*") if item.is_file() and not item.name.startswith("."))


def _rows(stream: BinaryIO, name: str) -> Iterator[tuple[int, Json]]:
    """Yield the rows of a file in camel case, each with the number of its record."""
    source = ByteSource(stream.read).unpacked()
    if source.peek(64).lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"["):
        documents = Documents(source, name, RECORD_LIMIT)
        for _, record in documents.records():
            for row in _flat(record, 0):
                yield documents.number, row
        return
    yield from _csv_rows(source, name)


def _flat(record: Any, depth: int) -> Iterator[Json]:
    """Yield the rows of a record: a row, a list, or an object that contains rows."""
    if isinstance(record, list):
        for item in as_list(record):
            yield from _flat(item, depth + 1)
        return
    bag = as_json(record)
    nested = [key for key in _LISTS if isinstance(bag.get(key), list)]
    # A page of traces lists the ids of their observations and scores, without rows.
    below: list[Any] = [item for key in nested for item in as_list(bag[key]) if isinstance(item, dict)]
    if isinstance(bag.get("trace"), dict):
        nested, below = [*nested, "trace"], [bag["trace"], *below]
    row = normal({key: value for key, value in bag.items() if key not in nested})
    if kind_of(row) or not nested:
        yield row
    if depth < _DEEPEST:
        yield from _flat(below, depth + 1)


def _csv_rows(source: ByteSource, name: str) -> Iterator[tuple[int, Json]]:
    csv.field_size_limit(RECORD_LIMIT)
    raw = io.BufferedReader(cast("Any", _Raw(source)), CHUNK)
    reader = csv.DictReader(io.TextIOWrapper(raw, "utf-8-sig", errors="replace", newline=""))
    try:
        for number, cells in enumerate(reader, 1):
            yield number, normal({key: _cell(value) for key, value in cells.items() if isinstance(key, str)})
    except csv.Error as exc:
        raise Unreadable(name, f"this is neither JSON nor CSV: {exc}") from exc


def _cell(value: Any) -> Any:
    """Return the value of a cell. Newer exports write texts as JSON."""
    if isinstance(value, str) and len(value) > 1 and value[0] == value[-1] == '"':
        try:
            return loads(value)
        except ValueError:
            return value
    return value


class _Raw(io.RawIOBase):
    """The bytes of a source, for the standard library."""

    def __init__(self, source: ByteSource) -> None:
        self._source = source

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._source.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)
