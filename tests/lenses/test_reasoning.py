"""The lens reasoning: sessions that work towards an outcome, and their steps. The app tests the rest."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from lockstitch.engine.cancel import cancel
from lockstitch.engine.replies import deny
from lockstitch.integrations.export.lens_tables import export_lens
from lockstitch.model import Stitch
from lockstitch.store import Store
from tests.engine.agents import confirm, pay
from tests.lenses.mirror import research
from tests.lenses.story import agent, broken, calls, look, price, says

pytestmark = pytest.mark.anyio

OUTCOME = "5f2d0a8e-4a2f-4a5e-9a55-0c1f2f3a4b5c"

STEP = {"step_number", "timestamp", "thought", "tool_name", "tool_input", "tool_output", "duration_ms", "status"}


async def ask(store: Store, query: str) -> list[dict[str, Any]]:
    answer = await store.sql(query, lens="reasoning")
    return [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]


def read(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


async def prioritise(store: Store, thread: str = "plan", **options: Any) -> UUID:
    """Write a chat with parallel calls, one that fails, one that a person denies, a thought alone, and an answer."""
    planner = agent(
        "planner",
        [
            calls(("price", {"of": "tea"}), ("broken", {}), text="First the prices."),
            {"thinking": "Shall I pay?", **calls(("pay", {"amount": 3}))},
            says("Not yet."),
            says('{"plan": 42}'),
        ],
        tools=[price, broken, pay],
        check=lambda text: None if "42" in text else "It must name the number.",
        **options,
    )
    await planner.run("Plan it.", store=store, thread=thread, user_id="ada")
    await store.edit(thread, extras={"outcome_id": OUTCOME})
    await deny(store, thread, "call_1_2_0", reason="too much")
    await planner.resume(thread, store=store)
    return (await store.thread(thread)).id


@pytest.mark.req("S1-032", "S1-033", "S1-036", "S1-037", "S1-040")
async def test_steps_are_shown_in_order(store: Store) -> None:
    session = await prioritise(store)
    await research().put(store)
    (trace,) = await ask(store, "SELECT * FROM reasoning_traces")
    assert str(trace["session_id"]) == str(session)
    steps = read(trace["steps"])
    assert all(set(step) == STEP for step in steps)
    assert [step["step_number"] for step in steps] == [1, 2, 3, 4]
    assert [(step["tool_name"], step["status"]) for step in steps] == [
        ("price", "success"),
        ("broken", "failed"),
        ("pay", "skipped"),
        (None, "success"),
    ]
    assert [step["thought"] for step in steps] == ["First the prices.", None, "Shall I pay?", "Not yet."]
    assert all(isinstance(step["duration_ms"], int) and step["duration_ms"] >= 0 for step in steps)


@pytest.mark.req("S1-035", "S1-038", "S1-039", "S1-041")
async def test_step_has_documented_columns(store: Store) -> None:
    await prioritise(store)
    (trace,) = await ask(store, "SELECT steps FROM reasoning_traces")
    first, second, third, fourth = read(trace["steps"])
    assert first["tool_input"] == {"of": "tea"}
    assert first["tool_output"] == {"of": "tea", "price": 3}, "text of a JSON object is parsed"
    assert second["tool_output"] == {"value": "ValueError: no such luck"}, "anything else is wrapped"
    assert (third["tool_input"], list(third["tool_output"])) == ({"amount": 3}, ["value"])
    assert (fourth["tool_name"], fourth["tool_input"], fourth["tool_output"]) == (None, None, None)
    stamps = [step["timestamp"] for step in (first, second, third, fourth)]
    assert stamps == sorted(stamps)
    assert all(stamp.endswith("Z") and "T" in stamp for stamp in stamps)


@pytest.mark.req("S1-021", "S1-022", "S1-025", "S1-028", "X1-11")
async def test_trace_contains_sums_of_its_steps(store: Store, backend: str) -> None:
    await prioritise(store)
    log = await store.stitches("plan")
    timed = [stitch.changed(duration_ms=number) for number, stitch in enumerate(log, start=100)]
    await store._backend.put(timed)
    (trace,) = await ask(store, "SELECT * FROM reasoning_traces")
    steps = read(trace["steps"])
    assert trace["total_steps"] == len(steps) == 4
    durations = [stitch.duration_ms for stitch in timed if stitch.type == "tool_call" or _is_thought(stitch)]
    assert [step["duration_ms"] for step in steps] == durations
    assert trace["total_duration_ms"] == sum(duration or 0 for duration in durations) > 400
    if backend == "postgres":
        answer = await store.sql("SELECT DISTINCT pg_typeof(steps)::text FROM reasoning_traces", lens="reasoning")
        assert answer.rows == [("jsonb[]",)]
    else:
        assert isinstance(trace["steps"], str), "a JSON array as text"
    assert read(trace["tools_used_count"]) == {"price": 1, "broken": 1, "pay": 1}
    (session,) = await ask(store, "SELECT id FROM agent_sessions")
    assert str(session["id"]) == str(trace["session_id"])
    await agent("quiet", [says("Done.")]).run("Plan it.", store=store, thread="quiet")
    await store.edit("quiet", extras={"outcome_id": OUTCOME})
    (quiet,) = await ask(store, "SELECT * FROM reasoning_traces WHERE total_steps = 0")
    assert (read(quiet["steps"]), read(quiet["tools_used_count"]), quiet["total_duration_ms"]) == ([], {}, 0)
    await store.delete("plan")
    assert [row["id"] for row in await ask(store, "SELECT id FROM reasoning_traces")] == [quiet["id"]]


@pytest.mark.req("S1-020", "S1-028", "X1-06", "X1-14")
async def test_exported_trace_belongs_to_one_session(store: Store, tmp_path: Path) -> None:
    """The exported file has real tables, whose keys and checks are those of the document."""
    session = str(await prioritise(store))
    await export_lens(store, "reasoning", tmp_path / "out.db")
    with closing(sqlite3.connect(tmp_path / "out.db", isolation_level=None)) as connection:
        connection.execute("PRAGMA foreign_keys = ON")
        assert connection.execute("SELECT session_id, total_steps FROM reasoning_traces").fetchall() == [(session, 4)]
        connection.execute(
            "INSERT INTO agent_sessions SELECT 'second', user_id, outcome_id, status, prioritized_plan, "
            "execution_metadata, created_at, updated_at FROM agent_sessions"
        )
        trace = "INSERT INTO reasoning_traces VALUES ('new', ?, '[]', ?, ?, '{}', '2026-01-01T00:00:00Z')"
        for key, duration, steps in (
            (session, 0, 1),
            ("unknown", 0, 1),
            (None, 0, 1),
            ("second", -1, 1),
            ("second", 0, 11),
            ("second", 0, -1),
        ):
            with pytest.raises(sqlite3.IntegrityError):
                connection.execute(trace, (key, duration, steps))
        connection.execute(trace, ("second", 0, 10))
        connection.execute("DELETE FROM agent_sessions")
        assert connection.execute("SELECT count(*) FROM reasoning_traces").fetchone() == (0,)


def _is_thought(stitch: Stitch) -> bool:
    return stitch.type == "llm_call" and "Not yet." in str(stitch.message)


@pytest.mark.req("S1-005", "S1-007", "S1-012")
async def test_session_shows_request_and_result(store: Store) -> None:
    await prioritise(store)
    await prioritise(store, "other")
    sessions = await ask(store, "SELECT * FROM agent_sessions")
    assert {str(session["outcome_id"]) for session in sessions} == {OUTCOME}, "many sessions of one outcome"
    session = sessions[0]
    assert list(session) == [
        *("id", "user_id", "outcome_id", "status", "prioritized_plan", "execution_metadata", "created_at", "updated_at")
    ]
    assert (session["user_id"], session["status"]) == ("ada", "completed")
    metadata = read(session["execution_metadata"])
    assert (metadata["steps_taken"], metadata["error_count"], metadata["success_rate"]) == (4, 1, 0.5)
    assert metadata["tool_call_count"] == {"price": 1, "broken": 1, "pay": 1}
    assert metadata["thinking_time_ms"] + metadata["tool_execution_time_ms"] <= metadata["total_time_ms"] + 10


@pytest.mark.req("S1-005", "S1-010", "S1-011", "X1-04")
async def test_sessions_show_their_status(store: Store) -> None:
    asker = agent("asker", [calls(("confirm", {})), says("Good.")], tools=[confirm])
    extras = {"outcome_id": OUTCOME}
    for key in ("new", "waits", "cancelled", "done"):
        await asker.start(store=store, goal="Plan", key=key, extras=extras)
        if key != "new":
            await asker.resume(key, store=store)
    await cancel(store, "cancelled")
    await asker.submit("done", [{"tool_use_id": "call_1_1_0", "content": "yes"}], store=store)
    names = {str((await store.thread(key)).id): key for key in ("new", "waits", "cancelled", "done")}
    statuses = {
        names[str(row["id"])]: row
        for row in await ask(store, "SELECT id, status, prioritized_plan FROM agent_sessions")
    }
    assert {key: row["status"] for key, row in statuses.items()} == {
        "waits": "running",
        "cancelled": "failed",
        "done": "completed",
    }, "a session without a run is not shown"
    assert [key for key, row in statuses.items() if row["prioritized_plan"] is not None] == ["done"]
    assert read(statuses["done"]["prioritized_plan"])["summary"] == "Good."


@pytest.mark.req("S1-023", "S1-033")
async def test_trace_has_ten_steps_at_most(store: Store) -> None:
    busy = agent("busy", [calls(*[("look", {})] * 12), says("Seen.")], tools=[look])
    await busy.run("Look.", store=store, thread="busy")
    await store.edit("busy", extras={"outcome_id": OUTCOME})
    (trace,) = await ask(store, "SELECT * FROM reasoning_traces")
    assert (trace["total_steps"], len(read(trace["steps"]))) == (10, 10)
    assert read(trace["tools_used_count"]) == {"look": 10}
    (session,) = await ask(store, "SELECT execution_metadata FROM agent_sessions")
    assert read(session["execution_metadata"])["steps_taken"] == 10


async def test_threads_without_outcome_are_not_sessions(store: Store, tmp_path: Path) -> None:
    for key, extras in (("none", {}), ("odd", {"outcome_id": "soon"}), ("number", {"outcome_id": 7})):
        await agent("a", [says("Yes.")]).run("Well?", store=store, thread=key)
        await store.edit(key, extras=extras)
    assert await ask(store, "SELECT * FROM agent_sessions") == []
    assert await ask(store, "SELECT * FROM reasoning_traces") == []
