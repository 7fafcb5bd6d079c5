"""The folder as a reader sees it, while nobody writes."""

import os
from pathlib import Path
from typing import Never, cast

from lockstitch.backends.files.memory import Extent, Memory
from lockstitch.errors import StoreDamaged
from lockstitch.records import Json, codec

UNREADABLE = (ValueError, KeyError, TypeError, AttributeError)
"""What reading something raises that is not what it should be."""


class Torn(Exception):
    """A file is cut off or unreadable: the journal may be able to restore it."""


class Folder:
    """Reads files by their path in the folder, under its lock.

    What looks torn is first left to the journal: `Torn` makes the guard restore what it can and ask again
    with `tolerant`. Then a torn last line is passed over, and other damage is an error that names the file.
    """

    def __init__(self, root: Path, memory: Memory, *, tolerant: bool = False) -> None:
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
            raise Torn(path)
        return lines

    def damaged(self, path: str, what: str, cause: Exception | None = None) -> Never:
        """Say that a file cannot be read, once the journal could not help."""
        if not self.tolerant:
            raise Torn(path) from cause
        raise StoreDamaged(
            f"{self.root / path} is damaged: {what}. Restore this file from a backup; "
            "`lockstitch doctor` shows what else can be read."
        ) from cause
