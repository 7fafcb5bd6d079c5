"""`LocalFileStore`: store generated files in a folder."""

import errno
import os
from pathlib import Path
from uuid import UUID, uuid4

from lockstitch.engine.concurrency import run_blocking
from lockstitch.engine.ports.file_store import place_of
from lockstitch.errors import LockstitchError, NotFound, Refused, StoreError, StoreFull, StoreReadOnly


class LocalFileStore:
    """Stores files in a folder. A file is complete and on the disk when `store` returns, or it does not exist."""

    name = "local"

    def __init__(self, base: str | os.PathLike[str]) -> None:
        # Absolute, because the path is stored and the next process may have another current folder.
        self.base = Path(base).expanduser().absolute()

    async def store(self, thread_id: UUID, file_id: str, filename: str, content: bytes) -> str | None:
        folder, name = place_of(thread_id, file_id, filename)
        path = self.base / folder / name
        await run_blocking(lambda: _write(path, content))
        return str(path)

    async def retrieve(self, path: str) -> bytes:
        return await run_blocking(lambda: _read(self._inside(path)))

    async def delete(self, path: str) -> None:
        await run_blocking(lambda: _remove(self._inside(path)))

    def _inside(self, path: str) -> Path:
        """Return the resolved path. Raises `Refused` unless it is exactly two levels below the base folder."""
        try:
            result = Path(path).resolve()
            inside = result.relative_to(self.base.resolve())
        except ValueError as exc:
            raise Refused(f"{path!r} is not in the file store {self.base}.") from exc
        if len(inside.parts) != 2:
            raise Refused(f"{path!r} is not a file of the file store {self.base}.")
        return result


def _write(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{uuid4().hex}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)
    except OSError as exc:
        raise _translated(exc, path) from exc


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as exc:
        raise _translated(exc, path) from exc


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except NotADirectoryError:
        return
    except OSError as exc:
        raise _translated(exc, path) from exc


def _sync_folder(folder: Path) -> None:
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _translated(exc: OSError, path: Path) -> LockstitchError:
    if isinstance(exc, FileNotFoundError):
        return NotFound(f"File {path} not found.")
    if isinstance(exc, PermissionError) or exc.errno == errno.EROFS:
        return StoreReadOnly(f"No access to file {path}. Check the permissions of its folder.")
    if exc.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreFull()
    return StoreError(f"File {path} cannot be stored or read: {exc}.")
