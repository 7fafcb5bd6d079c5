"""zstd and gzip streams with a limit on the unpacked size."""

import gzip
import io
from typing import Any, BinaryIO, Final, Protocol, cast

import zstandard

from lockstitch.integrations.spans.budget import Budget, unlimited

ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"

_LARGEST_WINDOW: Final = 128 * 1024 * 1024
"""What a frame may make us hold; `zstd --long` makes none larger."""

_SIP: Final = 1024
"""Bytes of zstd can stand for 128 KB each, and it gives all it has at once: 1 KB in is 32 MB out at worst."""


class ZstdSource(Protocol):
    def read(self, size: int, /) -> bytes: ...


class Zstandard(io.RawIOBase):
    """What is in a stream of frames. EOFError where it is cut off: the library's own reader takes that for the end."""

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
                    raise EOFError("it is cut off")
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
