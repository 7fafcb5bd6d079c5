"""Where one can go: the links at the top of every page, or at the bottom on a phone. Apps add theirs."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the pages: what it is called, where it begins, and the key that follows `g` to go there."""

    name: str
    path: str
    key: str
    scope: str = "read"
    """What a token must allow for the link to be shown."""


SECTIONS: list[Section] = [
    Section("Threads", "/", "t"),
    Section("Stats", "/stats", "s"),
    Section("SQL", "/sql", "q", scope="admin"),
    Section("Workers", "/workers", "w"),
]
"""In the order in which they are shown; `add` is for apps."""


def add(section: Section) -> None:
    """Show another section, before that of the workers; once, however often it is added."""
    if section not in SECTIONS:
        SECTIONS.insert(len(SECTIONS) - 1, section)
