"""`Gzip`: a gzip stream that a budget limits while it is unpacked."""

import gzip
import io
from typing import Any, BinaryIO, Final, Protocol, cast

from lockstitch.bridges.budget import Budget

GZIP_MAGIC: Final = b"\x1f\x8b"


class GzipSource(Protocol):
    def read(self, size: int = ..., /) -> bytes: ...


class Gzip(io.RawIOBase):
    """The content of a gzip stream. `EOFError` where the stream is cut off."""

    def __init__(self, stream: GzipSource, budget: Budget) -> None:
        self._budget = budget
        self._file = gzip.GzipFile(fileobj=cast("BinaryIO", _Counted(stream, budget)), mode="rb")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        # read1: bytes that came out before the data broke are returned, not lost with the error.
        part = self._file.read1(len(buffer))
        self._budget.unpacked(len(part))
        buffer[: len(part)] = part
        return len(part)


class _Counted:
    """The packed stream. A stream of many empty members unpacks to nothing, so each read is a step too."""

    def __init__(self, stream: GzipSource, budget: Budget) -> None:
        self._stream = stream
        self._budget = budget

    def read(self, size: int = -1, /) -> bytes:
        self._budget.unpacked(0)
        return self._stream.read(size)
