"""Every query in the reference of a lens, unchanged, on records that the engine wrote."""

import re
from pathlib import Path
from typing import Any

import pytest

from lockstitch.lenses import catalog
from lockstitch.model import ERROR_TYPES, Json
from lockstitch.store import Store
from tests.lenses.looking import look
from tests.lenses.story import Story

pytestmark = pytest.mark.anyio

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "lenses"


def printed(lens: str, heading: str, backend: str) -> list[str]:
    """Return the queries under a heading in the dialect of a backend."""
    text = (DOCS / f"{lens}.md").read_text()
    section = re.split(r"^#{2,3} ", text.partition(f"### {heading}\n")[2], flags=re.MULTILINE)[0]
    dialect = "postgres" if backend == "postgres" else "sqlite"
    queries = re.findall(rf"```sql {dialect}\n(.*?)```", section, re.DOTALL)
    assert queries, heading
    return queries


def filled(sql: str, **ids: Any) -> str:
    return re.sub(r"(?<!:):(\w+)", lambda name: f"'{ids[name[1]]}'", sql)


async def ask(store: Store, backend: str, lens: str, heading: str, **ids: Any) -> list[Json]:
    """Return the result of the last query under a heading. All of them must have the same result."""
    answers = [await look(store, lens, filled(sql, **ids)) for sql in printed(lens, heading, backend)]
    assert all(answer == answers[0] for answer in answers)
    return answers[-1]


@pytest.mark.req("S0-144", "S0-041", "S0-008")
async def test_query_pattern_1_returns_documented_rows(story_store: Store, story: Story, backend: str) -> None:
    (row,) = await ask(story_store, backend, "three_table", "Pattern 1: resume an agent", agent_uuid=story.shop.id)
    assert row["agent_uuid"] == str(story.shop.id)
    assert (row["system_prompt"], row["model"], row["max_steps"]) == ("You run a shop.", "scripted", 7)
    assert row["tool_names"] == ["price", "broken", "draw"]
    assert row["messages"] == await story_store.context(story.shop)


@pytest.mark.req("S0-145")
async def test_query_pattern_2_returns_documented_rows(story_store: Store, story: Story, backend: str) -> None:
    rows = await ask(
        story_store, backend, "three_table", "Pattern 2: a page of the conversation", agent_uuid=story.shop.id
    )
    assert [(row["user_message"], row["final_response"], row["total_steps"]) for row in rows] == [
        ("Thank you.", "Good bye.", 1),
        ("Draw it.", "One of them broke.", 2),
        ("What do tea and coffee cost?", "Tea costs 3, coffee 6.", 2),
    ]
    assert [[file["filename"] for file in row["generated_files"]] for row in rows] == [[], ["chart.png"], []]


@pytest.mark.req("S0-147", "S0-091")
async def test_query_pattern_3_returns_documented_rows(story_store: Store, story: Story, backend: str) -> None:
    (_, run, _) = sorted(await story_store.runs(story.shop), key=lambda run: run.turn)
    rows = await ask(story_store, backend, "three_table", "Pattern 3: debug a run", run_id=run.id)
    log = await story_store.log(run.id)
    names = {"llm_call": "api_response_received", "tool_call": "tool_execution", **dict.fromkeys(ERROR_TYPES, "error")}
    assert [row["action_type"] for row in rows] == [names.get(stitch.type, stitch.type) for stitch in log]
    assert [row["step_number"] for row in rows] == [stitch.step_number for stitch in log]
    assert [row["duration_ms"] for row in rows] == [stitch.duration_ms for stitch in log]
    executed = [row["action_data"] for row in rows if row["action_type"] == "tool_execution"]
    assert [(row["tool_name"], row["input"], row["success"]) for row in executed] == [
        ("broken", {}, False),
        ("draw", {}, True),
    ]


@pytest.mark.req("S0-148")
async def test_query_pattern_4_returns_documented_rows(story_store: Store, story: Story, backend: str) -> None:
    rows = await ask(story_store, backend, "three_table", "Pattern 4: average tokens per run")
    averages = {row["agent_uuid"]: row["avg_tokens"] for row in rows}
    # 1000 + 50 + 1200 + 40 and the title's 10 + 5; 100 + 20 + 200 + 30; 200 + 30.
    assert averages[str(story.shop.id)] == pytest.approx((2305 + 350 + 230) / 3)
    assert str(story.elsewhere.id) in averages


@pytest.mark.req("S0-149")
async def test_query_pattern_5_returns_documented_rows(story_store: Store, story: Story, backend: str) -> None:
    rows = await ask(story_store, backend, "three_table", "Pattern 5: find errors")
    stores = (story_store, story_store.in_project("elsewhere"))
    stitches = [stitch for store in stores for stitch in await store.latest(limit=1000)]
    assert sorted(row["timestamp"] for row in rows) == sorted(
        stitch.as_json()["at"] for stitch in stitches if stitch.type in ERROR_TYPES and stitch.run_id is not None
    )
    assert [row["timestamp"] for row in rows] == sorted((row["timestamp"] for row in rows), reverse=True)
    assert {str(story.shop.id), str(story.failed.id), str(story.scouts[1].id)} <= {row["agent_uuid"] for row in rows}
    types = {stitch.as_json()["at"]: stitch.type for stitch in stitches if stitch.type in ERROR_TYPES}
    assert {row["timestamp"]: row["action_data"]["stitch_type"] for row in rows}.items() <= types.items()
    assert {"run_failed", "tool_error"} <= set(types.values())


@pytest.mark.req("S3-066", "X3-08")
async def test_last_stitch_query_returns_tip(story_store: Store, story: Story, backend: str) -> None:
    for head in (story.shop, story.boss, story.compacted, story.everything):
        (row,) = await ask(story_store, backend, "agentic_threads", "Find last stitch in a thread", thread_id=head.id)
        last = await story_store.last_stitch(head)
        assert last is not None
        assert row["id"] == str(last.id)
    assert not await ask(
        story_store, backend, "agentic_threads", "Find last stitch in a thread", thread_id=story.forked.id
    )


@pytest.mark.req("S3-067", "X3-05")
async def test_thread_history_query_returns_stitches_in_order(story_store: Store, story: Story, backend: str) -> None:
    for head in (story.shop, story.boss, story.compacted, story.everything):
        rows = await ask(story_store, backend, "agentic_threads", "Get thread execution history", thread_id=head.id)
        chain = [
            stitch
            for stitch in await story_store.stitches(head)
            if stitch.type in ("llm_call", "tool_call", "thread_result")
        ]
        assert [row["id"] for row in rows] == [str(stitch.id) for stitch in chain]
        assert [row["depth"] for row in rows] == list(range(1, len(chain) + 1))


@pytest.mark.parametrize("lens", ["three_table", "agentic_threads"])
async def test_reference_names_every_column_and_its_type(story_store: Store, backend: str, lens: str) -> None:
    text = (DOCS / f"{lens}.md").read_text()
    views = re.findall(r"CREATE VIEW (\w+)", catalog.script(lens, "postgres"))
    assert views
    for view in views:
        section = text.partition(f"\n## {view}\n")[2].partition("\n## ")[0]
        documented = re.findall(r"^\| (\w+) \| ([^|]+) \|", section, re.MULTILINE)[1:]
        answer = await story_store.sql(f"SELECT * FROM {view}", lens=lens, limit=1)
        assert answer.columns == [name for name, _ in documented], view
        if backend == "postgres":
            sql = f"""SELECT format_type(atttypid, atttypmod) FROM pg_attribute
                      WHERE attrelid = '{lens}.{view}'::regclass ORDER BY attnum"""
            types = [kind for (kind,) in (await story_store.sql(sql)).rows]
            long = {"timestamptz": "timestamp with time zone"}
            expected = [long.get(kind, kind).replace("varchar", "character varying") for _, kind in documented]
            assert types == expected, view
