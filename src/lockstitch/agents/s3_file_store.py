"""`S3FileStore`: store generated files in an S3 bucket. Needs the extra `s3`."""

import re
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import S3Store

from lockstitch.engine.ports.file_store import place_of
from lockstitch.errors import LockstitchError, NotFound, Refused, StoreReadOnly, StoreUnreachable

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
