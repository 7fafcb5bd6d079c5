"""The table of OpenAI Agents in a store: states of runs that wait for an approval."""

from typing import Any, ClassVar, Final
from uuid import UUID

import zstandard

from lockstitch.extension import Extension
from lockstitch.model import Record, codec
from lockstitch.model.record import Count


class SavedState(Record):
    """The state of the run of a thread that waits. A new one replaces it."""

    table: ClassVar[str] = "openai_agents_states"
    primary_key: ClassVar[tuple[str, ...]] = ("thread_id",)
    thread_field: ClassVar[str | None] = "thread_id"

    thread_id: UUID
    position: Count
    """Position of the stitch of the pause. If items follow it, the run has continued."""
    content: bytes
    """The JSON of the state, compressed: it repeats the whole conversation."""

    @classmethod
    def of(cls, thread_id: UUID, position: int, state: Any) -> "SavedState":
        """Return the record of a state."""
        return cls(thread_id=thread_id, position=position, content=zstandard.compress(codec.dumps(state)))

    @property
    def state(self) -> Any:
        """The state."""
        return codec.loads(zstandard.decompress(self.content))


EXTENSION: Final = Extension("openai_agents", "lockstitch.integrations.openai_agents.tables", kinds=(SavedState,))
"""The table, for `Store.extend`."""
