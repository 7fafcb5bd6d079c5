"""Files that are not kept."""

from uuid import UUID

from lockstitch.errors import NotFound


class NoFileStore:
    """Lets every file go; the run still tells of it."""

    name = "none"

    async def store(self, thread_id: UUID, file_id: str, filename: str, content: bytes) -> str | None:
        return None

    async def retrieve(self, path: str) -> bytes:
        raise NotFound(f"There is no file {path}: files are not kept here.")

    async def delete(self, path: str) -> None:
        return None
