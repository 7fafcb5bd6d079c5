"""Where one can go: the links at the top of every page, or at the bottom on a phone. Applications add theirs."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the pages: what it is called, where it begins, and the key that follows `g` to go there."""

    name: str
    path: str
    key: str
    scope: str = "read"
    """What a token must allow for the link to be shown."""


SECTIONS: Final = (
    Section("Threads", "/", "t"),
    Section("Stats", "/stats", "s"),
    Section("SQL", "/sql", "q", scope="admin"),
    Section("Workers", "/workers", "w"),
)
"""Those of every server, in the order in which they are shown."""


def with_others(added: Iterable[Section]) -> tuple[Section, ...]:
    """Those of one server: what its applications add stands before the workers."""
    return (*SECTIONS[:-1], *added, SECTIONS[-1])
