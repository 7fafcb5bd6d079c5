"""Formatters by name."""

from typing import Final

from lockstitch.errors import Refused
from lockstitch.runtime.formatter import FormatterMaker
from lockstitch.runtime.formatters.json import JsonFormatter
from lockstitch.runtime.formatters.raw import RawFormatter
from lockstitch.runtime.formatters.xml import XmlFormatter

_KINDS: Final = (JsonFormatter, XmlFormatter, RawFormatter)

NAMES: Final = tuple(kind.name for kind in _KINDS)

_BY_NAME: Final[dict[str, FormatterMaker]] = {kind.name: kind for kind in _KINDS}


def formatter(name: str) -> FormatterMaker:
    """What makes formatters of this name, one for each stream. Refused when there is none."""
    found = _BY_NAME.get(name)
    if found is None:
        raise Refused(f"There is no formatter {name!r}; there are {', '.join(NAMES)}.")
    return found
