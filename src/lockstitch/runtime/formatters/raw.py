"""The provider's own events, one JSON object per frame."""

from lockstitch.records import codec
from lockstitch.runtime.event import Event


class RawFormatter:
    """Passes on what the provider sent, unchanged, and nothing else."""

    name = "raw"

    def __init__(self, detail: bool = False) -> None:
        # There is nothing to show or to leave out: these are not our events.
        del detail

    def feed(self, event: Event) -> list[str]:
        return [codec.dumps(event.data).decode()] if event.type == "raw" else []

    def end(self) -> list[str]:
        return []
