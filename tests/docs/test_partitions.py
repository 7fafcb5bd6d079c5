"""The SQL script in docs/howto/partitions.md, with data from before and after the partitioning."""

import re
from pathlib import Path

import psycopg
import pytest

from lockstitch.apps.prioritizer import Prioritizer, repository
from lockstitch.model import Stitch
from lockstitch.store import open_store
from tests.samples import turn

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "partitions.md"


def blocks() -> list[str]:
    return re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.mark.anyio
@pytest.mark.req("S0-152")
async def test_reads_and_writes_log_after_partitioning(postgres_url: str) -> None:
    async with open_store(postgres_url) as store:
        head = await turn(store, await store.create(key="old"), "before?", "before.")
        before = await store.stitches(head)
        assert len(await store.search("before")) == 2

    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for block in blocks():
            connection.execute(block)

    async with open_store(postgres_url) as store:
        assert await store.stitches("old") == before
        await turn(store, await store.thread("old"), "after?", "after.")
        await turn(store, await store.create(key="new"), "new?", "new.")
        assert [turned.final_response for turned in (await store.history("old")).turns] == ["after.", "before."]
        assert (await store.verify()).as_json() == {"ok": True, "threads": 2, "stitches": 6, "problems": []}
        log_ids = [stitch.log_id for stitch in await store.stitches("old")]
        assert log_ids == sorted(log_ids, key=lambda number: number or 0)
        async with open_store("sqlite:///:memory:") as copy:
            await store.copy_to(copy)
            assert await copy.context("old") == await store.context("old")

        assert len(await store.search("before")) == len(await store.search("after")) == 2
        (first, *_) = await store.stitches("old")
        await store._backend.put([first.changed(message={"role": "user", "content": "instead"})])
        assert [len(await store.search(word)) for word in ("before", "instead")] == [1, 1]
        await store.delete("old")
        assert await store.search("before") == await store.search("instead") == []

    with psycopg.connect(postgres_url) as connection:
        partitions = connection.execute(
            "SELECT tableoid::regclass::text, count(*) FROM lockstitch.stitches GROUP BY 1"
        ).fetchall()
        assert len(partitions) == 1
        assert re.fullmatch(r"lockstitch\.stitches_\d{4}_\d{2}", partitions[0][0])
        plan = connection.execute(
            f"EXPLAIN SELECT * FROM lockstitch.stitches WHERE thread_id = '{head.id}' AND position > 1"
        ).fetchall()
        assert "stitches_default" not in str(plan)


@pytest.mark.anyio
@pytest.mark.req("S1-096")
async def test_reads_reasoning_after_partitioning(postgres_url: str) -> None:
    planner = Prioritizer()

    async def plan(user: str) -> None:
        outcome = await repository.add_outcome(store, user, "Open the checkout")
        await repository.add_file(store, user, "- [ ] Choose a provider\n- [ ] Build the form", "tasks.md")
        await planner.prioritize(store, user, outcome.id)

    async with open_store(postgres_url) as store:
        await planner.setup(store)
        await plan("ada")
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for block in blocks():
            connection.execute(block)
    async with open_store(postgres_url) as store:
        await planner.setup(store)
        for user in ("ada", "bea"):
            await plan(user)
        rows = await store.sql("SELECT count(*), count(DISTINCT user_id) FROM agent_sessions", lens="reasoning")
        assert rows.rows == [(2, 2)], "one row per user, also after several plans"
        traces = await store.sql("SELECT total_steps, cardinality(steps) FROM reasoning_traces", lens="reasoning")
        assert len(traces.rows) == 2
        assert all(total == steps > 0 for total, steps in traces.rows)


def test_page_names_every_index_of_schema() -> None:
    """Fail if a migration adds an index of the log that is missing on the page."""
    migrations = Path(__file__).parents[2] / "src/lockstitch/backends/postgres/migrations"
    text = "".join(path.read_text() for path in sorted(migrations.glob("*.sql")))
    indexes = set(re.findall(rf"CREATE (?:UNIQUE )?INDEX (\w+) ON {Stitch.table}\b", text))
    assert indexes
    assert indexes <= set(re.findall(r"INDEX (\w+)", PAGE.read_text()))
