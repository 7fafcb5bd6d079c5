"""`LocalFileStore` and `S3FileStore`: store generated files in a folder or an S3 bucket."""

import errno
import os
import re
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from uuid import UUID, uuid4

from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import S3Store

from lockstitch.engine.concurrency import run_blocking
from lockstitch.engine.ports.file_store import place_of
from lockstitch.errors import LockstitchError, NotFound, Refused, StoreError, StoreFull, StoreReadOnly, StoreUnreachable

_FILE: Final = re.compile(r"[0-9a-f-]{36}/[^/]+_[^/]*")
_MISSING_BUCKET: Final = "NoSuchBucket"


class S3FileStore:
    """Stores files in a bucket of any S3 service. Credentials and defaults come from the AWS environment variables."""

    name = "s3"

    def __init__(
        self, bucket: str, prefix: str = "", *, endpoint: str | None = None, region: str | None = None
    ) -> None:
        self.bucket = bucket
        self.prefix = prefix.strip("/")
        values: dict[str, Any] = {"endpoint": endpoint, "region": region}
        try:
            self._objects = S3Store(
                bucket,
                client_options={"allow_http": bool(endpoint and endpoint.startswith("http://"))},
                retry_config={"max_retries": 3, "retry_timeout": timedelta(seconds=30)},
                **{name: value for name, value in values.items() if value},
            )
        except (BaseError, ValueError) as exc:
            raise Refused(f"The bucket {bucket} cannot be opened: {_reason(exc)}") from exc

    async def store(self, thread_id: UUID, file_id: str, filename: str, content: bytes) -> str | None:
        key = self._root + "/".join(place_of(thread_id, file_id, filename))
        path = f"s3://{self.bucket}/{key}"
        try:
            await self._objects.put_async(key, content)
        except (BaseError, OSError, ValueError) as exc:
            raise _translated_s3(exc, path) from exc
        return path

    async def retrieve(self, path: str) -> bytes:
        key = self._key(path)
        try:
            get_result = await self._objects.get_async(key)
            return bytes(await get_result.bytes_async())
        except (BaseError, OSError, ValueError) as exc:
            raise _translated_s3(exc, path) from exc

    async def delete(self, path: str) -> None:
        key = self._key(path)
        try:
            await self._objects.delete_async(key)
        except (BaseError, OSError, ValueError) as exc:
            problem = _translated_s3(exc, path)
            if not isinstance(problem, NotFound):
                raise problem from exc

    @property
    def _root(self) -> str:
        return f"{self.prefix}/" if self.prefix else ""

    def _key(self, path: str) -> str:
        """Return the key of a path. Raises `Refused` if the path is not one of this store."""
        root = f"s3://{self.bucket}/{self._root}"
        rest = path.removeprefix(root)
        if not path.startswith(root) or not _FILE.fullmatch(rest):
            raise Refused(f"{path!r} is not a file of the file store {root}.")
        return self._root + rest


def _translated_s3(exc: Exception, path: str) -> LockstitchError:
    if isinstance(exc, FileNotFoundError) and _MISSING_BUCKET not in str(exc):
        return NotFound(f"File {path} not found.")
    if isinstance(exc, PermissionDeniedError | UnauthenticatedError | PermissionError):
        return StoreReadOnly(f"These credentials do not allow access to file {path}: {_reason(exc)}")
    return StoreUnreachable(f"File {path} cannot be stored or read: {_reason(exc)}")


def _reason(exc: Exception) -> str:
    """Return the first line of an error. The other lines are a trace of the client."""
    return str(exc).partition("\n")[0][:300]


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
