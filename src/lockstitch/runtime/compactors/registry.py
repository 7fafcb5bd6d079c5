"""Compactors by name."""

from collections.abc import Callable
from typing import Any, Final

from lockstitch.errors import Refused
from lockstitch.runtime.compactor import Compactor
from lockstitch.runtime.compactors.none import NoCompactor
from lockstitch.runtime.compactors.sliding_window import SlidingWindowCompactor
from lockstitch.runtime.compactors.summarizing import SummarizingCompactor
from lockstitch.runtime.compactors.tool_result_removal import ToolResultRemovalCompactor

_COMPACTOR_CLASSES: Final = (NoCompactor, ToolResultRemovalCompactor, SlidingWindowCompactor, SummarizingCompactor)

COMPACTOR_NAMES: Final = tuple(kind.name for kind in _COMPACTOR_CLASSES)

_COMPACTORS: Final[dict[str, Callable[..., Compactor]]] = {
    **{kind.name: kind for kind in _COMPACTOR_CLASSES},
    # How older records name them.
    **{kind.__name__: kind for kind in _COMPACTOR_CLASSES},
    "placeholder": NoCompactor,
}


def compactor(name: str, **parameters: Any) -> Compactor:
    """The compactor of this name, made with these parameters. Refused when there is none, or it does not take them."""
    kind = _COMPACTORS.get(name)
    if kind is None:
        raise Refused(f"There is no compactor {name!r}; there are {', '.join(COMPACTOR_NAMES)}.")
    try:
        return kind(**parameters)
    except TypeError as exc:
        raise Refused(f"The compactor {name} does not take these parameters: {exc}") from exc
