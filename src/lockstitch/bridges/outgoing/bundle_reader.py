"""`BundleReader`: the records of a bundle, read from the zip in place and checked before anything is stored.

A bundle may come from a stranger. The reader treats it as data: it knows the documents that a bundle can hold, and
refuses every other name. It opens no backend on the content and writes no file. Four rules bound what a bundle costs:

1. The zip's directory, the number of documents and the size of each are limited before a document is read.
2. A document is read in chunks. Reading stops when it is longer than the manifest says.
3. A log is read line by line. Lines, documents and archives have a limit, and so has the number of values in one.
4. Every record passes through its model, and belongs to the threads of the bundle.
"""

import io
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Never, TypeVar, cast
from uuid import UUID

from lockstitch.backends.files import document, layout, line
from lockstitch.errors import Refused
from lockstitch.records import (
    OWNED,
    Archive,
    Blob,
    BlobUse,
    Delta,
    Json,
    Letter,
    Record,
    Run,
    Stitch,
    Thread,
    as_id,
    codec,
)
from lockstitch.records.stitch import Entry

R = TypeVar("R", bound=Record)

MANIFEST: Final = "manifest.json"
FORMAT: Final = "lockstitch-bundle"
VERSION: Final = 1
FOLDER: Final = "store/"

LARGEST: Final = 4 * 1024**3
"""Bytes of all documents of a bundle together, unpacked."""
MOST: Final = 100_000
"""Documents of a bundle."""
LONGEST_MANIFEST: Final = 32 * 1024**2
LONGEST_TEXT: Final = 64 * 1024**2
"""Bytes of one JSON document, and of one line of a log."""
LONGEST_CONTENT: Final = 256 * 1024**2
"""Bytes of the content of one blob, and of one archive after it is unpacked."""
MOST_VALUES: Final = 4_000_000
"""JSON values in one document or line. A value takes about 60 bytes of memory once it is read."""
RATIO: Final = 200
"""How much larger than its zip a bundle of more than `RATIO_FROM` bytes may be. Text of agents reaches about 30."""
RATIO_FROM: Final = 256 * 1024**2
LARGEST_NUMBER: Final = 1 << 40
"""The largest value of a number that the store counts on from. At the limit of 64 bits the next claim would fail."""

_COUNTED: Final = frozenset(
    {
        *("position", "context_from", "first_position", "last_position", "input_position", "output_position"),
        *("fence", "delivered", "pending_children", "crashes", "depth", "tries"),
        *("sequence", "turn", "last_sequence", "last_turn", "total_runs", "steps", "step_number"),
        *("reply_to", "call_index", "calls", "version"),
    }
)

_CHUNK: Final = 1 << 16
_LONGEST_READ: Final = 32 * 1024**2
"""Bytes that the zip's directory may have. The module zipfile reads it at once."""
_ENCRYPTED: Final = 0x1
_READABLE: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)

_BROKEN: Final = (
    zipfile.BadZipFile,
    NotImplementedError,
    RuntimeError,
    EOFError,
    OSError,
    OverflowError,
    MemoryError,
    struct.error,
    zlib.error,
    KeyError,
    IndexError,
    TypeError,
    AttributeError,
    ValueError,
)
"""Errors of the parsers when the content is not what they expect. RecursionError is a RuntimeError."""

_ID: Final = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_NAME: Final = "[A-Za-z0-9_][A-Za-z0-9_.,~-]{0,199}"
_HASH: Final = re.compile("[0-9a-f]{64}")
_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)

_SHELVES: Final[Mapping[str, type[Record]]] = {kind.table: kind for kind in OWNED if kind is not Delta}
"""The side records of a thread, by the name of their folder. Live text is never part of a bundle."""


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text, re.ASCII)


_HEAD: Final = _pattern(f"{layout.HEADS}/({_ID})\\.json")
_RUN: Final = _pattern(f"{layout.RUNS}/({_ID})/({_ID})\\.json")
_LOG: Final = _pattern(f"{layout.LOGS}/({_ID})/({_ID}|{layout.OUTSIDE_RUNS})\\.jsonl")
_ARCHIVE: Final = _pattern(f"{layout.LOGS}/({_ID})/{_ID}(?:\\.[0-9]{{1,13}})?\\.jsonl\\.gz")
_LETTER: Final = _pattern(f"{layout.INBOX}/({_ID})/{_ID}\\.[0-9a-f]{{32}}\\.json")
_BLOB: Final = _pattern(f"{layout.BLOBS}/([0-9a-f]{{64}})\\.json")
_CONTENT: Final = _pattern(f"{layout.BLOBS}/[0-9a-f]{{64}}")
_SHELF: Final = _pattern(f"{layout.SHELVES}/({'|'.join(_SHELVES)})/{_NAME}\\.json")
_DERIVED: Final = _pattern(
    f"{layout.CONFIGS}/{_ID}\\.json|{layout.HISTORIES}/{_ID}/(?:[0-9]{{3,13}}|index)\\.json|{layout.KEYS}/{_NAME}\\.json"
    f"|{re.escape(layout.COUNTERS)}|{re.escape(layout.APPLIED)}"
)
"""Documents that are made from the records. Their checksums are compared; nothing else is read from them."""


@dataclass(slots=True)
class _Tree:
    """What the heads and runs of a bundle say: the frame that every other record must fit into."""

    project: str = ""
    order: list[UUID] = field(default_factory=list[UUID])
    """The threads, parents before children."""
    positions: dict[UUID, tuple[int, int]] = field(default_factory=dict[UUID, tuple[int, int]])
    """The first and the last position of each log."""
    runs: dict[UUID, set[UUID]] = field(default_factory=dict[UUID, set[UUID]])
    blobs: set[str] = field(default_factory=set[str])


class BundleReader:
    """Reads one bundle. Use it as a context manager; it keeps the file open. Not safe for several tasks at once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._tree = _Tree()
        self._verified: set[str] = set()
        self.thread_id: UUID
        """The thread that the bundle was made of."""

    def __enter__(self) -> "BundleReader":
        self._file = _BoundedFile(self._path, "rb")
        try:
            with _explained(self._path):
                self._zip = zipfile.ZipFile(self._file)
                self._documents = self._directory()
                self._check_shape()
        except BaseException:
            self._file.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()
        self._file.close()

    @property
    def project(self) -> str:
        """The project of all threads of the bundle; known once `threads` was read."""
        return self._tree.project

    def positions(self, thread_id: UUID) -> tuple[int, int]:
        """Return the first and the last position of a thread's log."""
        return self._tree.positions[thread_id]

    def threads(self) -> Iterator[Thread]:
        """Yield the heads, parents before children. Raises Refused if they are not one tree of one project."""
        with _explained(self._path):
            self._look_at_heads()
            for thread_id in self._tree.order:
                yield self._head(layout.head(thread_id))

    def records(self) -> Iterator[Record]:
        """Yield everything of the threads but their logs: runs, blobs, then what refers to them."""
        with _explained(self._path):
            yield from self._runs()
            yield from self._blobs()
            yield from self._side_records()
            yield from self._letters()
            self._verify_rest()

    def stitches(self) -> Iterator[Stitch]:
        """Yield the stitches of all logs, file by file in the order of their names."""
        with _explained(self._path):
            number = 0
            for name, match in self._matching(_LOG):
                thread_id = UUID(match[1])
                run_id = as_id(match[2])
                first, last = self._positions_of(thread_id, name)
                if run_id is not None and run_id not in self._tree.runs[thread_id]:
                    _refuse(f"the log {name} belongs to a run that is not in the bundle")
                for text in self._lines(name):
                    stitch = _checked(Stitch, line.decode(_bounded(text, name)).__dict__, name)
                    if stitch.thread_id != thread_id or stitch.run_id != run_id:
                        _refuse(f"{name} holds a stitch of another thread or run")
                    if not first <= stitch.position <= last:
                        _refuse(f"{name} holds position {stitch.position}, and its thread has {first} to {last}")
                    number += 1
                    yield stitch.changed(log_id=None)
            self._check_count("stitches", number)

    # The zip

    def _directory(self) -> dict[str, int]:
        """Return the sizes of the documents by name. The zip and its manifest must name the same ones."""
        entries = self._zip.infolist()
        if len(entries) > MOST + 1:
            _refuse(f"it has {len(entries):,} documents, and {MOST:,} are allowed")
        names = {entry.filename for entry in entries}
        if len(names) != len(entries):
            _refuse("two of its documents have the same name")
        for entry in entries:
            _check_entry(entry)
        manifest = self._manifest()
        listed: Any = manifest["files"]
        sizes = {str(name): _size(listed[name], str(name)) for name in listed}
        if names != {MANIFEST, *sizes}:
            other = min(names ^ {MANIFEST, *sizes})
            _refuse(f"the manifest and the zip do not name the same documents, for example {other[:200]!r}")
        for entry in entries:
            if entry.filename != MANIFEST and entry.file_size != sizes[entry.filename]:
                _refuse(f"{entry.filename} has another size than the manifest says")
        total, packed = sum(sizes.values()), self._path.stat().st_size
        if total > LARGEST:
            _refuse(f"it unpacks to {total:,} bytes, and {LARGEST:,} are allowed")
        if total > RATIO_FROM and total > RATIO * packed:
            _refuse(f"it unpacks to {total:,} bytes from {packed:,}, which no record of agents does")
        self._digests = {name: str(listed[name]["sha256"]) for name in sizes}
        return sizes

    def _manifest(self) -> Json:
        parts: list[bytes] = []
        size = 0
        with self._zip.open(MANIFEST) as file:
            while part := file.read(_CHUNK):
                parts.append(part)
                size += len(part)
                if size > LONGEST_MANIFEST:
                    _refuse(f"its manifest is longer than {LONGEST_MANIFEST:,} bytes")
        manifest = _object(b"".join(parts), MANIFEST)
        if manifest.get("format") != FORMAT:
            _refuse(f"its format is {str(manifest.get('format'))[:100]!r}")
        if manifest.get("version") != VERSION:
            _refuse(f"its version is {str(manifest.get('version'))[:100]}, and this code reads version {VERSION}")
        thread_id = as_id(str(manifest["thread"]))
        if thread_id is None:
            _refuse("its manifest names no thread")
        self.thread_id = thread_id
        self._counts = cast("Json", manifest["counts"])
        return manifest

    def _check_shape(self) -> None:
        """Refuse names that are not documents of a bundle, and documents that are longer than their kind may be."""
        for name, size in self._documents.items():
            inner = name.removeprefix(FOLDER)
            known = (_HEAD, _RUN, _LOG, _ARCHIVE, _LETTER, _BLOB, _CONTENT, _SHELF, _DERIVED)
            if inner == layout.JOURNAL:
                # A journal is a list of writes. A whole bundle has none left to do.
                if size:
                    _refuse("its store has a journal with operations that were not applied. Export it again")
            elif not name.startswith(FOLDER) or not (
                inner == layout.STORE or any(pattern.fullmatch(inner) for pattern in known)
            ):
                _refuse(f"it holds {name[:200]!r}, which is not a document of a bundle")
            if size > (LONGEST_CONTENT if _CONTENT.fullmatch(inner) or _ARCHIVE.fullmatch(inner) else LARGEST):
                _refuse(f"{name} has {size:,} bytes, and {LONGEST_CONTENT:,} are allowed")
        folder = _object(self._text(layout.STORE), layout.STORE)
        if (folder.get("format"), folder.get("version")) != ("lockstitch", 1):
            _refuse("its store has a layout that this code cannot read")

    def _chunks(self, name: str) -> Iterator[bytes]:
        """Yield the content of a document, and compare its real size and checksum with the manifest."""
        path = FOLDER + name
        expected = self._documents.get(path)
        if expected is None:
            _refuse(f"{path} is missing")
        size, digest = 0, sha256()
        with self._zip.open(path) as file:
            while part := file.read(_CHUNK):
                size += len(part)
                if size > expected:
                    _refuse(f"{path} is longer than the manifest says")
                digest.update(part)
                yield part
        if size != expected or digest.hexdigest() != self._digests[path]:
            _refuse(f"{path} is damaged: its content is not the one that the manifest describes")
        self._verified.add(path)

    def _text(self, name: str, most: int | None = None) -> bytes:
        most = LONGEST_TEXT if most is None else most
        if self._documents.get(FOLDER + name, 0) > most:
            _refuse(f"{name} is longer than {most:,} bytes")
        return b"".join(self._chunks(name))

    def _lines(self, name: str) -> Iterator[bytes]:
        return _split(self._chunks(name), name)

    def _matching(self, pattern: re.Pattern[str]) -> Iterator[tuple[str, re.Match[str]]]:
        for path in sorted(self._documents):
            name = path.removeprefix(FOLDER)
            match = pattern.fullmatch(name)
            if match is not None:
                yield name, match

    def _verify_rest(self) -> None:
        """Compare the checksums of documents that nothing is read from."""
        for name, _ in self._matching(_DERIVED):
            for _ in self._chunks(name):
                pass
        unread = [path for path in self._documents if path not in self._verified and not _is_log(path)]
        for path in unread:
            if path.removeprefix(FOLDER) != layout.JOURNAL:
                _refuse(f"no record of it refers to {path}")

    # The records

    def _head(self, name: str) -> Thread:
        return self._record(Thread, name)

    def _look_at_heads(self) -> None:
        """Read all heads once: which threads there are, below which, in which project, with how long a log."""
        parents: dict[UUID, tuple[UUID | None, int]] = {}
        tree = self._tree = _Tree()
        for name, match in self._matching(_HEAD):
            head = self._head(name)
            if str(head.id) != match[1]:
                _refuse(f"{name} holds another thread")
            if tree.project not in ("", head.project):
                _refuse("its threads belong to several projects")
            tree.project = head.project
            if not 1 <= head.first_position <= head.position + 1:
                _refuse(f"{name} has a log from position {head.first_position} to {head.position}")
            parents[head.id] = (head.parent_id, head.depth)
            tree.positions[head.id] = (head.first_position, head.position)
            tree.runs[head.id] = set()
        if self.thread_id not in parents:
            _refuse("the thread that its manifest names is not in it")
        for thread_id, (parent_id, depth) in parents.items():
            if thread_id == self.thread_id:
                if parent_id is not None:
                    _refuse("its first thread is below another one that is not in it")
            elif parent_id is None or parent_id not in parents or depth != parents[parent_id][1] + 1:
                _refuse(f"thread {thread_id} is not below the thread that its manifest names")
        tree.order = sorted(parents, key=lambda thread_id: (parents[thread_id][1], thread_id))
        self._check_count("threads", len(parents))

    def _runs(self) -> Iterator[Run]:
        number = 0
        for name, match in self._matching(_RUN):
            run = self._record(Run, name)
            if (str(run.thread_id), str(run.id)) != (match[1], match[2]):
                _refuse(f"{name} holds another run")
            self._positions_of(run.thread_id, name)
            self._tree.runs[run.thread_id].add(run.id)
            number += 1
            yield run
        self._check_count("runs", number)

    def _blobs(self) -> Iterator[Blob]:
        for name, match in self._matching(_BLOB):
            content = self._text(layout.blob(match[1]), LONGEST_CONTENT)
            blob = self._record(Blob, name, content=content)
            if blob.sha256 != match[1] or sha256(content).hexdigest() != blob.sha256 or blob.size != len(content):
                _refuse(f"{name} does not describe its content")
            self._tree.blobs.add(blob.sha256)
            yield blob

    def _side_records(self) -> Iterator[Record]:
        archived: dict[UUID, list[tuple[int, int]]] = {}
        for name, match in self._matching(_SHELF):
            kind = _SHELVES[match[1]]
            record = self._archive(name) if kind is Archive else self._record(kind, name)
            if layout.record(kind, [getattr(record, key) for key in kind.primary_key]) != name:
                _refuse(f"{name} holds another record")
            thread_id = getattr(record, OWNED[kind])
            self._positions_of(thread_id, name)
            if getattr(record, "project", self.project) != self.project:
                _refuse(f"{name} belongs to another project")
            if isinstance(record, BlobUse) and record.sha256 not in self._tree.blobs:
                _refuse(f"{name} refers to a blob that is not in it")
            if isinstance(record, Archive):
                archived.setdefault(thread_id, []).append((record.first_position, record.last_position))
            yield record
        for thread_id, (first, _) in self._tree.positions.items():
            reached = 0
            for start, end in sorted(archived.get(thread_id, ())):
                if start != reached + 1:
                    _refuse(f"the archives of thread {thread_id} leave positions out")
                reached = end
            if reached < first - 1:
                _refuse(f"the log of thread {thread_id} begins at {first}, and no archive has the positions before")

    def _archive(self, name: str) -> Archive:
        """Return an archive whose content was unpacked and checked: the store trusts what stands in one."""
        values = _object(self._text(name), name)
        file = str(values.pop("file", ""))
        match = _ARCHIVE.fullmatch(file)
        if match is None or match[1] != str(values.get("thread_id")):
            _refuse(f"{name} refers to {file[:200]!r}, which is not an archive of its thread")
        archive = _checked(Archive, {**values, "content": self._text(file, LONGEST_CONTENT)}, name)
        if archive.encoding != "gzip" or archive.run_id not in self._tree.runs.get(archive.thread_id, ()):
            _refuse(f"{name} is not an archive of a run of its thread")
        digest = sha256()
        position = archive.first_position
        for text in _split(_unpacked(archive.content, file, digest.update), file):
            stitch = _checked(Stitch, _object(text, file), file)
            if stitch.thread_id != archive.thread_id or stitch.position != position:
                _refuse(f"{file} holds a stitch that is not position {position} of its thread")
            if stitch.run_id is not None and stitch.run_id not in self._tree.runs[archive.thread_id]:
                _refuse(f"{file} holds a stitch of a run that is not in the bundle")
            position += 1
        if position != archive.last_position + 1 or digest.hexdigest() != archive.sha256:
            _refuse(f"{file} does not hold the positions that {name} says")
        return archive

    def _letters(self) -> Iterator[Letter]:
        for name, _ in self._matching(_LETTER):
            letter = self._record(Letter, name)
            if layout.letter(letter) != name:
                _refuse(f"{name} holds another delivery")
            self._positions_of(letter.thread_id, name)
            if letter.entry is not None:
                _checked(Entry, letter.entry, name)
            yield letter

    def _record(self, kind: type[R], name: str, **beside: Any) -> R:
        return _checked(kind, {**_object(self._text(name), name), **beside}, name)

    def _positions_of(self, thread_id: UUID | None, name: str) -> tuple[int, int]:
        found = None if thread_id is None else self._tree.positions.get(thread_id)
        if found is None:
            _refuse(f"{name} belongs to a thread that is not in the bundle")
        return found

    def _check_count(self, name: str, number: int) -> None:
        if self._counts.get(name) != number:
            _refuse(f"its manifest says {str(self._counts.get(name))[:40]} {name}, and it holds {number}")


class _BoundedFile(io.FileIO):
    """A file that refuses to be read in large pieces, so that no header of a zip can demand much memory."""

    def read(self, size: int | None = -1, /) -> bytes:
        wanted = _LONGEST_READ + 1 if size is None or size < 0 else size
        content = super().read(wanted) if wanted <= _LONGEST_READ + 1 else b""
        if wanted > _LONGEST_READ + 1 or len(content) > _LONGEST_READ:
            _refuse(f"its directory is larger than {_LONGEST_READ:,} bytes")
        return content


class _Unacceptable(Exception):
    """A bundle that breaks a rule."""


@contextmanager
def _explained(path: Path) -> Generator[None]:
    """Turn the errors of parsers into Refused, with the name of the file."""
    try:
        yield
    except _Unacceptable as exc:
        raise Refused(f"{path} cannot be imported: {exc}. Nothing was written.") from exc
    except Refused as exc:
        raise Refused(f"{path} cannot be imported: {exc}") from exc
    except _BROKEN as exc:
        raise Refused(
            f"{path} is not a bundle that can be read ({type(exc).__name__}: {str(exc)[:200]}). Nothing was written."
        ) from exc


def _refuse(reason: str) -> Never:
    raise _Unacceptable(reason)


def _check_entry(entry: zipfile.ZipInfo) -> None:
    """Refuse entries that are not plain files: folders, links, devices, encrypted or unusually packed ones."""
    mode = entry.external_attr >> 16
    shown = repr(entry.filename[:200])
    if entry.is_dir() or (stat.S_IFMT(mode) and not stat.S_ISREG(mode)):
        _refuse(f"{shown} is not a plain file")
    if entry.flag_bits & _ENCRYPTED:
        _refuse(f"{shown} is encrypted")
    if entry.compress_type not in _READABLE:
        _refuse(f"{shown} is packed in a way that bundles do not use")
    # zipfile cuts a name at a NUL; the entry keeps the name as it was.
    if entry.orig_filename != entry.filename:
        _refuse(f"{entry.orig_filename[:200]!r} is not a name of a document")


def _size(listed: Any, name: str) -> int:
    size: Any = listed["size"]
    if type(size) is not int or not 0 <= size <= LARGEST:
        _refuse(f"its manifest gives {name[:200]!r} the size {str(size)[:40]}")
    if _HASH.fullmatch(str(listed["sha256"])) is None:
        _refuse(f"its manifest gives {name[:200]!r} no checksum")
    return size


def _is_log(path: str) -> bool:
    return _LOG.fullmatch(path.removeprefix(FOLDER)) is not None


def _split(chunks: Iterator[bytes], name: str) -> Iterator[bytes]:
    """Yield the lines of a text that comes in chunks. Raises if a line is too long, or the last one has no end."""
    parts: list[bytes] = []
    length = 0
    for chunk in chunks:
        first, *rest = chunk.split(b"\n")
        parts.append(first)
        length += len(first)
        if length > LONGEST_TEXT:
            _refuse(f"{name} has a line of more than {LONGEST_TEXT:,} bytes")
        for following in rest:
            yield b"".join(parts)
            parts, length = [following], len(following)
    if length:
        _refuse(f"{name} ends in the middle of a line")


def _unpacked(content: bytes, name: str, note: Callable[[bytes], object]) -> Iterator[bytes]:
    """Yield the text of a gzip member in chunks; `note` sees each. Raises if it is too long or does not end."""
    unpacking = zlib.decompressobj(wbits=31)
    size = 0
    rest = content
    while not unpacking.eof:
        part = unpacking.decompress(rest, _CHUNK)
        if not part and not unpacking.unconsumed_tail and not unpacking.eof:
            _refuse(f"{name} is cut off")
        rest = unpacking.unconsumed_tail
        size += len(part)
        if size > LONGEST_CONTENT:
            _refuse(f"{name} unpacks to more than {LONGEST_CONTENT:,} bytes")
        note(part)
        yield part
    if unpacking.unused_data:
        _refuse(f"{name} goes on after its end")


def _bounded(text: bytes, name: str) -> bytes:
    """Return a JSON text that has not too many values. Separators in strings do not count."""
    if len(text) > MOST_VALUES and _values(text) > MOST_VALUES and _values(_STRING.sub(b"", text)) > MOST_VALUES:
        _refuse(f"{name} has a text of more than {MOST_VALUES:,} values")
    return text


def _values(text: bytes) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def _object(text: bytes, name: str) -> Json:
    found = codec.loads(_bounded(text, name))
    if not isinstance(found, dict):
        _refuse(f"{name} holds no JSON object")
    return cast("Json", found)


def _checked(kind: type[R], values: Mapping[str, Any], name: str) -> R:
    """Return the record of values that a stranger wrote. Its model checks them, and numbers have a limit."""
    record = kind(**document.restored(kind, values))
    for column, value in record.__dict__.items():
        if column in _COUNTED and value is not None and not 0 <= value <= LARGEST_NUMBER:
            _refuse(f"{name} has {value} in the field {column}, and {LARGEST_NUMBER} is the largest value")
        if isinstance(value, dict | list):
            codec.dumps(value)
    return record
