"""`Budget`: limits on the cost of reading one body, and a way to stop a reader from another thread.

The readers of the integrations report their work to a budget. A file that a user imports has no limits. A body that a
client sends to a server has limits, because a few bytes can unpack to gigabytes or to millions of records.
"""

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from lockstitch.errors import BodyTooExpensive

_STEPS: Final = 256
"""Steps between two checks of the clock. A check costs more than a step."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The maximum cost of reading one body."""

    unpacked_bytes: int = 256 << 20
    """Unpacked bytes of gzip or zstd, all layers together."""
    records: int = 100_000
    """Number of records: lines, protobuf requests, parts of a multipart body."""
    items: int = 100_000
    """Number of spans, attachments and feedback, including those that cannot be read."""
    item_bytes: int = 512 << 20
    """Stored bytes of all spans. Each span repeats the resource that its request contains once."""
    memory: int = 256 << 20
    """Approximate bytes of memory for the values of one JSON document."""
    seconds: float = 30.0
    """Seconds of CPU time."""


_VALUES: Final = {"{": 230, "[": 60, ",": 40}
"""Characters that start a JSON value, with the bytes of memory that the value takes."""


class ReadingStopped(Exception):
    """The server is shutting down. The body was not read completely and still waits."""


class Budget:
    """The cost of one body so far.

    One thread reads at a time, inside `running`. `stop` can be called from any thread.
    """

    def __init__(self, limits: Limits | None, clock: Callable[[], float] = time.thread_time) -> None:
        self._limits = limits
        self._clock = clock
        self._unpacked = self._records = self._items = self._item_bytes = self._steps = 0
        self._spent = 0.0
        self._since: float | None = None
        self._stopped = False

    @property
    def limited(self) -> bool:
        """True if the body comes from a client of a server."""
        return self._limits is not None

    @contextmanager
    def running(self) -> Generator[None]:
        """Count the CPU time of the calling thread inside this context."""
        self._since = self._clock()
        try:
            yield
        finally:
            self._spent += self._clock() - self._since
            self._since = None

    def stop(self) -> None:
        """Have the reader raise `ReadingStopped` at its next step."""
        self._stopped = True

    def step(self) -> None:
        """Count one step of a loop that may run long without a record. Raises `ReadingStopped` after `stop`."""
        self._steps += 1
        if self._stopped:
            raise ReadingStopped
        if self._steps % _STEPS == 0:
            self.check_time()

    def pause(self) -> None:
        """Check the clock between two long operations, and let other threads run."""
        self.step()
        self.check_time()

    def check_time(self) -> None:
        if self._limits is None or self._since is None:
            return
        if self._spent + self._clock() - self._since > self._limits.seconds:
            raise BodyTooExpensive(
                f"Reading the body took more than {self._limits.seconds:g} seconds of processor time. "
                "Send smaller batches."
            )

    def unpacked(self, size: int) -> None:
        """Count bytes that came out of gzip or zstd."""
        self.pause()
        self._unpacked += size
        if self._limits is not None and self._unpacked > self._limits.unpacked_bytes:
            raise BodyTooExpensive(
                f"The body unpacks to more than {self._limits.unpacked_bytes:,} bytes. Send smaller batches."
            )

    def weigh(self, content: str | bytes) -> None:
        """Reject JSON with values that would take too much memory. Two bytes can become hundreds."""
        self.step()
        if self._limits is None:
            return
        weight = 2 * len(content) + sum(_count(content, sign) * each for sign, each in _VALUES.items())
        if weight > self._limits.memory:
            raise BodyTooExpensive("The body has more values than one body may have. Send smaller batches.")

    def record(self) -> None:
        """Count one record."""
        self.step()
        self._records += 1
        if self._limits is not None and self._records > self._limits.records:
            raise BodyTooExpensive(f"The body has more than {self._limits.records:,} records. Send smaller batches.")

    def item(self) -> None:
        """Count one span, attachment or feedback."""
        self.pause()
        self._items += 1
        if self._limits is not None and self._items > self._limits.items:
            raise BodyTooExpensive(f"The body has more than {self._limits.items:,} spans. Send smaller batches.")

    def item_size(self, size: int) -> None:
        """Count the stored bytes of one item."""
        self._item_bytes += size
        if self._limits is not None and self._item_bytes > self._limits.item_bytes:
            raise BodyTooExpensive(
                f"The spans of the body take more than {self._limits.item_bytes:,} bytes when they are stored. "
                "Send smaller batches, or a smaller resource."
            )


def _count(content: str | bytes, sign: str) -> int:
    return content.count(sign) if isinstance(content, str) else content.count(sign.encode())


def unlimited() -> Budget:
    """Return a budget without limits, for files that a user imports."""
    return Budget(None)
