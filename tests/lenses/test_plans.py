"""The documented queries read only the rows they show, and not the logs of other threads."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from lockstitch.store import Store, open_store
from tests.lenses.many import THREADS, fill
from tests.lenses.story import Story, tell
from tests.lenses.test_documents import DOCS, filled, printed
from tests.servers import PostgresServer

pytestmark = pytest.mark.anyio

LENSES = ("three_table", "agentic_threads")

Question = tuple[str, str, str]
"""Lens, heading and text of a query."""
Crowded = tuple[str, list[Question]]


def questions(story: Story, run_id: object, backend: str) -> list[Question]:
    """Every query in the references."""
    result: list[Question] = []
    for lens in LENSES:
        text = (DOCS / f"{lens}.md").read_text()
        for heading in re.findall(r"^### (.*)$", text, re.MULTILINE):
            for sql in printed(lens, heading, backend):
                ids = {"agent_uuid": story.compacted.id, "thread_id": story.boss.id, "run_id": run_id}
                result.append((lens, heading, filled(sql, **ids)))
    assert len(result) >= 8
    return result


async def run_of(store: Store, story: Story) -> object:
    return (await store.runs(story.everything))[0].id


@pytest.fixture(scope="module")
def crowded(
    postgres_server: PostgresServer, postgres_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Crowded]:
    """A database with the story and ten thousand stitches of other threads, and the queries to run."""
    url = postgres_server.create_database(postgres_template)

    async def write() -> list[Question]:
        async with open_store(url) as store:
            story = await tell(store, tmp_path_factory.mktemp("plans"))
            return questions(story, await run_of(store, story), "postgres")

    asked_questions = asyncio.run(write())
    fill(url)
    yield url, asked_questions
    postgres_server.drop_database(url)


@pytest.fixture(scope="module")
def crowded_sqlite(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file with ten thousand stitches."""
    url = f"sqlite:///{tmp_path_factory.mktemp('plans') / 'store.db'}"

    async def create() -> None:
        async with open_store(url):
            pass

    asyncio.run(create())
    fill(url)
    return url


@pytest.mark.req("S0-038", "S0-075", "S0-086")
async def test_postgres_never_reads_all_stitches(crowded: Crowded) -> None:
    """PostgreSQL counts its sequential scans, also those inside functions."""
    url, asked_questions = crowded
    count = "SELECT seq_scan FROM pg_stat_user_tables WHERE schemaname = 'lockstitch' AND relname = 'stitches'"
    with psycopg.connect(url, autocommit=True) as connection:
        for lens, heading, sql in asked_questions:
            connection.execute(f"SET search_path TO {lens}".encode())
            connection.execute("SELECT pg_stat_force_next_flush()")
            before = connection.execute(count).fetchone()
            assert connection.execute(sql.encode()).fetchall(), heading
            connection.execute("SELECT pg_stat_force_next_flush()")
            assert connection.execute(count).fetchone() == before, heading


REFERENCES = {
    "threads.status": "'running'",
    "threads.branching_stitch_id": "'01890000-0000-7000-9002-000000000001'",
    "stitches.thread_id": "'01890000-0000-7000-8000-000000000001'",
    "stitches.previous_stitch_id": "'01890000-0000-7000-9002-000000000001'",
    "stitches.child_thread_id": "'01890000-0000-7000-8000-000000000001'",
}
"""Columns of `agentic_threads` that have an index in the document, and a value of each."""


@pytest.mark.req("S3-009", "S3-010", "S3-022", "S3-027")
@pytest.mark.parametrize("column", REFERENCES)
async def test_indexed_columns_of_the_document_are_not_scanned(
    crowded: Crowded, crowded_sqlite: str, column: str
) -> None:
    table, _, name = column.partition(".")
    query = f"SELECT id FROM {table} WHERE {name} = {REFERENCES[column]}"
    async with open_store(crowded[0]) as store:
        plan = "\n".join(line for (line,) in (await store.sql(f"EXPLAIN {query}", lens="agentic_threads")).rows)
    assert "Seq Scan" not in plan, plan
    async with open_store(crowded_sqlite) as store:
        rows = (await store.sql(f"EXPLAIN QUERY PLAN {query}", lens="agentic_threads")).rows
    assert not [row[3] for row in rows if row[3].startswith("SCAN")], rows


@pytest.mark.req("S3-022")
async def test_sqlite_steps_do_not_grow_with_other_threads(tmp_path: Path) -> None:
    """The steps of SQLite's virtual machine are counted before and after ten thousand stitches of other threads are
    added."""
    url = f"sqlite:///{tmp_path / 'store.db'}"
    async with open_store(url) as store:
        story = await tell(store, tmp_path)
        asked_questions = questions(story, await run_of(store, story), "sqlite")
        alone = [await steps(store, lens, sql) for lens, _, sql in asked_questions]
        fill(url)
        among = [await steps(store, lens, sql) for lens, _, sql in asked_questions]
    for (_, heading, _), few, many in zip(asked_questions, alone, among, strict=True):
        # Its plans may change with statistics. A step per stitch of the other threads would be visible.
        assert many < few * 1.5 + THREADS, (heading, few, many)


async def steps(store: Store, lens: str, sql: str) -> int:
    count = 0

    def step() -> int:
        nonlocal count
        count += 1
        return 0

    async with store.lens(lens) as connection:
        connection.set_progress_handler(step, 1)
        assert connection.execute(sql).fetchall()
    return count


@pytest.mark.req("S0-147", "S0-149", "S3-066", "X0-11")
async def test_postgres_plans_use_indexes(crowded: Crowded) -> None:
    """The plan of the planner, with the names of the indexes."""
    url, asked_questions = crowded
    async with open_store(url) as store:
        plans: dict[str, str] = {}
        for lens, heading, sql in asked_questions:
            answer = await store.sql(f"EXPLAIN {sql}", lens=lens)
            plans[heading] = "\n".join(line for (line,) in answer.rows)
    assert "stitches_errors" in plans["Pattern 5: find errors"]
    assert "stitches_run" in plans["Pattern 3: debug a run"]
    assert re.search("runs_(of_)?turn", plans["Pattern 2: a page of the conversation"])
    assert "runs_started" in plans["Pattern 4: average tokens per run"]
    assert "stitches_previous" in plans["Get thread execution history"]
    for heading, plan in plans.items():
        executed = [line for line in plan.splitlines() if "Seq Scan on stitches" in line]
        assert not executed, (heading, executed)


@pytest.mark.req("S2-039")
async def test_newest_runs_of_langsmith_are_read_in_order(crowded: Crowded, crowded_sqlite: str) -> None:
    query = "SELECT run_id, start_time FROM agent_runs ORDER BY start_time DESC LIMIT 20"
    async with open_store(crowded[0]) as store:
        plan = "\n".join(line for (line,) in (await store.sql(f"EXPLAIN {query}", lens="langsmith")).rows)
    assert ("runs_start_time" in plan, "Sort" in plan) == (True, False), plan
    async with open_store(crowded_sqlite) as store:
        rows = (await store.sql(f"EXPLAIN QUERY PLAN {query}", lens="langsmith")).rows
    assert not [row[3] for row in rows if "TEMP B-TREE" in row[3]], rows


LOOK_UPS = {
    "SELECT * FROM llm_calls WHERE llm_call_id = 'x'": "stitches_llm_call_id",
    "SELECT * FROM tool_calls WHERE tool_call_id = 'x'": "stitches_tool_call_id",
    "SELECT * FROM tool_calls WHERE llm_call_id = 'x'": "stitches_llm_call_id",
    "SELECT * FROM llm_calls WHERE run_id = 'x'": "runs_shown",
    "SELECT * FROM tool_calls WHERE run_id = 'x'": "runs_shown",
    "SELECT l.model_name, t.tool_name FROM llm_calls l JOIN tool_calls t ON t.llm_call_id = l.llm_call_id "
    "WHERE t.tool_call_id = 'x'": "stitches_tool_call_id",
    "SELECT l.model_name, t.tool_name FROM llm_calls l JOIN tool_calls t ON t.llm_call_id = l.llm_call_id "
    "WHERE l.llm_call_id = 'x'": "stitches_llm_call_id",
    "SELECT l.model_name, t.tool_name FROM llm_calls l JOIN tool_calls t ON t.llm_call_id = l.llm_call_id "
    "AND t.run_id = l.run_id WHERE l.run_id = 'x'": "runs_shown",
}
"""Queries by an id, and the index that finds it."""

FIGURES = {
    "SELECT model_name, count(*), sum(input_tokens) FROM llm_calls GROUP BY model_name": "stitches_models",
    "SELECT count(*) FROM llm_calls WHERE created_at > '2026-01-01T00:00:00Z'": "stitches_models",
    "SELECT tool_name, avg(execution_latency_ms) FROM tool_calls GROUP BY tool_name": "stitches_tools",
    "SELECT tool_name, avg(is_tool_error) FROM tool_calls GROUP BY tool_name": "stitches_tools",
}
"""Queries over all calls, and the index that has all of their columns."""


async def plan_of(url: str, query: str) -> str:
    async with open_store(url) as store:
        if url.startswith("sqlite"):
            rows = (await store.sql(f"EXPLAIN QUERY PLAN {query}", lens="langsmith")).rows
            return "\n".join(row[3] for row in rows)
        return "\n".join(line for (line,) in (await store.sql(f"EXPLAIN {query}", lens="langsmith")).rows)


@pytest.mark.parametrize("query", LOOK_UPS)
async def test_calls_are_found_by_indexed_ids(crowded: Crowded, crowded_sqlite: str, query: str) -> None:
    plan = await plan_of(crowded[0], query)
    assert LOOK_UPS[query] in plan, plan
    assert "Seq Scan on stitches" not in plan, plan
    plan = await plan_of(crowded_sqlite, query)
    assert LOOK_UPS[query] in plan, plan
    # Only the open runs, which are few, may be read one by one.
    scans = {line for line in plan.splitlines() if line.startswith("SCAN")}
    assert all(re.search(r"runs_open|VIRTUAL TABLE|\(subquery", line) for line in scans), plan


@pytest.mark.parametrize("query", FIGURES)
async def test_figures_of_all_calls_read_only_an_index(crowded: Crowded, crowded_sqlite: str, query: str) -> None:
    # The database of the test is small, so PostgreSQL would read the table.
    with psycopg.connect(crowded[0], autocommit=True) as connection:
        connection.execute("VACUUM (ANALYZE) lockstitch.stitches")
        connection.execute("SET enable_seqscan = off")
        connection.execute("SET search_path TO langsmith")
        plan = "\n".join(line for (line,) in connection.execute(f"EXPLAIN {query}".encode()))
    assert re.search(rf"(Index Only Scan|Bitmap Index Scan).* {FIGURES[query]}", plan), plan
    assert "Heap Scan on stitches s " not in plan, plan
    plan = await plan_of(crowded_sqlite, query)
    assert f"USING COVERING INDEX {FIGURES[query]}" in plan, plan
