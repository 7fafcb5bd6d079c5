"""What one process remembers between two looks at the folder. Whoever uses it sees first that it still holds."""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar
from uuid import UUID

K = TypeVar("K")
V = TypeVar("V")


class Extent(NamedTuple):
    """What a log file holds: from which position to which, the last log_id, how many lines and bytes."""

    first: int
    last: int
    log_id: int
    lines: int
    size: int


@dataclass(slots=True)
class Identities:
    """What must be unique in a thread's log: the ids up to a position, and what its chain has followed already."""

    position: int
    ids: set[UUID]
    followed: set[UUID | None]


class Facts(NamedTuple):
    """What never changes of a run that has ended, and is asked for often; a member's run has no turn of its own."""

    sequence: int
    turn: int | None
    ended: bool


class Recollection(OrderedDict[K, V], Generic[K, V]):
    """A mapping that keeps the newest things only."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def keep(self, key: K, value: V) -> V:
        self[key] = value
        self.move_to_end(key)
        if len(self) > self._most:
            self.popitem(last=False)
        return value


Signature = tuple[int, int, int]
"""A file's number, length and time of change: another content has another one."""


class Memory:
    def __init__(self) -> None:
        self.extents: Recollection[str, tuple[Signature, Extent]] = Recollection(20_000)
        self.identities: Recollection[UUID, Identities] = Recollection(200)
        self.runs: Recollection[UUID, Facts] = Recollection(20_000)
        self.threads_of_runs: Recollection[UUID, UUID] = Recollection(20_000)
