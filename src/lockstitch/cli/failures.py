"""`causes`: failures grouped by their cause."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from lockstitch.cli.render import messages
from lockstitch.cli.render.output import one_line
from lockstitch.model import Stitch, codec

_VARYING: Final = re.compile(r"\b(?=[0-9a-f-]*[0-9])[0-9a-f]{8}[0-9a-f-]*\b|\d+(?:[.,:]\d+)*", re.IGNORECASE)
"""Ids and numbers, which differ between failures with the same cause."""

_COMPARED: Final = 500
"""Number of characters of an error text that are compared."""


@dataclass(slots=True)
class Cause:
    """Failures of one type with the same text, apart from ids and numbers."""

    type: str
    """Type of the stitches."""
    name: str
    """Tool, model or span that failed."""
    text: str
    """Text of the latest failure."""
    failures: list[Stitch] = field(default_factory=list[Stitch])
    """The failures, newest first."""

    @property
    def threads(self) -> list[UUID]:
        """Ids of the threads, each once, the latest failure first."""
        return list(dict.fromkeys(stitch.thread_id for stitch in self.failures))


def causes(stitches: Iterable[Stitch]) -> list[Cause]:
    """Return the failures by cause, the most frequent cause first.

    Args:
        stitches: Failures, newest first.
    """
    grouped: dict[tuple[str, str, str], Cause] = {}
    for stitch in stitches:
        text = failure_text(stitch)
        cause = Cause(stitch.type, one_line(stitch.name), text)
        grouped.setdefault((cause.type, cause.name, cause_key(text)), cause).failures.append(stitch)
    return sorted(grouped.values(), key=lambda cause: -len(cause.failures))


def cause_key(text: str) -> str:
    """Return the start of an error text without ids and numbers. Failures with an equal text have the same cause."""
    return _VARYING.sub("…", text[:_COMPARED])


def failure_text(stitch: Stitch) -> str:
    """Return the error of a stitch on one line. For a tool, the class of the exception comes first."""
    problem, name = messages.complaint(stitch), stitch.data.get("type")
    if stitch.type == "tool_error" and problem and isinstance(name, str) and name not in problem:
        return f"{one_line(name)}: {problem}"
    answer = messages.as_line(stitch.message) if stitch.message is not None else ""
    return problem or answer or (one_line(codec.dumps(stitch.data).decode()) if stitch.data else "")


def limited(names: Sequence[str], most: int) -> str:
    """Return the first names, and the number of the remaining ones."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"
