"""No memory: every thread begins without knowing of others."""

from collections.abc import Sequence

from lockstitch.records import Json, Message
from lockstitch.runtime.memory import Retrieved, Scope, Updated


class NoMemoryStore:
    """Brings nothing in and keeps nothing."""

    name = "none"

    @property
    def parameters(self) -> Json:
        return {}

    async def retrieve(self, scope: Scope, message: Message) -> Retrieved:
        return Retrieved()

    async def update(self, scope: Scope, messages: Sequence[Message]) -> Updated | None:
        return None

    async def before_compact(self, scope: Scope, messages: Sequence[Message]) -> Json | None:
        return None

    async def after_compact(self, scope: Scope, messages: Sequence[Message]) -> Json | None:
        return None
