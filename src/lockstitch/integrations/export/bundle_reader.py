"""`BundleReader`: the records of a bundle, checked before they are stored.

A bundle can come from an untrusted source. The reader treats it as data: it knows the documents that a bundle can
contain and rejects every other name. It opens no backend on the content and writes no file. Every record is validated
by its model and must belong to the threads of the bundle. `BundleArchive` limits the cost of reading.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, TypeVar
from uuid import UUID

from lockstitch.backends.files import disk, format, schema
from lockstitch.integrations.export import bundle_archive
from lockstitch.integrations.export.bundle_archive import (
    FOLDER,
    BundleArchive,
    bounded,
    explained,
    read_object,
    refuse,
    split,
    unpacked,
)
from lockstitch.model import (
    OWNED_BY_THREAD,
    Archive,
    Blob,
    BlobUse,
    Delivery,
    LiveDelta,
    Record,
    Run,
    ShareLink,
    Stitch,
    Thread,
    as_id,
    codec,
)
from lockstitch.model.stitch import Entry

R = TypeVar("R", bound=Record)

LARGEST_NUMBER: Final = 1 << 40
"""Maximum of numbers that the store increments. At the limit of 64 bits the next claim would fail."""

_COUNTED: Final = frozenset(
    {
        *("position", "context_from", "first_position", "last_position", "input_position", "output_position"),
        *("fence", "delivered", "pending_children", "crashes", "depth", "tries"),
        *("sequence", "turn", "last_sequence", "last_turn", "total_runs", "steps", "step_number"),
        *("reply_to", "call_index", "calls", "version"),
    }
)

_ID: Final = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_NAME: Final = "[A-Za-z0-9_][A-Za-z0-9_.,~-]{0,199}"

_SIDE_RECORDS: Final[Mapping[str, type[Record]]] = {
    kind.table: kind for kind in OWNED_BY_THREAD if kind not in (LiveDelta, ShareLink)
}
"""The side records of a thread by folder name. Live text and share links are never part of a bundle."""


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text, re.ASCII)


_HEAD: Final = _pattern(f"{disk.HEADS}/({_ID})\\.json")
_RUN: Final = _pattern(f"{disk.RUNS}/({_ID})/({_ID})\\.json")
_LOG: Final = _pattern(f"{disk.LOGS}/({_ID})/({_ID}|{disk.OUTSIDE_RUNS})\\.jsonl")
_ARCHIVE: Final = _pattern(f"{disk.LOGS}/({_ID})/{_ID}(?:\\.[0-9]{{1,13}})?\\.jsonl\\.gz")
_DELIVERY: Final = _pattern(f"{disk.INBOX}/({_ID})/{_ID}\\.[0-9a-f]{{32}}\\.json")
_BLOB: Final = _pattern(f"{disk.BLOBS}/([0-9a-f]{{64}})\\.json")
_CONTENT: Final = _pattern(f"{disk.BLOBS}/[0-9a-f]{{64}}")
_SIDE_RECORD: Final = _pattern(f"{disk.SIDE_RECORDS}/({'|'.join(_SIDE_RECORDS)})/{_NAME}\\.json")
_DERIVED: Final = _pattern(
    f"{disk.CONFIGS}/{_ID}\\.json|{disk.HISTORIES}/{_ID}/(?:[0-9]{{3,13}}|index)\\.json|{disk.KEYS}/{_NAME}\\.json"
    f"|{re.escape(disk.COUNTERS)}|{re.escape(disk.APPLIED)}"
)
"""Documents that are derived from the records. Only their checksums are compared."""


@dataclass(slots=True)
class _Tree:
    """The threads and runs of a bundle. Every other record must belong to them."""

    project: str = ""
    order: list[UUID] = field(default_factory=list[UUID])
    """The threads, parents before children."""
    positions: dict[UUID, tuple[int, int]] = field(default_factory=dict[UUID, tuple[int, int]])
    """The first and the last position of each log."""
    runs: dict[UUID, set[UUID]] = field(default_factory=dict[UUID, set[UUID]])
    blobs: set[str] = field(default_factory=set[str])


class BundleReader:
    """Reads one bundle. Use it as a context manager, because it keeps the file open. Not safe for concurrent use."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._tree = _Tree()

    def __enter__(self) -> "BundleReader":
        self._documents = BundleArchive(self._path)
        try:
            with explained(self._path):
                self._check_shape()
        except BaseException:
            self._documents.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._documents.close()

    @property
    def thread_id(self) -> UUID:
        """The thread that was exported."""
        return self._documents.thread_id

    @property
    def project(self) -> str:
        """The project of all threads of the bundle. Known after `threads` was read."""
        return self._tree.project

    def positions(self, thread_id: UUID) -> tuple[int, int]:
        """Return the first and the last position of a thread's log."""
        return self._tree.positions[thread_id]

    def threads(self) -> Iterator[Thread]:
        """Yield the threads, parents before children. Raises `Refused` if they are not one tree of one project."""
        with explained(self._path):
            self._look_at_heads()
            for thread_id in self._tree.order:
                yield self._head(disk.head(thread_id))

    def records(self) -> Iterator[Record]:
        """Yield all records except logs: runs, blobs, then records that refer to them."""
        with explained(self._path):
            yield from self._runs()
            yield from self._blobs()
            yield from self._side_records()
            yield from self._deliveries()
            self._verify_rest()

    def stitches(self) -> Iterator[Stitch]:
        """Yield the stitches of all logs, file by file in the order of their names."""
        with explained(self._path):
            number = 0
            for name, match in self._documents.matching(_LOG):
                thread_id = UUID(match[1])
                run_id = as_id(match[2])
                first, last = self._positions_of(thread_id, name)
                if run_id is not None and run_id not in self._tree.runs[thread_id]:
                    refuse(f"the log {name} belongs to a run that is not in the bundle")
                for text in self._documents.lines(name):
                    stitch = _checked(Stitch, format.decode_stitch(bounded(text, name)).__dict__, name)
                    if stitch.thread_id != thread_id or stitch.run_id != run_id:
                        refuse(f"{name} contains a stitch of another thread or run")
                    if not first <= stitch.position <= last:
                        refuse(f"{name} contains position {stitch.position}, but its thread has {first} to {last}")
                    number += 1
                    yield stitch.changed(log_id=None)
            self._documents.check_count("stitches", number)

    def _check_shape(self) -> None:
        """Reject names that are not documents of a bundle, and documents that are too long for their kind."""
        for name, size in self._documents.sizes.items():
            inner = name.removeprefix(FOLDER)
            known = (_HEAD, _RUN, _LOG, _ARCHIVE, _DELIVERY, _BLOB, _CONTENT, _SIDE_RECORD, _DERIVED)
            if inner == disk.JOURNAL:
                # A journal lists pending writes. A complete bundle has none.
                if size:
                    refuse("its store has a journal with operations that were not applied. Export it again")
            elif not name.startswith(FOLDER) or not (
                inner == disk.STORE or any(pattern.fullmatch(inner) for pattern in known)
            ):
                refuse(f"it contains {name[:200]!r}, which is not a document of a bundle")
            most = bundle_archive.LONGEST_CONTENT
            if size > most and (_CONTENT.fullmatch(inner) or _ARCHIVE.fullmatch(inner)):
                refuse(f"{name} has {size:,} bytes, but only {most:,} are allowed")
        store = read_object(self._documents.text(disk.STORE), disk.STORE)
        if (store.get("format"), store.get("version")) != (schema.FORMAT, schema.VERSION):
            refuse("its store has a layout that this code cannot read")

    def _verify_rest(self) -> None:
        """Compare the checksums of documents that are not read."""
        for name, _ in self._documents.matching(_DERIVED):
            for _ in self._documents.chunks(name):
                pass
        for name in self._documents.unread():
            if name != disk.JOURNAL and _LOG.fullmatch(name) is None:
                refuse(f"no record of it refers to {FOLDER}{name}")

    def _head(self, name: str) -> Thread:
        return self._record(Thread, name)

    def _look_at_heads(self) -> None:
        """Read all threads once: their parents, their project and the positions of their logs."""
        parents: dict[UUID, tuple[UUID | None, int]] = {}
        tree = self._tree = _Tree()
        for name, match in self._documents.matching(_HEAD):
            head = self._head(name)
            if str(head.id) != match[1]:
                refuse(f"{name} contains another thread")
            if tree.project not in ("", head.project):
                refuse("its threads belong to several projects")
            tree.project = head.project
            if not 1 <= head.first_position <= head.position + 1:
                refuse(f"{name} has a log from position {head.first_position} to {head.position}")
            parents[head.id] = (head.parent_id, head.depth)
            tree.positions[head.id] = (head.first_position, head.position)
            tree.runs[head.id] = set()
        if self.thread_id not in parents:
            refuse("the thread that its manifest names is not in it")
        for thread_id, (parent_id, depth) in parents.items():
            if thread_id == self.thread_id:
                if parent_id is not None:
                    refuse("its root thread has a parent that is not in it")
            elif parent_id is None or parent_id not in parents or depth != parents[parent_id][1] + 1:
                refuse(f"thread {thread_id} is not a descendant of the thread that its manifest names")
        tree.order = sorted(parents, key=lambda thread_id: (parents[thread_id][1], thread_id))
        self._documents.check_count("threads", len(parents))

    def _runs(self) -> Iterator[Run]:
        number = 0
        for name, match in self._documents.matching(_RUN):
            run = self._record(Run, name)
            if (str(run.thread_id), str(run.id)) != (match[1], match[2]):
                refuse(f"{name} contains another run")
            self._positions_of(run.thread_id, name)
            self._tree.runs[run.thread_id].add(run.id)
            number += 1
            yield run
        self._documents.check_count("runs", number)

    def _blobs(self) -> Iterator[Blob]:
        for name, match in self._documents.matching(_BLOB):
            content = self._documents.content(disk.blob(match[1]))
            blob = self._record(Blob, name, content=content)
            if blob.sha256 != match[1] or sha256(content).hexdigest() != blob.sha256 or blob.size != len(content):
                refuse(f"{name} does not describe its content")
            self._tree.blobs.add(blob.sha256)
            yield blob

    def _side_records(self) -> Iterator[Record]:
        archived: dict[UUID, list[tuple[int, int]]] = {}
        for name, match in self._documents.matching(_SIDE_RECORD):
            kind = _SIDE_RECORDS[match[1]]
            record = self._archive(name) if kind is Archive else self._record(kind, name)
            if disk.record(kind, [getattr(record, key) for key in kind.primary_key]) != name:
                refuse(f"{name} contains another record")
            thread_id = getattr(record, OWNED_BY_THREAD[kind])
            self._positions_of(thread_id, name)
            if getattr(record, "project", self.project) != self.project:
                refuse(f"{name} belongs to another project")
            if isinstance(record, BlobUse) and record.sha256 not in self._tree.blobs:
                refuse(f"{name} refers to a blob that is not in it")
            if isinstance(record, Archive):
                archived.setdefault(thread_id, []).append((record.first_position, record.last_position))
            yield record
        for thread_id, (first, _) in self._tree.positions.items():
            reached = 0
            for start, end in sorted(archived.get(thread_id, ())):
                if start != reached + 1:
                    refuse(f"the archives of thread {thread_id} do not contain all positions")
                reached = end
            if reached < first - 1:
                refuse(
                    f"the log of thread {thread_id} starts at {first}, but no archive contains the earlier positions"
                )

    def _archive(self, name: str) -> Archive:
        """Return an archive after unpacking and checking its content, because the store trusts archives."""
        values = read_object(self._documents.text(name), name)
        file = str(values.pop("file", ""))
        match = _ARCHIVE.fullmatch(file)
        if match is None or match[1] != str(values.get("thread_id")):
            refuse(f"{name} refers to {file[:200]!r}, which is not an archive of its thread")
        archive = _checked(Archive, {**values, "content": self._documents.content(file)}, name)
        if archive.encoding != "gzip" or archive.run_id not in self._tree.runs.get(archive.thread_id, ()):
            refuse(f"{name} is not an archive of a run of its thread")
        digest = sha256()
        position = archive.first_position
        for text in split(unpacked(archive.content, file, digest.update), file):
            stitch = _checked(Stitch, read_object(text, file), file)
            if stitch.thread_id != archive.thread_id or stitch.position != position:
                refuse(f"{file} contains a stitch that is not position {position} of its thread")
            if stitch.run_id is not None and stitch.run_id not in self._tree.runs[archive.thread_id]:
                refuse(f"{file} contains a stitch of a run that is not in the bundle")
            position += 1
        if position != archive.last_position + 1 or digest.hexdigest() != archive.sha256:
            refuse(f"{file} does not contain the positions that {name} names")
        return archive

    def _deliveries(self) -> Iterator[Delivery]:
        for name, _ in self._documents.matching(_DELIVERY):
            delivery = self._record(Delivery, name)
            if disk.delivery(delivery) != name:
                refuse(f"{name} contains another delivery")
            self._positions_of(delivery.thread_id, name)
            if delivery.entry is not None:
                _checked(Entry, delivery.entry, name)
            yield delivery

    def _record(self, kind: type[R], name: str, **beside: Any) -> R:
        return _checked(kind, {**read_object(self._documents.text(name), name), **beside}, name)

    def _positions_of(self, thread_id: UUID | None, name: str) -> tuple[int, int]:
        matches = None if thread_id is None else self._tree.positions.get(thread_id)
        if matches is None:
            refuse(f"{name} belongs to a thread that is not in the bundle")
        return matches


def _checked(kind: type[R], values: Mapping[str, Any], name: str) -> R:
    """Return a record of untrusted values. Its model validates them, and numbers have a limit."""
    record = kind(**format.restored(kind, values))
    for column, value in record.__dict__.items():
        if column in _COUNTED and value is not None and not 0 <= value <= LARGEST_NUMBER:
            refuse(f"{name} has {value} in the field {column}, but {LARGEST_NUMBER} is the maximum")
        if isinstance(value, dict | list):
            codec.dumps(value)
    return record
