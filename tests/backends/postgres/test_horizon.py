"""LogHorizon: the log is complete up to its mark, for any order in which transactions start, draw numbers and end."""

import psycopg
import pytest

from lockstitch.backends.postgres.backend import PostgresBackend
from lockstitch.backends.postgres.dialect import dialect
from lockstitch.backends.postgres.notify import LogHorizon
from lockstitch.backends.postgres.pool import Pool, parse
from lockstitch.model import SystemClock
from tests.backends.postgres.test_watcher import STITCH
from tests.conformance.contract import created

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("order", ["the open transaction started first", "the open transaction started last"])
async def test_horizon_waits_for_transaction_with_lower_log_id(
    postgres: PostgresBackend, postgres_url: str, order: str
) -> None:
    thread, other_thread = await created(postgres), await created(postgres)
    await postgres.close()  # its notifications are transactions too
    pool, horizon = Pool(parse(postgres_url)), LogHorizon()

    async def look(**how: bool) -> tuple[bool, int]:
        moved = await pool.alone(lambda: horizon.look(dialect(SystemClock()), **how), repeatable=True)
        return moved, horizon.mark

    with psycopg.connect(postgres_url) as stays, psycopg.connect(postgres_url) as ends:
        # Every transaction of the backend has its id before it draws a log_id.
        for session in (stays, ends) if order.endswith("first") else (ends, stays):
            session.execute("SELECT pg_current_xact_id()")
        stays.execute(STITCH, [thread.id, 1])
        ends.execute(STITCH, [other_thread.id, 1])
        ends.commit()
        assert await look() == (True, 0), "the first call only reads the end"
        for _ in range(3):
            assert await look() == (False, 0)
        ends.execute(STITCH, [other_thread.id, 2])
        ends.commit()
        stays.commit()
        assert await look() == (True, 2)
        assert await look() == (True, 3)
        assert await look() == (True, 3), "nothing is new"
        stays.execute(STITCH, [thread.id, 2])
        ends.execute(STITCH, [other_thread.id, 3])
        ends.commit()
        assert await look() == (True, 3)
        assert await look() == (False, 3)
        assert await look(patient=False) == (True, 5), "it passes the open transaction"
    await pool.close()


async def test_quiet_log_costs_no_transactions(postgres: PostgresBackend, admin: psycopg.Connection) -> None:
    thread = await created(postgres)
    admin.execute(STITCH, [thread.id, 1])
    assert await postgres.search("default", "x", 1) == []
    before = admin.execute("SELECT pg_current_xact_id()::text::bigint").fetchone()
    for _ in range(5):
        assert await postgres.search("default", "x", 1) == []
    after = admin.execute("SELECT pg_current_xact_id()::text::bigint").fetchone()
    assert before is not None
    assert after is not None
    assert after[0] - before[0] < 5
