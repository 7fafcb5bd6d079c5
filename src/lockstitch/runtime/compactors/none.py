"""No compaction: a context grows until the model refuses it."""

from lockstitch.records import Json
from lockstitch.runtime.compactor import Compacted, Sight, Summarize


class NoCompactor:
    """Leaves every context as it is."""

    name = "none"

    @property
    def threshold(self) -> int | None:
        return None

    @property
    def parameters(self) -> Json:
        return {}

    async def compact(self, sight: Sight, summarize: Summarize) -> Compacted | None:
        return None
