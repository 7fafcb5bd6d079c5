"""Deleting: records of any kind, and with a thread everything of its own."""

from typing import Any

from lockstitch.backend import Find
from lockstitch.backends.sql import verbs
from lockstitch.backends.sql.dialect import Dialect
from lockstitch.backends.sql.script import Script
from lockstitch.errors import Refused
from lockstitch.records import Run, Stitch, Thread


def delete(dialect: Dialect, find: Find[Any], force: bool) -> Script[int]:
    if find.kind is Run:
        raise Refused("A run goes with its thread, or stays; nothing was deleted.")
    if find.kind is Thread:
        return (yield from _threads(dialect, find, force))
    if find.kind is Stitch:
        find = verbs.stitches_between(*verbs.stitch_range(find))
    rows = yield dialect.delete(find)
    return int(rows[0][0])


def _threads(dialect: Dialect, find: Find[Thread], force: bool) -> Script[int]:
    """Descendants go too, so they are locked and asked for their holders too; only what was found is counted."""
    number, ids = yield from verbs.tree_of(dialect, find)
    yield from verbs.delete_threads(dialect, ids, force)
    return number
