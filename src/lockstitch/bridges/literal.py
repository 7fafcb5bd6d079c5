"""Values that somebody wrote down as Python prints them: read, never run."""

import ast
import warnings
from typing import Any, Final

from lockstitch.bridges.storable import as_text, parse

LONGEST: Final = 100_000
"""Characters of a text that is read so."""


def literal(words: str) -> Any:
    """The value of a Python literal, as JSON has it; None if it is none."""
    if len(words) > LONGEST:
        return None
    try:
        with warnings.catch_warnings():
            # A stray backslash in somebody's text is not our program's mistake.
            warnings.simplefilter("ignore")
            found = ast.literal_eval(words)
        # Written and read again: what is a tuple or a set in Python is a list in JSON.
        return found if isinstance(found, str) else parse(as_text(found))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
