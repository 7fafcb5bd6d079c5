"""zstd and gzip streams with a limit on the unpacked size."""

import gzip
import io
from typing import Any, BinaryIO, Final, Protocol, cast

import zstandard

from lockstitch.integrations.spans.budget import Budget, unlimited

ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"

_LARGEST_WINDOW: Final = 128 * 1024 * 1024
"""Maximum window of a frame in bytes. `zstd --long` uses no larger one."""

_SIP: Final = 1024
"""Bytes per read. One byte of zstd can expand to 128 KB and is returned at once, so 1 KB is 32 MB at worst."""


class ZstdSource(Protocol):
    def read(self, size: int, /) -> bytes: ...


class Zstandard(io.RawIOBase):
    """The content of a zstd stream. Raises EOFError if the stream is incomplete, unlike the reader of the library."""

    def __init__(self, stream: ZstdSource, budget: Budget | None = None) -> None:
        self._stream = stream
        self._budget = budget or unlimited()
        self._opener = zstandard.ZstdDecompressor(max_window_size=_LARGEST_WINDOW)
        self._frame: Any = None
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        while not self._rest:
            packed = self._stream.read(_SIP)
            if not packed:
                if self._frame is not None:
                    raise EOFError("it is incomplete")
                return 0
            self._rest = memoryview(self._unpacked(packed))
            self._budget.unpacked(len(self._rest))
        part = self._rest[: len(buffer)]
        buffer[: len(part)] = part
        self._rest = self._rest[len(part) :]
        return len(part)

    def _unpacked(self, packed: bytes) -> bytes:
        pieces: list[bytes] = []
        while packed:
            self._frame = self._frame or self._opener.decompressobj()
            pieces.append(self._frame.decompress(packed))
            packed = self._frame.unused_data if self._frame.eof else b""
            if self._frame.eof:
                self._frame = None
        return b"".join(pieces)


GZIP_MAGIC: Final = b"\x1f\x8b"


class GzipSource(Protocol):
    def read(self, size: int = ..., /) -> bytes: ...


class Gzip(io.RawIOBase):
    """The content of a gzip stream. Raises `EOFError` if the stream is incomplete."""

    def __init__(self, stream: GzipSource, budget: Budget) -> None:
        self._budget = budget
        self._file = gzip.GzipFile(fileobj=cast("BinaryIO", _Counted(stream, budget)), mode="rb")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        # read1 returns the bytes before a defect. Otherwise they would be lost with the error.
        part = self._file.read1(len(buffer))
        self._budget.unpacked(len(part))
        buffer[: len(part)] = part
        return len(part)


class _Counted:
    """The packed stream. Many empty members unpack to nothing, so each read counts as a step too."""

    def __init__(self, stream: GzipSource, budget: Budget) -> None:
        self._stream = stream
        self._budget = budget

    def read(self, size: int = -1, /) -> bytes:
        self._budget.unpacked(0)
        return self._stream.read(size)
