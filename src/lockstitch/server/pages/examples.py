"""Examples for the page of SQL: the documents' queries, and some over the record itself."""

import re
from functools import cache
from importlib.resources import files
from typing import Final, NamedTuple

from lockstitch.server.access import Caller

_HEAD: Final = re.compile(r"^-- example: (.+?)(?: \((sqlite|postgres)\))?\n", re.MULTILINE)
_PLACE: Final = re.compile(r"(?<!:):([a-z_]+)")

RECORD: Final = "lockstitch"
"""What the record itself is called where lenses are listed."""


class Example(NamedTuple):
    """A query with its title. Words that begin with a colon stand for ids."""

    title: str
    sql: str


@cache
def examples(lens: str, dialect: str) -> list[Example]:
    """The queries of a lens, or of the record itself, that a dialect takes."""
    text = files("lockstitch.server").joinpath("examples", f"{lens}.sql").read_text(encoding="utf-8")
    _, *parts = _HEAD.split(text)
    found = zip(parts[0::3], parts[1::3], parts[2::3], strict=True)
    return [Example(title, sql.strip() + "\n") for title, only, sql in found if only in (None, dialect)]


async def filled(caller: Caller, sql: str) -> str:
    """A query with the ids of what ran last where it names any, so that it finds something."""
    if not _PLACE.search(sql):
        return sql
    runs = await caller.store.statistics.runs(limit=1)
    threads = [] if runs else await caller.store.threads(limit=1)
    run = str(runs[0].id) if runs else "no run yet"
    thread = str(runs[0].thread_id) if runs else str(threads[0].id) if threads else "no thread yet"
    return _PLACE.sub(lambda found: f"'{run if found[1] == 'run_id' else thread}'", sql)
