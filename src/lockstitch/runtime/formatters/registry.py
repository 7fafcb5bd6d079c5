"""Formatters by name."""

from typing import Final

from lockstitch.errors import Refused
from lockstitch.runtime.formatter import FormatterMaker
from lockstitch.runtime.formatters.json import JsonFormatter
from lockstitch.runtime.formatters.raw import RawFormatter
from lockstitch.runtime.formatters.xml import XmlFormatter

_FORMATTER_CLASSES: Final = (JsonFormatter, XmlFormatter, RawFormatter)

FORMATTER_NAMES: Final = tuple(kind.name for kind in _FORMATTER_CLASSES)

_FORMATTERS: Final[dict[str, FormatterMaker]] = {kind.name: kind for kind in _FORMATTER_CLASSES}


def formatter(name: str) -> FormatterMaker:
    """What makes formatters of this name, one for each stream. Refused when there is none."""
    found = _FORMATTERS.get(name)
    if found is None:
        raise Refused(f"There is no formatter {name!r}; there are {', '.join(FORMATTER_NAMES)}.")
    return found
