"""Reads of ranges: one statement, with a cost that depends on the ranges."""

import psycopg
import pytest

from lockstitch.backends.postgres.backend import PostgresBackend
from tests.backends.postgres.wire import Wire
from tests.conformance.contract import a_thread, stitched
from tests.samples import said

pytestmark = pytest.mark.anyio


async def test_any_number_of_ranges_is_one_statement(wired: PostgresBackend, wire: Wire) -> None:
    thread = a_thread(position=200)
    await wired.put([thread])
    stitches = stitched(thread.changed(position=0), *(said(str(n)) for n in range(200)))
    await wired.put(stitches)
    for ranges, positions in (
        ([(5, 7)], [5, 6, 7]),
        ([(199, None)], [199, 200]),
        ([(198, None), (3, 3), (10, 11), (11, 12)], [3, 10, 11, 12, 198, 199, 200]),
        ([(n, n) for n in range(1, 200, 2)], list(range(1, 200, 2))),
        ([(5, 4), (300, None)], []),
        ([], []),
    ):
        wire.forget()
        read_stitches = await wired.read(thread.id, ranges)
        assert [stitch.position for stitch in read_stitches] == positions
        assert [stitch.changed(log_id=None) for stitch in read_stitches] == [
            stitches[position - 1] for position in positions
        ]
        assert len(wire.said) == bool(ranges)


async def test_cost_of_range_does_not_depend_on_log_length(
    postgres: PostgresBackend, admin: psycopg.Connection
) -> None:
    """Even if most logs are so short that reading them completely would cost the same."""
    threads = [a_thread() for _ in range(300)]
    await postgres.put(threads)
    await postgres.put([stitch for thread in threads for stitch in stitched(thread, said("x"))])
    long = threads[0].changed(position=1)
    await postgres.put(stitched(long, *(said(str(n)) for n in range(5000))))
    admin.execute("ANALYZE lockstitch.stitches")
    query = postgres._dialect.text("ranges", columns="position")  # pyright: ignore[reportPrivateUsage]
    values = {"thread_id": f"'{long.id}'", "firsts": "'{10,4000}'", "lasts": "'{12,4003}'"}
    for name, value in values.items():
        query = query.replace(f"${{{name}}}", value)
    plan = str(admin.execute(f"EXPLAIN (ANALYZE, BUFFERS OFF) {query}".encode()).fetchall())
    assert "Rows Removed" not in plan
    assert "Index Cond: ((thread_id" in plan
    assert "position" in plan.partition("Index Cond")[2]
