"""A commit in the making: the folder as it will be, and the operations that make it so."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from uuid import UUID

from lockstitch.backends.files.folder import Folder
from lockstitch.backends.files.memory import Memory
from lockstitch.backends.files.operations import Delete, Extend, Operation, Put, Write
from lockstitch.backends.files.paths import check
from lockstitch.records import Json, Stitch, codec


class Transaction(Folder):
    """Collects changes and shows them to later steps; nothing is written before the guard commits it.

    One operation is kept per path, the last: a commit that changes a head twice writes it once.
    """

    def __init__(self, root: Path, memory: Memory, *, tolerant: bool = False) -> None:
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
