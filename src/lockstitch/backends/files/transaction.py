"""The folder as readers see it and as a commit in progress will leave it; the per-process cache."""

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
    """What a log file holds: from which position to which, the last log_id, how many lines and bytes."""

    first: int
    last: int
    log_id: int
    lines: int
    size: int


@dataclass(slots=True)
class Identities:
    """What must be unique in a thread's log: the ids up to a position, and what its chain has followed already."""

    position: int
    ids: set[UUID]
    followed: set[UUID | None]


class Facts(NamedTuple):
    """What never changes of a run that has ended, and is asked for often; a member's run has no turn of its own."""

    sequence: int
    turn: int | None
    ended: bool


class FolderCache(OrderedDict[K, V], Generic[K, V]):
    """A mapping that keeps the newest things only."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def keep(self, key: K, value: V) -> V:
        self[key] = value
        self.move_to_end(key)
        if len(self) > self._most:
            self.popitem(last=False)
        return value


Signature = tuple[int, int, int]
"""A file's number, length and time of change: another content has another one."""


class FolderState:
    def __init__(self) -> None:
        self.extents: FolderCache[str, tuple[Signature, Extent]] = FolderCache(20_000)
        self.identities: FolderCache[UUID, Identities] = FolderCache(200)
        self.runs: FolderCache[UUID, Facts] = FolderCache(20_000)
        self.threads_of_runs: FolderCache[UUID, UUID] = FolderCache(20_000)


UNREADABLE = (ValueError, KeyError, TypeError, AttributeError)
"""What reading something raises that is not what it should be."""


class TornRead(Exception):
    """A file is cut off or unreadable: the journal may be able to restore it."""


class Folder:
    """Reads files by their path in the folder, under its lock.

    What looks torn is first left to the journal: `Torn` makes the guard restore what it can and ask again
    with `tolerant`. Then a torn last line is passed over, and other damage is an error that names the file.
    """

    def __init__(self, root: Path, memory: FolderState, *, tolerant: bool = False) -> None:
        self.root = root
        self._base = f"{root}/"
        self.memory = memory
        self.tolerant = tolerant
        self.with_contents = True
        """Whether records come with the large contents that stand beside them."""
        self.extents: dict[str, Extent | None] = {}
        """Extents that a commit in the making will leave. None: it deletes the file."""

    def document(self, path: str) -> Json | None:
        """The JSON object of a file, None when there is no such file."""
        text = self.content(path)
        if text is None:
            return None
        try:
            value = codec.loads(text)
        except ValueError as exc:
            self.damaged(path, "it is cut off or no JSON", exc)
        if not isinstance(value, dict):
            self.damaged(path, "it holds no JSON object")
        return cast("Json", value)

    def content(self, path: str) -> bytes | None:
        try:
            with open(self._base + path, "rb") as file:
                return file.read()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def names(self, directory: str) -> list[str]:
        """The names in a directory, sorted; hidden ones are temporary and left out."""
        try:
            return sorted(name for name in os.listdir(self._base + directory) if not name.startswith("."))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def is_pending(self, path: str) -> bool:
        """Whether a commit in the making changes this file."""
        return False

    def exists(self, path: str) -> bool:
        return os.path.exists(self._base + path)

    def lines(self, path: str) -> list[bytes]:
        """The whole lines of a file, without their ends."""
        text = self.content(path)
        if not text:
            return []
        *lines, tail = text.split(b"\n")
        if tail and not self.tolerant:
            raise TornRead(path)
        return lines

    def damaged(self, path: str, what: str, cause: Exception | None = None) -> Never:
        """Say that a file cannot be read, once the journal could not help."""
        if not self.tolerant:
            raise TornRead(path) from cause
        raise StoreDamaged(
            f"{self.root / path} is damaged: {what}. Restore this file from a backup; "
            "`lockstitch doctor` shows what else can be read."
        ) from cause


class Transaction(Folder):
    """Collects changes and shows them to later steps; nothing is written before the guard commits it.

    One operation is kept per path, the last: a commit that changes a head twice writes it once.
    """

    def __init__(self, root: Path, memory: FolderState, *, tolerant: bool = False) -> None:
        super().__init__(root, memory, tolerant=tolerant)
        self.operations: dict[str, Operation] = {}
        self.contents: dict[str, bytes] = {}
        """Large contents, by path: written beside the journal, not into it."""
        self.shows: dict[str, list[str]] = {}
        self.appended: dict[UUID, list[Stitch]] = {}

    def put(self, path: str, value: Json) -> None:
        """Write a document. Refused when the value cannot be kept exactly."""
        self._add(Put(path, codec.dumps(value)))

    def write(self, path: str, value: Json) -> None:
        """Write a small document that changes all the time and that nobody looks at without the lock."""
        self._add(Write(path, codec.dumps(value)))

    def store(self, path: str, content: bytes) -> None:
        """Write a file of bytes."""
        self.contents[check(path)] = content

    def remove(self, path: str) -> None:
        """Remove a file or a folder; it need not be there."""
        self.contents.pop(path, None)
        self._add(Delete(path))

    def extend(self, path: str, offset: int, lines: Sequence[bytes]) -> None:
        """Let a file of lines go on at `offset` with these."""
        before = self.operations.get(path)
        if isinstance(before, Extend) and before.end == offset:
            offset, lines = before.offset, [*before.lines, *lines]
        self._add(Extend(path, offset, tuple(lines)))

    def show(self, thread_id: UUID, run_ids: Iterable[UUID] = ()) -> None:
        """Let this thread's projections be rewritten, with the records of these runs."""
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
        # The order of the operations is the order of their last mention.
        self.operations.pop(operation.path, None)
        self.operations[operation.path] = operation
