"""The contract of a file store: where the files that agents make are kept."""

from typing import Protocol
from uuid import UUID


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
