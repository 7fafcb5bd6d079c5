"""What a database did not like about a query: where that stands, and what was probably meant."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

_COLUMN: Final = re.compile(r"no such column: ([\w.\"]+)|column \"?([\w.]+)\"? does not exist", re.IGNORECASE)
_TABLE: Final = re.compile(r"no such table: ([\w.]+)|relation \"([\w.]+)\" does not exist", re.IGNORECASE)
_NEAR: Final = re.compile(r"(?:at or )?near \"(.+?)\"", re.IGNORECASE)
_HIDDEN: Final = re.compile(r"'(?:[^']|'')*'|--[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Complaint:
    """What is wrong. `line` and `column` count from 1; 0 where nobody knows."""

    message: str
    line: int = 0
    column: int = 0
    meant: str = ""
    """What the lens calls it."""
    mended: str = ""
    """The query with that put in."""


def complaint(message: str, query: str, tables: Mapping[str, Sequence[str]]) -> Complaint:
    """A database's complaint about a query over these tables, by name with the names of their columns."""
    text = message.partition("refused the query: ")[2].rstrip(".") or message
    for pattern, is_column in ((_COLUMN, True), (_TABLE, False)):
        found = pattern.search(text)
        if found is None:
            continue
        wrong = next(group for group in found.groups() if group).strip('"').rpartition(".")[2]
        place = _place(wrong, query)
        meant = _meant(wrong, _columns(query, tables) if is_column else list(tables))
        if place is None:
            return Complaint(text, meant=meant)
        mended = query[:place] + meant + query[place + len(wrong) :] if meant else ""
        return Complaint(text, *_line(query, place), meant=meant, mended=mended)
    near = _NEAR.search(text)
    place = _place(near[1], query) if near else None
    return Complaint(text) if place is None else Complaint(text, *_line(query, place))


def _place(word: str, query: str) -> int | None:
    """Where a word stands in a query, not in its strings and comments."""
    bare = _HIDDEN.sub(lambda found: " " * len(found[0]), query)
    edge = r"(?<!\w){}(?!\w)" if word[:1].isalnum() or word[:1] == "_" else "{}"
    found = re.search(edge.format(re.escape(word)), bare, re.IGNORECASE)
    return found.start() if found else None


def _line(query: str, place: int) -> tuple[int, int]:
    before = query[:place]
    return before.count("\n") + 1, place - (before.rfind("\n") + 1) + 1


def _columns(query: str, tables: Mapping[str, Sequence[str]]) -> list[str]:
    """The columns of the tables that a query names; of all, if it names none."""
    named = [name for name in tables if _place(name, query) is not None] or list(tables)
    return list(dict.fromkeys(column for name in named for column in tables[name]))


def _meant(wrong: str, known: Sequence[str]) -> str:
    low = wrong.lower()
    near = get_close_matches(low, known, n=1, cutoff=0.75)
    if near:
        return near[0]
    parts = [name for name in known if low in name.split("_")]
    return min(parts, key=len) if parts else next(iter(get_close_matches(low, known, n=1, cutoff=0.55)), "")
