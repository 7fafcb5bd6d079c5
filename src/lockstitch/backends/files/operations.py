"""What a commit does to files. Every operation may be repeated: doing it twice, or once more after later ones were
done and are done again too, ends at the same bytes. That is what makes a journal of them enough."""

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from lockstitch.backends.files import disk, layout
from lockstitch.backends.files.paths import check, locate, refuse
from lockstitch.errors import StoreDamaged
from lockstitch.records import Json, codec

LONGEST = 1 << 40
"""Bytes that a file of lines may have."""


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
    """Overwrite a document where it stands.

    A file system hurries to write a file that replaces another, which costs as much as waiting for the journal. So
    what changes with every commit and is read by nobody else is not replaced.
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
    """Let a file of lines go on at an offset with these lines; whatever stood after it is gone.

    The offset makes it repeatable. A file that lost what stood before it gets a hole, which reading passes over.
    """

    path: str
    offset: int
    lines: tuple[bytes, ...]

    @property
    def end(self) -> int:
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
    """Put a file in place that was written beside the journal; it stays there until the next checkpoint."""

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
    """Remove a file, or a folder with all that is in it."""

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
            # Unlinking a folder is EISDIR on Linux and EPERM elsewhere.
            if not place.is_dir():
                raise
            shutil.rmtree(place)


Operation = Put | Write | Extend | Copy | Delete


def decode(values: Any) -> Operation:
    """Return the operation of a journal's entry.

    Raises StoreDamaged if it is malformed or names a path that is not one of the store: a journal may come from a
    program that is not Lockstitch.
    """
    try:
        return _decode_operation(cast("Json", values))
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as exc:
        raise StoreDamaged(
            f"The journal of this store holds an operation that cannot be read ({exc!r}). Nothing was written. "
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
        if not staged.startswith(f"{layout.STAGING}/"):
            refuse(staged)
        return Copy(staged, target)
    return Delete(check(values["delete"]))
