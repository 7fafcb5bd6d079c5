"""`FileStore`, `NoFileStore`, storage paths."""

import re
from hashlib import sha256
from typing import Final, Protocol
from uuid import UUID

from lockstitch.errors import NotFound, Refused

_UNSAFE: Final = re.compile(r'[\x00-\x1f\x7f/\\:*?"<>|%~\ud800-\udfff]')
"""What separates paths, what some file system refuses, what is no text, and our own two signs."""

_LONGEST: Final = 110
"""Bytes of an id and of a name: together, and with what a writer adds, they stay below 255."""


def place_of(thread_id: UUID, file_id: str, filename: str) -> tuple[str, str]:
    """The folder of a thread and the name of a file in it: {file_id}_{filename}.

    Unsafe characters are percent-encoded and long names shortened to their beginning, a digest and the extension, so
    that no two names become one. The result is never . or .., and has no separator in it.
    """
    if not file_id:
        raise Refused("A file needs an id to be stored under; nothing was written.")
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
    """Keeps files by thread and file id. File names cannot lead out of the thread's own folder.

    Every failure is a LockstitchError.
    """

    name: str

    async def store(self, thread_id: UUID, file_id: str, filename: str, content: bytes) -> str | None:
        """Keep a file, or its new content; where it is kept. None: it is not kept anywhere."""
        ...

    async def retrieve(self, path: str) -> bytes:
        """The content of a file kept at `path`. NotFound when there is none."""
        ...

    async def delete(self, path: str) -> None:
        """Remove a file; one that is gone already is no error."""
        ...


class NoFileStore:
    """Lets every file go; the run still tells of it."""

    name = "none"

    async def store(self, thread_id: UUID, file_id: str, filename: str, content: bytes) -> str | None:
        return None

    async def retrieve(self, path: str) -> bytes:
        raise NotFound(f"There is no file {path}: files are not kept here.")

    async def delete(self, path: str) -> None:
        return None
