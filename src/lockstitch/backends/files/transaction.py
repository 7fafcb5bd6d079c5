"""`Folder` for readers, `Transaction` with the pending changes of a commit, and the per-process cache."""

import os
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, NamedTuple, Never, TypeVar, cast
from uuid import UUID

from lockstitch.backends.files.disk import check
from lockstitch.backends.files.journal import Delete, Extend, Operation, Put, Write
from lockstitch.errors import StoreDamaged
from lockstitch.model import Json, Stitch, codec

K = TypeVar("K")
V = TypeVar("V")


class Extent(NamedTuple):
    """Summary of a log file: first and last position, last log_id, number of lines and bytes."""

    first: int
    last: int
    log_id: int
    lines: int
    size: int


@dataclass(slots=True)
class Identities:
    """Values that must be unique in a thread's log: the ids up to a position, and the `previous_id`s of its chain."""

    position: int
    ids: set[UUID]
    followed: set[UUID | None]


class Facts(NamedTuple):
    """Facts about a run that are needed often and no longer change once it has ended. A nested run has no turn here."""

    sequence: int
    turn: int | None
    ended: bool


class FolderCache(OrderedDict[K, V], Generic[K, V]):
    """A mapping with a maximum size. It drops the oldest entries."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def keep(self, key: K, value: V) -> V:
        """Store a value and return it. Drop the oldest entry if there are too many."""
        self[key] = value
        self.move_to_end(key)
        if len(self) > self._most:
            self.popitem(last=False)
        return value


Signature = tuple[int, int, int]
"""Inode, size and modification time of a file. They change with its content."""


class FolderState:
    """Per-process cache of the folder. Callers validate an entry before they use it."""

    def __init__(self) -> None:
        self.extents: FolderCache[str, tuple[Signature, Extent]] = FolderCache(20_000)
        self.identities: FolderCache[UUID, Identities] = FolderCache(200)
        self.runs: FolderCache[UUID, Facts] = FolderCache(20_000)
        self.threads_of_runs: FolderCache[UUID, UUID] = FolderCache(20_000)
        self.responses: FolderCache[tuple[UUID, int], Json] = FolderCache(200)
        """Responses with tool calls, by thread and position. Native stitches never change."""


UNREADABLE = (ValueError, KeyError, TypeError, AttributeError)
"""Exceptions that reading malformed data raises."""


class TornRead(Exception):
    """A file is truncated or unreadable. The journal may be able to restore it."""


class Folder:
    """Reads files by their path in the folder, while its lock is held.

    If a file looks damaged, `TornRead` makes the coordinator restore it from the journal and read again with
    `tolerant`. Then an incomplete last line is ignored, and any other damage raises an error that names the file.
    """

    def __init__(self, root: Path, memory: FolderState, *, tolerant: bool = False) -> None:
        self.root = root
        self._base = f"{root}/"
        self.memory = memory
        self.tolerant = tolerant
        self.with_contents = True
        """True if records include the large contents that are stored in separate files."""
        self.extents: dict[str, Extent | None] = {}
        """Extents after the pending commit. None: it deletes the file."""

    def document(self, path: str) -> Json | None:
        """Return the JSON object of a file, or None if there is no such file."""
        text = self.content(path)
        if text is None:
            return None
        try:
            value = codec.loads(text)
        except ValueError as exc:
            self.damaged(path, "it is truncated or not JSON", exc)
        if not isinstance(value, dict):
            self.damaged(path, "it contains no JSON object")
        return cast("Json", value)

    def content(self, path: str) -> bytes | None:
        """Return the bytes of a file, or None if there is no such file."""
        try:
            with open(self._base + path, "rb") as file:
                return file.read()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def names(self, directory: str) -> list[str]:
        """Return the sorted names in a directory, without hidden files, which are temporary."""
        try:
            return sorted(name for name in os.listdir(self._base + directory) if not name.startswith("."))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def is_pending(self, path: str) -> bool:
        """True if the pending commit changes this file."""
        return False

    def exists(self, path: str) -> bool:
        return os.path.exists(self._base + path)

    def lines(self, path: str) -> list[bytes]:
        """Return the complete lines of a file, without line ends."""
        text = self.content(path)
        if not text:
            return []
        *lines, tail = text.split(b"\n")
        if tail and not self.tolerant:
            raise TornRead(path)
        return lines

    def damaged(self, path: str, what: str, cause: Exception | None = None) -> Never:
        """Raise `TornRead` for an unreadable file, or `StoreDamaged` if the journal could not restore it."""
        if not self.tolerant:
            raise TornRead(path) from cause
        raise StoreDamaged(
            f"{self.root / path} is damaged: {what}. Restore this file from a backup. "
            "`lockstitch doctor` shows other problems."
        ) from cause


class Transaction(Folder):
    """Collects changes and shows them to later steps. The coordinator writes them at the commit.

    It contains one operation per path, the last one: a commit that changes a head twice writes it once.
    """

    def __init__(self, root: Path, memory: FolderState, *, tolerant: bool = False) -> None:
        super().__init__(root, memory, tolerant=tolerant)
        self.operations: dict[str, Operation] = {}
        self.contents: dict[str, bytes] = {}
        """Large contents by path. They are written to separate files, not into the journal."""
        self.shows: dict[str, list[str]] = {}
        self.appended: dict[UUID, list[Stitch]] = {}

    def put(self, path: str, value: Json) -> None:
        """Write a document. Raises `Refused` if JSON cannot represent the value exactly."""
        self._add(Put(path, codec.dumps(value)))

    def write(self, path: str, value: Json) -> None:
        """Write a small document that changes with every commit and is only read while the lock is held."""
        self._add(Write(path, codec.dumps(value)))

    def store(self, path: str, content: bytes) -> None:
        """Write a file of bytes."""
        self.contents[check(path)] = content

    def remove(self, path: str) -> None:
        """Remove a file or a directory, if it exists."""
        self.contents.pop(path, None)
        self._add(Delete(path))

    def extend(self, path: str, offset: int, lines: Sequence[bytes]) -> None:
        """Continue a file of lines at `offset` with these lines."""
        before = self.operations.get(path)
        if isinstance(before, Extend) and before.end == offset:
            offset, lines = before.offset, [*before.lines, *lines]
        self._add(Extend(path, offset, tuple(lines)))

    def show(self, thread_id: UUID, run_ids: Iterable[UUID] = ()) -> None:
        """Mark the projections of this thread, and the records of these runs, to be rewritten."""
        runs = self.shows.setdefault(str(thread_id), [])
        runs.extend(str(run_id) for run_id in run_ids if str(run_id) not in runs)

    def document(self, path: str) -> Json | None:
        operation = self.operations.get(path)
        if isinstance(operation, Put | Write):
            return codec.loads(operation.text)
        return None if isinstance(operation, Delete) else super().document(path)

    def names(self, directory: str) -> list[str]:
        names = set(super().names(directory))
        for path, operation in self.operations.items():
            parent, _, name = path.rpartition("/")
            if parent != directory:
                continue
            if isinstance(operation, Delete):
                names.discard(name)
            else:
                names.add(name)
        return sorted(names)

    def is_pending(self, path: str) -> bool:
        return path in self.operations

    def exists(self, path: str) -> bool:
        operation = self.operations.get(path)
        return super().exists(path) if operation is None else not isinstance(operation, Delete)

    def _add(self, operation: Operation) -> None:
        check(operation.path)
        # Operations are in the order of the last change of their path.
        self.operations.pop(operation.path, None)
        self.operations[operation.path] = operation
