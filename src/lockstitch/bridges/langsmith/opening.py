"""Bytes on their way in: looked at before they are read, unpacked on the way, never all in memory."""

import io
import zlib
from collections.abc import Callable
from typing import Final

import zstandard

from lockstitch.bridges.budget import Budget, unlimited
from lockstitch.bridges.gzipped import GZIP_MAGIC as GZIP_MAGIC
from lockstitch.bridges.gzipped import Gzip
from lockstitch.bridges.zstd import ZSTD_MAGIC, Zstandard

CHUNK: Final = 1 << 20

_PACKED: Final = 4


class Source:
    """A stream that can be looked at. One that breaks ends there, and says why when asked."""

    def __init__(self, read: Callable[[int], bytes], ahead: bytes = b"", budget: Budget | None = None) -> None:
        self.budget = budget or unlimited()
        self._read = read
        self._ahead = ahead
        self._under: Source | None = None
        self._failure: str | None = None

    @property
    def failure(self) -> str | None:
        return self._failure or (self._under.failure if self._under else None)

    def peek(self, size: int) -> bytes:
        """The next bytes, without taking them; fewer only at the end."""
        while len(self._ahead) < size and (more := self._next(size)):
            self._ahead += more
        return self._ahead[:size]

    def read(self, size: int = CHUNK) -> bytes:
        """The next bytes, at most so many; none at the end."""
        if self._ahead:
            taken, self._ahead = self._ahead[:size], self._ahead[size:]
            return taken
        return self._next(size)

    def unpacked(self) -> "Source":
        """What is inside, if this is packed; packed in packed too, but not without end."""
        source = self
        for _ in range(_PACKED):
            if source.peek(2) == GZIP_MAGIC:
                inner = Source(io.BufferedReader(Gzip(source, self.budget), CHUNK).read1, budget=self.budget)
            elif source.peek(4) == ZSTD_MAGIC:
                inner = Source(io.BufferedReader(Zstandard(source, self.budget), CHUNK).read1, budget=self.budget)
            else:
                break
            inner._under = source
            source = inner
        return source

    def _next(self, size: int) -> bytes:
        if self._failure is not None:
            return b""
        try:
            return self._read(size)
        except EOFError:
            self._failure = "the packed data ends too early"
        except (OSError, zlib.error, zstandard.ZstdError) as exc:
            self._failure = f"it cannot be unpacked or read: {exc}"
        return b""
