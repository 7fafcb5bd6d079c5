"""`Share`: the records of a source that one of several processes reads."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

T = TypeVar("T")

STRETCH: Final = 512 << 10
"""Minimum bytes of a stretch: the records that one process reads before the next one continues."""


@dataclass(slots=True)
class Share:
    """Every n-th stretch of the records. All processes read the source, but each one parses only its own records."""

    index: int = 0
    count: int = 1
    length: int = STRETCH
    stretch: int = 0
    """The number of the stretch of the last record."""

    def of(self, records: Iterable[T], size: Callable[[T], int]) -> Iterator[T]:
        """Yield the records of this share. `size` returns the bytes of a record, at least approximately."""
        stretch = read = 0
        for record in records:
            if read >= self.length:
                stretch, read = stretch + 1, 0
            read += size(record)
            if stretch % self.count == self.index:
                self.stretch = stretch
                yield record

    def whole(self, records: Iterable[T]) -> Iterator[T]:
        """Yield all records if this is the first share, for records that must stay together."""
        if self.index == 0:
            yield from records
