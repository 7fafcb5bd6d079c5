"""`FileStore`: the interface of components that store generated files. `NoFileStore` stores nothing."""

import re
from hashlib import sha256
from typing import Final, Protocol
from uuid import UUID

from lockstitch.errors import NotFound, Refused

_UNSAFE: Final = re.compile(r'[\x00-\x1f\x7f/\\:*?"<>|%~\ud800-\udfff]')
"""Path separators, characters that some file systems refuse, surrogates, and the two characters that `_safe` uses."""

_LONGEST: Final = 110
"""Maximum bytes of an id and of a name. Together with suffixes of a writer they stay below 255."""


def place_of(thread_id: UUID, file_id: str, filename: str) -> tuple[str, str]:
    """Return the folder of a thread and the name of a file in it: {file_id}_{filename}.

    Unsafe characters are percent-encoded. A long name becomes its first characters, a digest and the extension, so that
    different names stay different. The result is never `.` or `..` and contains no separator. Raises `Refused` if
    `file_id` is empty.
    """
    if not file_id:
        raise Refused("A file needs an id. Nothing was written.")
    return str(thread_id), f"{_safe(file_id)}_{_safe(filename)}"


def _safe(name: str) -> str:
    safe = _UNSAFE.sub(lambda match: _encoded(match.group()), name)
    if len(safe.encode()) <= _LONGEST:
        return safe
    digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    stem, dot, extension = safe.rpartition(".")
    ending = f"~{digest}" + (f".{extension}" if dot and len(extension.encode()) <= 16 else "")
    begin = stem if "." in ending else safe
    return begin.encode()[: _LONGEST - len(ending.encode())].decode(errors="ignore") + ending


def _encoded(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode("utf-8", "surrogatepass"))


class FileStore(Protocol):
    """Stores files by thread and file id. A file name cannot lead out of the folder of its thread.

    Methods raise only `LockstitchError`. They are called from many tasks.
    """

    name: str
    """The registered name."""

    async def store(self, thread_id: UUID, file_id: str, filename: str, content: bytes) -> str | None:
        """Store a file or its new content. Return its path, or None if it is not stored."""
        ...

    async def retrieve(self, path: str) -> bytes:
        """Return the content of the file at `path`. Raises `NotFound` if there is none."""
        ...

    async def delete(self, path: str) -> None:
        """Delete a file. A missing file is not an error."""
        ...


class NoFileStore:
    """A file store that stores nothing. The run still records the file."""

    name = "none"

    async def store(self, thread_id: UUID, file_id: str, filename: str, content: bytes) -> str | None:
        return None

    async def retrieve(self, path: str) -> bytes:
        raise NotFound(f"File {path} not found: this agent has no file store.")

    async def delete(self, path: str) -> None:
        return None
