"""Memories by name."""

from collections.abc import Callable
from typing import Any, Final

from lockstitch.errors import Refused
from lockstitch.runtime.memories.none import NoMemoryStore
from lockstitch.runtime.memories.record import RecordMemoryStore
from lockstitch.runtime.memory import MemoryStore

_MEMORY_CLASSES: Final = (NoMemoryStore, RecordMemoryStore)

MEMORY_NAMES: Final = tuple(kind.name for kind in _MEMORY_CLASSES)

_MEMORIES: Final[dict[str, Callable[..., MemoryStore]]] = {
    **{kind.name: kind for kind in _MEMORY_CLASSES},
    # How older records name them.
    **{kind.__name__: kind for kind in _MEMORY_CLASSES},
    "placeholder": NoMemoryStore,
    "PlaceholderMemoryStore": NoMemoryStore,
}


def memory_store(name: str, **parameters: Any) -> MemoryStore:
    """The memory of this name, made with these parameters. Refused when there is none, or it does not take them."""
    kind = _MEMORIES.get(name)
    if kind is None:
        raise Refused(f"There is no memory {name!r}; there are {', '.join(MEMORY_NAMES)}.")
    try:
        return kind(**parameters)
    except TypeError as exc:
        raise Refused(f"The memory {name} does not take these parameters: {exc}") from exc
