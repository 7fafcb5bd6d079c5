"""The contract of a formatter: events become frames of text for a stream."""

from collections.abc import Callable
from typing import Protocol

from lockstitch.runtime.event import Event


class Formatter(Protocol):
    """One stream's formatter. It may remember what it opened, so that it can close it."""

    name: str

    def feed(self, event: Event) -> list[str]:
        """The frames that tell of `event`; none where this format leaves it out."""
        ...

    def end(self) -> list[str]:
        """What closes the stream."""
        ...


FormatterMaker = Callable[[bool], Formatter]
"""Makes a formatter for one stream; whether it shows metadata, history and tool results."""
