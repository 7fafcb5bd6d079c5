"""Sessions from start to end: steps, plans, failures, replacement and interruption."""

import asyncio
import json
import logging
from contextlib import suppress
from datetime import datetime
from itertools import pairwise
from typing import Any

import pytest

from lockstitch.agents import App, cancel
from lockstitch.agents.providers.scripted import Scripted
from lockstitch.apps.prioritizer import NoActiveOutcome, Prioritizer, SessionRunning, repository
from lockstitch.apps.prioritizer.agent_tools import Pace
from lockstitch.apps.prioritizer.models import TOOLS
from lockstitch.apps.prioritizer.records import Document, Outcome, Session
from lockstitch.apps.prioritizer.sessions import (
    active,
    latest,
    metadata_of,
    plan_of,
    session_of,
    sessions,
    shown,
    trace_of,
)
from lockstitch.backend import Find
from lockstitch.engine.ports.provider import ModelRequest, ProviderError
from lockstitch.errors import NotFound, Refused
from lockstitch.model import FakeClock, Thread
from lockstitch.store import Store
from tests.apps.prioritizer.samples import CHECKOUT

pytestmark = pytest.mark.anyio

IDS = ["T4", "T1", "T2", "T5", "T7", "T3"]
ANSWER = json.dumps(
    {
        "ordered_task_ids": IDS,
        "confidence_scores": dict.fromkeys(IDS, 0.9),
        "dependencies": [],
        "synthesis_summary": "The provider first.",
    }
)


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "input": arguments}


def says(*calls: dict[str, Any], thinking: str = "Let me see.") -> dict[str, Any]:
    return {"text": thinking, "calls": list(calls)}


SEARCH = call("semantic-search", query="payment")


def planner(*replies: Any, **options: Any) -> Prioritizer:
    script = replies[0] if len(replies) == 1 and callable(replies[0]) else list(replies)
    return Prioritizer(model=Scripted(script), base_delay=0.0, **options)


async def prepare(store: Store, user: str = "ada", content: str = CHECKOUT) -> Outcome:
    if content:
        await repository.add_file(store, user, content, "plan.md")
    return await repository.add_outcome(store, user, "Open the checkout")


async def lens(store: Store, query: str) -> list[dict[str, Any]]:
    answer = await store.sql(query, lens="reasoning")
    return [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]


def read(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


def read_time(value: Any) -> datetime:
    return datetime.fromisoformat(value) if isinstance(value, str) else value


async def through_the_lens(store: Store, session: Session) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the session and its trace from the lens."""
    id = str(session.thread_id)
    (row,) = await lens(store, f"SELECT * FROM agent_sessions WHERE id = '{id}'")
    (trace,) = await lens(store, f"SELECT * FROM reasoning_traces WHERE session_id = '{id}'")
    return row, trace


@pytest.mark.req("S1-019", "S1-024", "S1-026", "S1-040", "X1-19")
async def test_session_completes_without_a_model(office: Store) -> None:
    """The rules planner calls the tools. The lens, the trace and the row agree."""
    outcome = await prepare(office)
    session = await Prioritizer().prioritize(office, "ada", outcome.id)
    plan, figures = plan_of(session), metadata_of(session)
    assert plan is not None
    assert [wave.task_ids for wave in plan.execution_waves] == [["T4", "T1"], ["T2", "T7"], ["T5", "T3"]]
    assert plan.synthesis_summary == "Start with “Choose the payment provider”: 3 of 5 other tasks depend on it."
    assert {(dependency.source_task_id, dependency.detection_method) for dependency in plan.dependencies} == {
        ("T2", "stored_relationship"),
        ("T5", "stored_relationship"),
        ("T3", "stored_relationship"),
        ("T7", "rules"),
    }
    trace = await trace_of(office, session)
    assert [step.tool_name for step in trace.steps] == [
        *("semantic-search", "query-task-graph", "detect-dependencies", "cluster-by-similarity", "get-document-context")
    ]
    assert figures.tool_call_count == trace.tools_used_count == dict.fromkeys(TOOLS, 1)
    assert (figures.steps_taken, figures.error_count, figures.success_rate) == (5, 0, 1.0)
    assert session.steps_taken == trace.total_steps == len(trace.steps) == 5
    row, output = await through_the_lens(office, session)
    assert (row["status"], read(row["prioritized_plan"])) == ("completed", session.plan)
    assert read(row["execution_metadata"]) == session.metadata
    assert [read(step) for step in read(output["steps"])] == [step.model_dump(mode="json") for step in trace.steps]
    assert (str(output["id"]), output["total_duration_ms"]) == (str(trace.id), trace.total_duration_ms)
    assert read(output["tools_used_count"]) == trace.tools_used_count
    (run,) = await office.runs(session.thread_id)
    assert trace.created_at == run.started_at
    assert read_time(output["created_at"]) == run.started_at
    second_session = await Prioritizer().prioritize(office, "ada", outcome.id)
    assert second_session.plan == session.plan, "deterministic"
    assert (await trace_of(office, second_session)).id != trace.id


@pytest.mark.req("S1-033", "S1-041", "S1-067", "S1-077")
async def test_session_has_at_most_ten_steps(office: Store) -> None:
    """Every response has four calls. Two calls of the third are rejected, and later ones are not executed."""
    outcome = await prepare(office)
    busy = planner(lambda request: ANSWER if request.tool_choice == "none" else says(*[SEARCH] * 4))
    session = await busy.prioritize(office, "ada", outcome.id)
    figures = metadata_of(session)
    assert (session.status, figures.steps_taken, figures.skipped_calls) == ("completed", 10, 30)
    assert (figures.tool_call_count, figures.success_rate) == ({"semantic-search": 10}, 1.0)
    trace = await trace_of(office, session)
    assert [step.step_number for step in trace.steps] == list(range(1, 11))
    assert [step.thought is not None for step in trace.steps] == [True, False, False, False] * 2 + [True, False]
    row, output = await through_the_lens(office, session)
    assert (output["total_steps"], len(read(output["steps"]))) == (10, 10)
    assert read(row["execution_metadata"])["steps_taken"] == 10
    results = [stitch for stitch in await office.stitches(session.thread_id) if stitch.type == "tool_call"]
    results.sort(key=lambda stitch: (stitch.reply_to or 0, stitch.call_index or 0))
    assert [stitch.status for stitch in results] == ["ok"] * 10 + ["error"] * 30
    assert "steps of this session are used" in str(results[10].message)


@pytest.mark.req("S1-035", "S1-041", "S1-070", "S1-086", "X1-18")
async def test_failed_steps_are_recorded(office: Store) -> None:
    """Invalid input, an unknown task and an unknown tool are steps. None of them ends the session."""
    outcome = await prepare(office)
    agent = planner(
        says(call("semantic-search", query="x", limit=101)),
        says(call("query-task-graph", task_id="T99")),
        says(call("detect-dependencies", task_ids=["T1"])),
        says(call("query-task-graph", task_id="T2"), call("rm", path="/")),
        ANSWER,
    )
    session = await agent.prioritize(office, "ada", outcome.id)
    trace = await trace_of(office, session)
    assert [(step.tool_name, step.status) for step in trace.steps] == [
        ("semantic-search", "failed"),
        ("query-task-graph", "failed"),
        ("detect-dependencies", "failed"),
        ("query-task-graph", "success"),
        (None, "skipped"),
    ]
    assert (trace.steps[4].thought, trace.steps[4].tool_input) == ("Called the unknown tool rm.", None)
    assert "limit" in str(trace.steps[0].tool_output)
    assert trace.steps[1].tool_output == {"value": "Pass at least 1 of the session's tasks. Unknown tasks: T99."}
    figures = metadata_of(session)
    assert (figures.error_count, figures.success_rate, figures.steps_taken) == (3, 0.2, 5)
    assert figures.failed_tools == ["semantic-search", "detect-dependencies"], (
        "a tool that succeeded later is not missing"
    )
    assert figures.tool_call_count == {"semantic-search": 1, "query-task-graph": 2, "detect-dependencies": 1}
    row, output = await through_the_lens(office, session)
    assert [read(step) for step in read(output["steps"])] == [step.model_dump(mode="json") for step in trace.steps]
    assert read(output["tools_used_count"]) == read(row["execution_metadata"])["tool_call_count"]
    assert read(output["tools_used_count"]) == figures.tool_call_count


@pytest.mark.req("S1-022", "S1-066", "S1-069", "S1-071", "S1-072")
async def test_metrics_are_computed_from_the_steps(timed_office: Store, clock: FakeClock) -> None:
    """The model takes 2 s per response and the embedder 3 s per call. Metrics in the answer are ignored."""
    outcome = await prepare(timed_office)
    forged = {"steps_taken": 9, "total_time_ms": 1, "success_rate": 0.1, "error_count": 7}

    def slowly(request: ModelRequest) -> Any:
        clock.advance(2)
        if request.step == 1:
            return says(SEARCH)
        if request.step == 2:
            return says(call("query-task-graph", task_id="T99"))
        return json.dumps({**json.loads(ANSWER), "execution_metadata": forged, **forged})

    class Slow:
        name, threshold = "slow", 0.2

        async def embed(self, texts: Any) -> Any:
            clock.advance(3)
            return [[1.0, 0.0] for _ in texts]

        async def close(self) -> None: ...

    session = await planner(slowly, embedder=Slow(), trace_days=10_000).prioritize(timed_office, "ada", outcome.id)
    figures = metadata_of(session)
    assert list(session.metadata)[:7] == [
        *("steps_taken", "tool_call_count", "thinking_time_ms", "tool_execution_time_ms", "total_time_ms"),
        *("error_count", "success_rate"),
    ]
    assert (figures.steps_taken, figures.tool_call_count) == (2, {"semantic-search": 1, "query-task-graph": 1})
    assert (figures.error_count, figures.success_rate) == (1, 0.5)
    assert (figures.thinking_time_ms, figures.tool_execution_time_ms) == (6_000, 6_000)
    assert figures.total_time_ms >= 12_000, "the sequential steps, and the time between them"
    trace = await trace_of(timed_office, session)
    assert [step.duration_ms for step in trace.steps] == [6_000, 0]
    row, output = await through_the_lens(timed_office, session)
    assert read(row["execution_metadata"]) == session.metadata
    assert output["total_duration_ms"] == trace.total_duration_ms == 6_000
    broken = planner({"fail": "request", "message": "No such model."})
    session = await broken.prioritize(timed_office, "ada", outcome.id)
    assert (metadata_of(session).steps_taken, metadata_of(session).success_rate) == (0, 0.0)


@pytest.mark.req("S1-073", "S1-087", "X1-20")
async def test_plans_with_available_results_when_tools_fail(office: Store) -> None:
    outcome = await prepare(office)
    agent = planner(says(call("detect-dependencies", task_ids=["T1", "T99"])), ANSWER)
    session = await agent.prioritize(office, "ada", outcome.id)
    figures = metadata_of(session)
    assert session.status == "completed"
    assert figures.failed_tools == ["detect-dependencies"]
    assert figures.status_note == "detect-dependencies failed: dependencies were not inferred."
    plan, trace = plan_of(session), await trace_of(office, session)
    assert plan is not None
    assert sorted(plan.ordered_task_ids) == sorted(IDS)
    assert {edge.detection_method for edge in plan.dependencies} == {"stored_relationship"}, "what is available"
    assert [(step.tool_name, step.status) for step in trace.steps] == [("detect-dependencies", "failed")]


@pytest.mark.req("S1-044", "S1-075", "S1-088")
async def test_session_completes_by_fallback_when_answer_is_not_a_plan(office: Store) -> None:
    outcome = await prepare(office)
    for answer in ("I would begin with the provider.", '{"ordered_task_ids": ["ghost"]}'):
        session = await planner(answer).prioritize(office, "ada", outcome.id)
        plan = plan_of(session)
        assert plan is not None
        assert sorted(plan.ordered_task_ids) == sorted(IDS)
        assert "This plan uses dependencies and similarity only" in str(metadata_of(session).status_note)
    partly = json.dumps({"ordered_task_ids": ["T1", "ghost"], "synthesis_summary": "So."})
    session = await planner(partly).prioritize(office, "ada", outcome.id)
    assert "The answer has unknown tasks, which were left out: ghost." in metadata_of(session).warnings
    assert "ghost" not in json.dumps(session.plan)


@pytest.mark.req("S1-064")
async def test_reports_broken_cycle(office: Store) -> None:
    outcome = await prepare(office, content="- [ ] a1: Legal text (after: b1)\n- [ ] b1: Receipts (after: a1)\n")
    session = await Prioritizer().prioritize(office, "ada", outcome.id)
    (broken,) = metadata_of(session).broken_cycles
    assert sorted(broken.task_ids) == ["a1", "b1"]
    plan = plan_of(session)
    assert plan is not None
    assert len(plan.execution_waves) == 2


@pytest.mark.req("S1-089")
async def test_session_fails_without_tasks(office: Store) -> None:
    outcome = await prepare(office, content="")
    session = await Prioritizer().prioritize(office, "ada", outcome.id)
    assert (session.status, metadata_of(session).status_note) == ("failed", "no tasks found")
    assert (await office.thread(session.thread_id)).status == "failed"
    assert await office.runs(session.thread_id) == [], "the model was not called"
    (row,) = await lens(office, "SELECT status, prioritized_plan FROM agent_sessions")
    assert tuple(row.values()) == ("failed", None)
    assert (await office.verify()).problems == []


# The active session


@pytest.mark.req("S1-002", "S1-012", "S1-013", "S1-020", "X1-02")
async def test_new_session_replaces_the_previous(office: Store) -> None:
    outcome = await prepare(office)
    app = Prioritizer()
    first = await app.prioritize(office, "ada", outcome.id)
    other_session = await app.prioritize(office, "bea", (await prepare(office, "bea")).id)
    second = await app.prioritize(office, "ada", outcome.id)
    assert second.thread_id != first.thread_id
    assert {session.thread_id for session in await sessions(office)} == {other_session.thread_id, second.thread_id}
    with pytest.raises(NotFound):
        await office.thread(first.thread_id)
    with pytest.raises(NotFound):
        await session_of(office, first.thread_id)
    traces = await lens(office, "SELECT session_id FROM reasoning_traces")
    assert str(first.thread_id) not in {str(row["session_id"]) for row in traces}
    assert (await office.statistics.usage()).total.runs == 3, "its usage stays in the statistics"
    assert (await latest(office, "ada")).thread_id == second.thread_id
    assert (await office.verify()).problems == []


@pytest.mark.req("S1-015")
async def test_keeps_inactive_sessions_with_sessions_all(office: Store) -> None:
    outcome = await prepare(office)
    app = Prioritizer(sessions="all")
    first = await app.prioritize(office, "ada", outcome.id)
    second = await app.prioritize(office, "ada", outcome.id)
    found_sessions = await sessions(office, "ada")
    assert [(session.thread_id, session.is_active) for session in found_sessions] == [
        (second.thread_id, True),
        (first.thread_id, False),
    ]
    assert found_sessions[1].plan == first.plan
    rows = await lens(office, "SELECT is_active FROM agent_sessions ORDER BY created_at")
    assert [bool(row["is_active"]) for row in rows] == [False, True]
    with pytest.raises(Refused):
        Prioritizer(sessions="some")  # pyright: ignore[reportArgumentType]


@pytest.mark.req("S1-014")
async def test_rejects_start_while_a_session_runs(office: Store) -> None:
    outcome = await prepare(office)
    app = Prioritizer()
    first = await app.start(office, "ada", outcome.id)
    assert (first.status, first.plan) == ("running", None)
    with pytest.raises(SessionRunning) as raised:
        await app.start(office, "ada", outcome.id)
    assert raised.value.thread_id == first.thread_id
    second = await app.start(office, "ada", outcome.id, replace=True)
    assert [session.thread_id for session in await sessions(office)] == [second.thread_id]
    assert (await app.run(office, second.thread_id)).status == "completed"


@pytest.mark.req("S1-013", "S1-014")
async def test_concurrent_starts_leave_one_session(office: Store) -> None:
    outcome = await prepare(office)
    app = Prioritizer()
    await app.prioritize(office, "ada", outcome.id)
    starts = [app.start(office, "ada", outcome.id) for _ in range(5)]
    results = await asyncio.gather(*starts, return_exceptions=True)
    started = [result for result in results if isinstance(result, Session)]
    assert len(started) == 1
    assert all(isinstance(result, SessionRunning) for result in results if not isinstance(result, Session)), results
    assert [session.thread_id for session in await sessions(office)] == [started[0].thread_id]


async def test_replaces_a_session_that_a_process_executes(office: Store) -> None:
    """The process that executes it receives a cancel request and stops."""
    outcome = await prepare(office)
    reached = asyncio.Event()

    async def slow(request: ModelRequest) -> str:
        reached.set()
        await asyncio.sleep(60)
        return ANSWER

    app = planner(slow)
    first = await app.start(office, "ada", outcome.id)
    driving = asyncio.create_task(app.run(office, first.thread_id))
    await reached.wait()
    quick = planner(ANSWER)
    second = await quick.prioritize(office, "ada", outcome.id, replace=True)
    with suppress(NotFound):
        assert (await driving).status == "failed"
    assert [session.thread_id for session in await sessions(office)] == [second.thread_id]
    assert second.status == "completed"


@pytest.mark.req("S1-003")
async def test_rejects_outcomes_of_other_users_and_inactive_ones(office: Store) -> None:
    """The statement of the active outcome is part of the prompt."""
    outcome = await prepare(office)
    prompts: list[str] = []

    def answer(request: ModelRequest) -> str:
        prompts.append(str((request.system, request.messages)))
        return ANSWER

    session = await planner(answer).prioritize(office, "ada", outcome.id)
    assert session.outcome_id == outcome.id
    assert ["Open the checkout" in prompt for prompt in prompts] == [True]
    await office.delete(session.thread_id)
    app = Prioritizer()
    with pytest.raises(NoActiveOutcome):
        await app.start(office, "bea", outcome.id)
    await repository.set_active(office, outcome.id, False)
    with pytest.raises(NoActiveOutcome):
        await app.start(office, "ada", outcome.id)
    with pytest.raises(NotFound):
        await app.start(office.in_project("other"), "ada", outcome.id)
    with pytest.raises(ProviderError):
        await Prioritizer(model="nobody:x").start(office, "ada", outcome.id)
    assert await office._backend.find(Find(Thread)) == []


async def test_writes_list_outcome_and_session_in_one_transaction(office: Store) -> None:
    app = Prioritizer()
    first = await app.start_from_list(office, "ada", "Open the  checkout", CHECKOUT, "plan.md")
    assert (await app.run(office, first)).status == "completed"
    second = await app.start_from_list(office, "ada", "Open the checkout", "- [ ] One thing", "other.md")
    session = await app.run(office, second)
    assert plan_of(session).ordered_task_ids == ["one-thing"], "only tasks of this file"  # pyright: ignore[reportOptionalMemberAccess]
    assert len(await repository.outcomes(office)) == 1
    third = await app.restart(office, session)
    assert (await app.run(office, third)).plan == session.plan
    for user, outcome, content in (
        ("", "x", "- a"),
        ("ada", " ", "- a"),
        ("ada", "x", ""),
        ("ada", "x", "- a (after: a)"),
    ):
        with pytest.raises(Refused):
            await app.start_from_list(office, user, outcome, content)
    assert [session.thread_id for session in await sessions(office)] == [third]
    assert len(await office._backend.find(Find(Document))) == 3


# Interrupted sessions


@pytest.mark.req("S1-010")
async def test_cancelled_or_failed_session_is_not_running(office: Store) -> None:
    """A process without the plugin ends the thread. The lens and the API show that, and the row is corrected."""
    outcome = await prepare(office)
    app = Prioritizer()
    first = await app.start(office, "ada", outcome.id)
    await cancel(office, first.thread_id)
    (row,) = await lens(office, "SELECT status FROM agent_sessions")
    assert row["status"] == "failed"
    session = await session_of(office, first.thread_id)
    assert (session.status, metadata_of(session).status_note) == (
        "failed",
        "The session was cancelled. Start it again.",
    )
    assert (await office._backend.find(Find(Session)))[0].status == "failed"
    broken = planner({"fail": "request", "message": "No such model."})
    session = await broken.prioritize(office, "ada", outcome.id)
    assert (session.status, metadata_of(session).status_note) == ("failed", "No such model.")
    half = planner(says(SEARCH), {"fail": "request", "message": "Gone."})
    session = await half.prioritize(office, "ada", outcome.id)
    assert (session.status, session.steps_taken, metadata_of(session).success_rate) == ("failed", 1, 1.0)
    assert (await trace_of(office, session)).total_steps == 1


async def test_resumes_interrupted_session(office: Store) -> None:
    outcome = await prepare(office)
    reached = asyncio.Event()

    async def hangs(request: ModelRequest) -> Any:
        if request.step == 1:
            return says(SEARCH)
        reached.set()
        return await asyncio.sleep(60, ANSWER)

    first = await planner(hangs).start(office, "ada", outcome.id)
    driving = asyncio.create_task(planner(hangs).run(office, first.thread_id))
    await reached.wait()
    driving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await driving
    trace = await trace_of(office, await session_of(office, first.thread_id))
    assert (trace.total_steps, (await active(office, "ada")).status) == (1, "running")  # pyright: ignore[reportOptionalMemberAccess]
    session = await planner(says(SEARCH), ANSWER).run(office, first.thread_id)
    assert (session.status, session.steps_taken) == ("completed", 1)


@pytest.mark.req("S1-010", "S1-068", "X1-08")
async def test_session_fails_after_hard_timeout(
    timed_office: Store, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A long session gets a warning. After the hard timeout it fails, in every process."""
    outcome = await prepare(timed_office)

    def slowly(request: ModelRequest) -> Any:
        clock.advance(31)
        return ANSWER

    with caplog.at_level(logging.WARNING, "lockstitch.prioritizer"):
        session = await planner(slowly).prioritize(timed_office, "ada", outcome.id)
    assert session.status == "completed"
    assert metadata_of(session).total_time_ms >= 30_000
    assert any("took 31.0 s" in record.getMessage() for record in caplog.records)
    assert "The session took 31.0 s. Its budget is 30 s." in metadata_of(session).warnings

    def very_slowly(request: ModelRequest) -> Any:
        clock.advance(400)
        return says(SEARCH)

    session = await planner(very_slowly).prioritize(timed_office, "ada", outcome.id)
    assert session.status == "failed"
    assert "did not finish within 300 s" in str(metadata_of(session).status_note)


@pytest.mark.req("X1-08")
async def test_session_fails_when_model_never_answers(office: Store) -> None:
    outcome = await prepare(office)

    async def silent(request: ModelRequest) -> str:
        await asyncio.sleep(60)
        return ""

    session = await planner(silent, hard_timeout=0.2).prioritize(office, "ada", outcome.id)
    assert (session.status, metadata_of(session).status_note) == ("failed", "The session did not finish within 0.2 s.")
    assert (await office.thread(session.thread_id)).status == "cancelled"


async def test_plans_without_similarity_when_embedder_fails(office: Store) -> None:
    """The tool fails after its retries, and the session still has a plan."""
    waited: list[float] = []

    class Broken:
        name, threshold = "broken", 0.5

        async def embed(self, texts: Any) -> Any:
            raise ProviderError("away", "overloaded")

        async def close(self) -> None: ...

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    outcome = await prepare(office)
    app = planner(says(SEARCH), ANSWER, embedder=Broken(), pace=Pace(sleep=sleep))
    session = await app.prioritize(office, "ada", outcome.id)
    assert (session.status, metadata_of(session).failed_tools) == ("completed", ["semantic-search"])
    assert waited == [2.0, 2.0]


@pytest.mark.req("S1-095")
async def test_session_of_ten_steps_has_the_documented_size(office: Store) -> None:
    """About 2 KB for the session, 10 KB for its trace, and 1.2 MB for 100 sessions. The report has the stored bytes."""
    long = says(call("query-task-graph", task_id="T2"), thinking="So it goes. " * 36)
    agent = planner(lambda request: ANSWER if request.tool_choice == "none" else long)
    totals: list[int] = []
    for user in ("ada", "bea", "cyd"):
        session = await agent.prioritize(office, user, (await prepare(office, user)).id)
        report = await office.size()
        assert report.pop("disk") > sum(report.values()), "also the rows of the application and the indexes"
        totals.append(sum(report.values()))
    assert session.steps_taken == 10
    trace = await trace_of(office, session)
    row_size, trace_size = len(shown(session).model_dump_json()), len(trace.model_dump_json())
    assert 1.5 * 1024 < row_size < 2.5 * 1024
    assert 9 * 1024 < trace_size < 12 * 1024
    assert all(0.8 * 1024 < len(step.model_dump_json()) < 1.3 * 1024 for step in trace.steps)
    growth = {after - before for before, after in pairwise(totals)}
    assert max(growth) + row_size < 1.5 * 12 * 1024, "every further session adds its own bytes only"
    assert sum((await office.size(session.thread_id)).values()) <= max(growth) + 4 * 1024, "prompt and tools: once"


@pytest.mark.req("S1-062")
async def test_similar_tasks_of_a_wave_stand_together(office: Store) -> None:
    titles = ("a1: Paint the kitchen", "b1: Order invoice paper", "c1: Paint the hall", "d1: Print invoice paper")
    outcome = await prepare(office, content="".join(f"- [ ] {title}\n" for title in titles))
    answer = json.dumps({"ordered_task_ids": ["a1", "b1", "c1", "d1"], "synthesis_summary": "In this order."})
    plan = plan_of(await planner(answer).prioritize(office, "ada", outcome.id))
    assert plan is not None
    assert [wave.task_ids for wave in plan.execution_waves] == [["a1", "c1", "b1", "d1"]]


async def test_replace_raises_when_another_caller_replaced_the_session(
    office: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = await prepare(office)
    app = Prioritizer()
    first = await app.start(office, "ada", outcome.id)

    async def gone(_store: Store, _thread_id: object) -> None:
        raise NotFound("The thread was deleted.")

    monkeypatch.setattr("lockstitch.apps.prioritizer.plugin._end", gone)
    with pytest.raises(SessionRunning, match="at the same time"):
        await app.start(office, "ada", outcome.id, replace=True)
    assert (await session_of(office, first.thread_id)).status == "running"


async def test_calls_webhooks_of_app_when_session_fails_in_process(office: Store) -> None:
    def refuse(request: ModelRequest) -> str:
        raise ProviderError("No such model.", "request")

    events: list[Any] = []
    prioritizer = planner(refuse)
    bound = App(plugins=[prioritizer], hooks={"ops": events.append}).plugin(Prioritizer)
    assert bound is not prioritizer
    session = await bound.prioritize(office, "ada", (await prepare(office)).id)
    assert session.status == "failed"
    assert [event["thread_id"] for event in events] == [str(session.thread_id)]
