"""`Journal`: the write-ahead journal and its repeatable file operations.

    {"crc":"8d2f01c7","do":[operation, …],"show":{"thread id": ["run id", …]}}

**A commit is one write of one line and one fdatasync.** Only then are the operations applied to the files, without
waiting for the disk again. `journal.applied` contains the byte up to which the journal is applied, and the boot id of
the machine. If a process dies in between, the next process applies the remaining operations before it reads anything.
After a restart of the machine, unsynced writes may be lost, so the whole journal is applied again. A checkpoint waits
until all files of the journal are on the disk, and empties it.

A last line that is incomplete, or has a wrong checksum, was never acknowledged and is dropped. A damaged line before
valid lines raises `StoreDamaged`.

Emptying the journal raises its generation. With it, watchers detect that their position is no longer in the journal.
"""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast
from zlib import crc32

from lockstitch.backends.files import disk
from lockstitch.backends.files.disk import check, locate, refuse
from lockstitch.errors import OutcomeUnknown, StoreDamaged
from lockstitch.model import Json, as_id, codec, new_id
from lockstitch.model.worker import boot_id

LONGEST = 1 << 40
"""Maximum size in bytes of a file of lines."""


@dataclass(frozen=True, slots=True)
class Put:
    """Replace a document by another one."""

    path: str
    text: bytes

    def encode(self) -> bytes:
        return b'{"put":%b,"value":%b}' % (codec.dumps(self.path), self.text)

    def apply(self, root: Path) -> None:
        disk.replace(locate(root, self.path), self.text + b"\n")


@dataclass(frozen=True, slots=True)
class Write:
    """Overwrite a document in place.

    A file system writes a file that replaces another one to disk at once, which costs as much as waiting for the
    journal. So a document that changes with every commit, and is only read under the lock, is overwritten instead.
    """

    path: str
    text: bytes

    def encode(self) -> bytes:
        return b'{"write":%b,"value":%b}' % (codec.dumps(self.path), self.text)

    def apply(self, root: Path) -> None:
        with disk.opened(locate(root, self.path), os.O_WRONLY | os.O_CREAT) as file:
            disk.write(file, self.text + b"\n", 0)
            os.ftruncate(file, len(self.text) + 1)


@dataclass(frozen=True, slots=True)
class Extend:
    """Write lines to a file at an offset and truncate the file after them.

    The offset makes the operation repeatable. If the file has lost its content before the offset, it gets a hole, which
    readers skip.
    """

    path: str
    offset: int
    lines: tuple[bytes, ...]

    @property
    def end(self) -> int:
        """The offset after the last line."""
        return self.offset + sum(len(line) + 1 for line in self.lines)

    def encode(self) -> bytes:
        lines = b",".join(self.lines)
        return b'{"extend":%b,"offset":%d,"lines":[%b]}' % (codec.dumps(self.path), self.offset, lines)

    def apply(self, root: Path) -> None:
        with disk.opened(locate(root, self.path), os.O_WRONLY | os.O_CREAT) as file:
            os.ftruncate(file, self.offset)
            disk.write(file, b"".join(line + b"\n" for line in self.lines), self.offset)


@dataclass(frozen=True, slots=True)
class Copy:
    """Copy a staged file to its place. The staged file stays until the next checkpoint."""

    staged: str
    path: str

    def encode(self) -> bytes:
        return codec.dumps({"copy": self.staged, "to": self.path})

    def apply(self, root: Path) -> None:
        target = locate(root, self.path)
        temporary = disk.temporary(target)
        try:
            disk.copy(locate(root, self.staged), temporary)
        except FileNotFoundError as exc:
            if not target.exists():
                raise StoreDamaged(f"{root / self.staged}, a part of a commit, is missing. Restore a backup.") from exc
            return
        temporary.replace(target)


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove a file, or a directory with its content."""

    path: str

    def encode(self) -> bytes:
        return codec.dumps({"delete": self.path})

    def apply(self, root: Path) -> None:
        place = locate(root, self.path)
        try:
            os.unlink(place)
        except FileNotFoundError:
            return
        except (IsADirectoryError, PermissionError):
            # Unlinking a directory is EISDIR on Linux and EPERM elsewhere.
            if not place.is_dir():
                raise
            shutil.rmtree(place)


Operation = Put | Write | Extend | Copy | Delete


def decode(values: Any) -> Operation:
    """Return the operation of a journal entry.

    Raises `StoreDamaged` if it is malformed or names a path that is not part of a store: another program may have
    written the journal.
    """
    try:
        return _decode_operation(cast("Json", values))
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as exc:
        raise StoreDamaged(
            f"The journal of this store contains an unreadable operation ({exc!r}). Nothing was written. "
            "Restore a backup."
        ) from exc


def _decode_operation(values: Json) -> Operation:
    if "put" in values:
        return Put(check(values["put"]), codec.dumps(values["value"]))
    if "write" in values:
        return Write(check(values["write"]), codec.dumps(values["value"]))
    if "extend" in values:
        offset, lines = values["offset"], cast("Sequence[Any]", values["lines"])
        if type(offset) is not int or not 0 <= offset < LONGEST:
            raise ValueError(f"the offset {offset!r}")
        return Extend(check(values["extend"]), offset, tuple(codec.dumps(line) for line in lines))
    if "copy" in values:
        staged, target = check(values["copy"]), check(values["to"])
        if not staged.startswith(f"{disk.STAGING}/"):
            refuse(staged)
        return Copy(staged, target)
    return Delete(check(values["delete"]))


_MARK_LENGTH = 128
_HEAD = b'{"crc":"%08x",'

Shows = Mapping[str, Sequence[str]]
"""Threads with projections that a commit makes stale, with the runs that ended in it."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One commit: its operations, the stale projections, and the end of its line in bytes."""

    operations: Sequence[Operation]
    shows: Shows
    end: int = 0


class JournalMark(NamedTuple):
    """How far the journal has been applied."""

    boot: str = ""
    generation: int = 0
    applied: int = 0


class Journal:
    """The journal of one folder.

    Every method except `raw_mark` needs the folder's lock. Writing methods need the exclusive lock.
    """

    def __init__(self, root: Path) -> None:
        self._path = root / disk.JOURNAL
        self._mark_path = root / disk.APPLIED
        # If the system has no boot id, trust only the entries that this process has applied.
        self._boot = boot_id() or str(new_id())

    def size(self) -> int:
        """Return the size of the journal in bytes."""
        try:
            return self._path.stat().st_size
        except FileNotFoundError:
            return 0

    def raw_mark(self) -> bytes:
        """Return the raw content of `journal.applied`. It changes with every commit, and reading it is cheap."""
        try:
            with disk.opened(self._mark_path, os.O_RDONLY) as file:
                return os.pread(file, _MARK_LENGTH, 0)
        except FileNotFoundError:
            return b""

    def mark(self) -> JournalMark:
        """Return how far the journal has been applied."""
        try:
            values = cast("Json", codec.loads(self.raw_mark()))
            return JournalMark(values["boot"], values["generation"], values["applied"])
        except (ValueError, KeyError, TypeError):
            return JournalMark()

    def is_applied(self) -> bool:
        """True if all entries of the journal are applied to the files."""
        size = self.size()
        mark = self.mark()
        return size == 0 or (mark.boot == self._boot and mark.applied == size)

    def unapplied_from(self) -> int:
        """Return the byte from which on entries must be applied (again)."""
        mark = self.mark()
        return mark.applied if mark.boot == self._boot and mark.applied <= self.size() else 0

    def set_applied(self, end: int) -> None:
        """Record that all entries before `end` are applied."""
        mark = self.mark()
        # If the journal is shorter than the mark, a process emptied it and died before it updated the mark.
        self._set_mark(JournalMark(self._boot, mark.generation + (end < mark.applied), end))

    def append(self, line: bytes) -> int:
        """Commit: append the line of an entry and wait for the disk. Return its end in bytes.

        If that fails, the line is removed. Raises `OutcomeUnknown` if removing it fails too.
        """
        start = self.size()
        with disk.opened(self._path, os.O_WRONLY | os.O_CREAT) as file:
            try:
                disk.write(file, line, start)
                disk.sync_data(file)
            except OSError as exc:
                try:
                    os.ftruncate(file, start)
                except OSError:
                    raise OutcomeUnknown(
                        f"The disk failed during a commit ({exc}). The commit may or may not be stored. "
                        "Read the thread to find out."
                    ) from exc
                raise
        if start == 0:
            disk.sync(self._path.parent)
        return start + len(line)

    def entries(self, start: int) -> Iterator[Entry]:
        """Yield the entries from a byte on. Stops before an incomplete last line.

        Raises `StoreDamaged` if a damaged line is not the last.
        """
        if start >= self.size():
            return
        with disk.opened(self._path, os.O_RDONLY) as file:
            content = _read(file, start)
        end = start
        lines = content.split(b"\n")
        for number, line in enumerate(lines[:-1]):
            end += len(line) + 1
            entry = _decode(line, end)
            if entry is None:
                if any(_decode(later, 0) for later in lines[number + 1 : -1]):
                    raise StoreDamaged(
                        f"{self._path} is damaged before byte {end}, and commits follow. Restore a backup, or remove "
                        "it to continue with the state of the other files."
                    )
                return
            yield entry

    def cut(self, end: int) -> None:
        """Remove an incomplete line that starts at `end`."""
        if self.size() > end:
            with disk.opened(self._path, os.O_WRONLY) as file:
                os.ftruncate(file, end)

    def empty(self) -> None:
        """Remove all entries, because their files are on the disk.

        The fdatasync of the next commit makes this durable. If the machine fails before, the old entries are applied
        again, to files that already have this content.
        """
        generation = self.mark().generation
        self.cut(0)
        self._set_mark(JournalMark(self._boot, generation + 1, 0))

    def _set_mark(self, mark: JournalMark) -> None:
        text = codec.dumps(mark._asdict()).ljust(_MARK_LENGTH - 1) + b"\n"
        with disk.opened(self._mark_path, os.O_WRONLY | os.O_CREAT) as file:
            disk.write(file, text, 0)


def encode(entry: Entry) -> bytes:
    """Return the line of an entry."""
    body = b'"do":[%b],"show":%b}' % (
        b",".join(operation.encode() for operation in entry.operations),
        codec.dumps(dict(entry.shows)),
    )
    return _HEAD % crc32(body) + body + b"\n"


def _decode(line: bytes, end: int) -> Entry | None:
    length = len(_HEAD % 0)
    body = line[length:]
    if line[:length] != _HEAD % crc32(body):
        return None
    with suppress(ValueError, RecursionError):
        values = cast("Json", codec.loads(line))
        # StoreDamaged is raised here and not suppressed: the line is complete, so dropping it would hide the damage.
        return Entry([decode(operation) for operation in _list(values, "do")], _shows(values), end)
    return None


def _list(values: Json, name: str) -> list[Any]:
    result: Any = values.get(name)
    if not isinstance(result, list):
        raise StoreDamaged(f"The journal of this store contains an entry without {name!r}. Restore a backup.")
    return cast("list[Any]", result)


def _shows(values: Json) -> Shows:
    """Return the threads and runs of an entry. Projections are named after them, so they must be ids."""
    result: Any = values.get("show")
    if not isinstance(result, dict):
        raise StoreDamaged("The journal of this store contains an entry without 'show'. Restore a backup.")
    shows = cast("dict[str, list[Any]]", result)
    for name in (name for thread_id in shows for name in (thread_id, *_list(shows, thread_id))):
        if as_id(str(name)) is None:
            raise StoreDamaged(
                f"The journal of this store contains {str(name)[:200]!r} where an id is needed. Restore a backup."
            )
    return shows


def _read(file: int, start: int) -> bytes:
    parts: list[bytes] = []
    while part := os.pread(file, 1 << 24, start):
        parts.append(part)
        start += len(part)
    return b"".join(parts)
