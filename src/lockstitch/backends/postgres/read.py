"""Reading ranges of a log: one round trip and one snapshot, however many there are."""

from collections.abc import Sequence
from uuid import UUID

from lockstitch.backends.sql import verbs
from lockstitch.backends.sql.dialect import Dialect
from lockstitch.backends.sql.script import Script
from lockstitch.records import Stitch

END = 2**63 - 1
"""A position that no log reaches."""


def read(dialect: Dialect, thread_id: UUID, ranges: Sequence[tuple[int, int | None]]) -> Script[list[Stitch]]:
    parts = verbs.disjoint(ranges)
    if len(parts) == 1:
        return (yield from verbs.read(dialect, thread_id, parts))
    rows = yield dialect.statement(
        "ranges",
        {
            "thread_id": dialect.encode_id(thread_id),
            "firsts": [str(first) for first, _ in parts],
            "lasts": [str(END if last is None else last) for _, last in parts],
        },
        columns=dialect.names(Stitch),
    )
    return [dialect.decode(Stitch, row) for row in rows]
