"""Files in a folder: {base}/{thread_id}/{file_id}_{filename}."""

import errno
import os
from pathlib import Path
from uuid import UUID, uuid4

from lockstitch.errors import LockstitchError, NotFound, Refused, StoreError, StoreFull, StoreReadOnly
from lockstitch.runtime.blocking import run_blocking
from lockstitch.runtime.file_stores.naming import place_of


class LocalFileStore:
    """A file is there whole or not at all, and on the disk when `store` returns."""

    name = "local"

    def __init__(self, base: str | os.PathLike[str]) -> None:
        # Absolute, since the path is remembered and the next process may start elsewhere.
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
        """The file at `path`, if that can be one of ours: two names below the base, links followed."""
        try:
            found = Path(path).resolve()
            inside = found.relative_to(self.base.resolve())
        except ValueError as exc:
            raise Refused(f"{path!r} is not in the file store {self.base}.") from exc
        if len(inside.parts) != 2:
            raise Refused(f"{path!r} is no file of the file store {self.base}.")
        return found


def _write(path: Path, content: bytes) -> None:
    draft = path.with_name(f".{uuid4().hex}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with draft.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        except BaseException:
            draft.unlink(missing_ok=True)
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
        return NotFound(f"There is no file {path}.")
    if isinstance(exc, PermissionError) or exc.errno == errno.EROFS:
        return StoreReadOnly(f"The file {path} cannot be reached. Check the permissions of its folder.")
    if exc.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreFull()
    return StoreError(f"The file {path} cannot be kept or read: {exc}.")
