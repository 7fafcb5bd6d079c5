"""Agents, teams and rows of Agno on SQLite, PostgreSQL and files. `test_suite.py` runs it in environments with Agno."""

# pyright: basic, reportMissingImports=false

import asyncio
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from agno.agent import Agent
from agno.db.base import AsyncBaseDb, BaseDb, SessionType
from agno.db.schemas.evals import EvalFilterType, EvalRunRecord, EvalType
from agno.db.schemas.knowledge import KnowledgeRow
from agno.db.schemas.memory import UserMemory
from agno.db.sqlite import SqliteDb
from agno.metrics import MessageMetrics
from agno.models.base import Model
from agno.models.response import ModelResponse
from agno.session import AgentSession
from agno.team import Team
from agno.tools.decorator import tool
from agno.tracing.schemas import Span, Trace

from lockstitch import open_store
from lockstitch.integrations.agno import AsyncLockstitchDb, LockstitchDb
from tests.servers import PostgresServer


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    started = PostgresServer()
    yield started
    started.close()


@pytest.fixture(params=["sqlite", "files", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return request.getfixturevalue("server").create_database()
    return f"{'sqlite' if request.param == 'sqlite' else 'file'}:///{tmp_path}/store"


@pytest.fixture
def db(url: str) -> Iterator[LockstitchDb]:
    with LockstitchDb.open(url) as opened:
        yield opened


@dataclass
class Scripted(Model):
    """Calls a tool after each message of the user, then answers."""

    id: str = "gpt-4o-mini"
    provider: str = "OpenAI"
    tool: str = ""
    arguments: str = '{"city": "Graz"}'

    def invoke(self, *_: Any, messages: Any = None, **__: Any) -> ModelResponse:
        usage = MessageMetrics(input_tokens=100, output_tokens=20, total_tokens=120)
        if self.tool and messages[-1].role == "user":
            function = {"name": self.tool, "arguments": self.arguments}
            call = {"id": f"call-{len(messages)}", "type": "function", "function": function}
            return ModelResponse(role="assistant", tool_calls=[call], response_usage=usage)
        return ModelResponse(role="assistant", content=f"After {messages[-1].content}.", response_usage=usage)

    async def ainvoke(self, *values: Any, **named: Any) -> ModelResponse:
        return self.invoke(*values, **named)

    def invoke_stream(self, *values: Any, **named: Any) -> Any:
        yield self.invoke(*values, **named)

    async def ainvoke_stream(self, *values: Any, **named: Any) -> Any:
        yield self.invoke(*values, **named)

    def _parse_provider_response(self, response: Any, **_: Any) -> ModelResponse:
        return response

    def _parse_provider_response_delta(self, response: Any) -> ModelResponse:
        return response


def weather(city: str) -> str:
    """Return the weather."""
    return f"sunny in {city}"


@tool(requires_confirmation=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def helper(db: Any, **more: Any) -> Agent:
    about = {"id": "helper", "model": Scripted(tool="weather"), "tools": [weather], "instructions": "Be kind."}
    return Agent(**{**about, "db": db, "add_history_to_context": True, "telemetry": False, **more})


def without_times(value: Any) -> Any:
    """Return JSON without times, durations and ids, which differ between two runs."""
    if isinstance(value, dict):
        dropped = {"created_at", "updated_at", "duration", "time_to_first_token", "start_time", "end_time", "id"}
        return {key: without_times(item) for key, item in value.items() if key not in (*dropped, "run_id")}
    return [without_times(item) for item in value] if isinstance(value, list) else value


def test_agent_reads_the_session_that_agnos_own_database_returns(db: LockstitchDb, tmp_path: Path) -> None:
    own = SqliteDb(db_file=str(tmp_path / "own.db"))
    sessions = []
    for database in (own, db):
        agent = helper(database)
        for text in ("One", "Two", "Three"):
            agent.run(text, session_id="s", user_id="ada")
        sessions.append(database.get_session("s", SessionType.AGENT, deserialize=False))
    assert without_times(sessions[1]) == without_times(sessions[0])
    read = [database.get_session("s", SessionType.AGENT, user_id="ada", runs_limit=2) for database in (own, db)]
    assert [len(session.runs) for session in read] == [2, 2]
    history = db.store.in_namespace("agno")
    runs = db._wait(history.runs("s"))
    assert [(run.status, run.steps, run.input_tokens) for run in runs] == [("completed", 2, 200)] * 3
    texts = [entry["content"] for entry in db._wait(history.context("s")) if entry["role"] == "user"]
    assert [text for text in texts if isinstance(text, str)] == ["One", "Two", "Three"]
    assert [agent.get_session_messages("s")[-1].content for agent in (helper(own), helper(db))] == [
        "After sunny in Graz."
    ] * 2


def test_async_agent_continues_the_session_of_a_blocking_one(url: str) -> None:
    with LockstitchDb.open(url) as db:
        helper(db).run("One", session_id="s")

    async def test() -> None:
        async with open_store(url) as store:
            db = AsyncLockstitchDb(store)
            await helper(db).arun("Two", session_id="s")
            await asyncio.gather(*(helper(db).arun(f"{number}", session_id="s") for number in range(3)))
            runs, total = await db.get_runs(session_id="s", deserialize=False)
            assert [run["run_index"] for run in runs] == sorted(run["run_index"] for run in runs)
            assert total == len(await store.runs("agno:s")) == 5
            async for event in helper(db).arun("Streamed", session_id="t", stream=True):
                assert event
            assert [run.status for run in await store.runs("agno:t")] == ["completed"]
            assert (await store.verify()).problems == []

    asyncio.run(test())


def test_paused_run_continues_after_a_restart(url: str) -> None:
    about = {"model": Scripted(tool="pay", arguments='{"amount": 7}'), "tools": [pay]}
    with LockstitchDb.open(url) as db:
        paused = helper(db, **about).run("Pay", session_id="s")
        assert paused.is_paused
        run_id = paused.run_id
    with LockstitchDb.open(url) as db:
        agent = helper(db, **about)
        stored = db.get_run(run_id)
        assert stored.status == "PAUSED"
        for execution in stored.tools:
            execution.confirmed = True
        agent.continue_run(run_id=run_id, updated_tools=stored.tools, session_id="s")
        (run,) = db._wait(db.store.runs("agno:s"))
        types = [stitch.type for stitch in db._wait(db.store.stitches("agno:s"))]
        assert run.status == "completed"
        assert types.count("tool_call") == types.count("run_paused") == 1
        assert types.count("input") == 1


def test_team_and_its_members_are_runs_of_one_thread(db: LockstitchDb) -> None:
    member = Agent(id="bo", name="Bo", model=Scripted(), telemetry=False)
    arguments = '{"member_id": "bo", "task": "Look."}'
    leader = Scripted(tool="delegate_task_to_member", arguments=arguments)
    team = Team(id="team", members=[member], model=leader, db=db, telemetry=False)
    team.run("Ask Bo", session_id="s")
    session = db.get_session("s", SessionType.TEAM)
    assert len(session.runs) >= 1
    roles = [run.role for run in db._wait(db.store.runs("agno:s"))]
    assert roles.count("team") == 1
    turns = db._wait(db.store.history("agno:s")).turns
    assert "Ask Bo" in [turn.user_message for turn in turns]


def test_memories_contents_and_evaluations_have_the_semantics_of_agno(db: LockstitchDb) -> None:
    for number, (user, topics) in enumerate([("ada", ["a", "b"]), ("ada", ["b"]), ("bo", [])]):
        db.upsert_user_memory(UserMemory(memory=f"Fact {number}", memory_id=f"{number}", user_id=user, topics=topics))
    db.upsert_user_memory(UserMemory(memory="Changed", memory_id="0", user_id="eve", topics=["c"]))
    assert db.get_user_memory("0").memory == "Changed"
    assert db.get_user_memory("0", user_id="eve") is None, "the owner of a memory does not change"
    assert sorted(db.get_all_memory_topics("ada")) == ["b", "c"]
    rows, total = db.get_user_memories(user_id="ada", search_content="fact", deserialize=False, limit=1, page=1)
    assert ([row["memory_id"] for row in rows], total) == (["1"], 1)
    assert {row["user_id"]: row["total_memories"] for row in db.get_user_memory_stats()[0]} == {"ada": 2, "bo": 1}
    db.delete_user_memory("2", user_id="ada")
    db.delete_user_memories(["0", "1"], user_id="ada")
    assert [memory.memory_id for memory in db.get_user_memories()] == ["2"]
    assert len(db.upsert_memories([UserMemory(memory="New", user_id="ada")] * 1)) == 1
    db.clear_memories()
    assert db.get_user_memories() == []

    db.upsert_knowledge_content(KnowledgeRow(id="k", name="Guide", description="", user_id="ada", linked_to="base"))
    db.upsert_knowledge_content(KnowledgeRow(id="l", name="Shared", description="", metadata={"n": 1}))
    with pytest.raises(ValueError, match="not found"):
        db.upsert_knowledge_content(KnowledgeRow(id="k", name="Stolen", description="", user_id="bo"))
    assert db.get_knowledge_content("k", user_id="bo") is None
    assert [row.name for row in db.get_knowledge_contents(user_id="bo")[0]] == ["Shared"]
    assert db.get_knowledge_contents(linked_to="base", limit=5)[1] == 1
    assert db.get_knowledge_content("l").metadata == {"n": 1}
    db.delete_knowledge_content("l", user_id="bo")
    assert db.get_knowledge_contents()[1] == 2

    record = EvalRunRecord(run_id="e", eval_type=EvalType.ACCURACY, eval_data={"score": 1}, agent_id="helper")
    db.create_eval_run(record)
    assert db.get_eval_run("e").eval_data == {"score": 1}
    assert db.rename_eval_run("e", "Named").name == "Named"
    assert db.get_eval_runs(filter_type=EvalFilterType.TEAM) == []
    assert db.get_eval_runs(eval_type=[EvalType.ACCURACY], agent_id="helper", deserialize=False)[1] == 1
    db.delete_eval_runs(["e"])
    assert db.get_eval_run("e") is None


def test_learnings_traces_and_metrics_have_the_semantics_of_agno(db: LockstitchDb) -> None:
    db.upsert_learning("l", "user_profile", {"name": "Sarah Chen"}, user_id="ada", namespace="user")
    db.upsert_learning("l", "user_profile", {"name": "Sarah_Chen"}, user_id="bo")
    assert db.get_learning("user_profile", user_id="ada") == {"content": {"name": "Sarah_Chen"}}
    assert [row["learning_id"] for row in db.search_learnings("sarah chen")] == ["l"]
    assert db.search_learnings("%") == db.get_learnings(entity_id="x") == []
    assert db.update_learning("l", {"name": "S"}, {"n": 1})
    assert db.get_learning_by_id("l")["metadata"] == {"n": 1}
    assert db.list_learnings(user_id="bo", include_global=True)[1] == 0
    assert db.get_learnings_user_stats()[1] == 1
    assert db.delete_user_learnings("ada") == 1
    assert not db.delete_learning("l")

    start = datetime(2026, 1, 1, tzinfo=UTC)

    def trace(id: str, minutes: int, session_id: str | None, **more: Any) -> Trace:
        times = {"start_time": start + timedelta(minutes=minutes), "end_time": start + timedelta(minutes=minutes + 1)}
        about = {"trace_id": id, "name": "helper.run", "status": "OK", "duration_ms": 60_000, "created_at": start}
        context = {"run_id": f"run-{id}", "user_id": "ada", "agent_id": "helper", "team_id": None, "workflow_id": None}
        counts = {"total_spans": 0, "error_count": 0}
        return Trace(**{**about, **times, **counts, **context, "session_id": session_id, **more})

    for number, session_id in enumerate(["s", "s", "t", None]):
        db.upsert_trace(trace(f"{number}", number, session_id))
    db.upsert_trace(trace("0", 5, "other", status="ERROR", name="inner"))
    merged = db.get_trace(run_id="run-0")
    assert (merged.session_id, merged.status, merged.name, merged.duration_ms) == ("s", "ERROR", "helper.run", 360_000)
    found, total = db.get_traces(session_id="s", limit=1, page=2)
    assert ([item.trace_id for item in found], total) == (["0"], 2)
    expression = {"op": "AND", "conditions": [{"op": "EQ", "key": "status", "value": "OK"}]}
    expression["conditions"].append({"op": "NOT", "condition": {"op": "CONTAINS", "key": "session_id", "value": "S"}})
    assert [item.trace_id for item in db.get_traces(filter_expr=expression)[0]] == ["3", "2"]
    with pytest.raises(ValueError, match="Invalid filter field"):
        db.get_traces(filter_expr={"op": "EQ", "key": "secret", "value": 1})
    assert {row["session_id"]: row["total_traces"] for row in db.get_trace_stats()[0]} == {"s": 2, "t": 1}
    assert db.get_trace_stats(group_by="agent")[0][0]["total_traces"] == 4
    about = {"parent_span_id": None, "span_kind": "INTERNAL", "status_message": None, "attributes": {"a": [1]}}
    times = {"start_time": start, "end_time": start, "duration_ms": 0, "created_at": start}
    spans = [
        Span(span_id=f"{number}", trace_id="1", name="n", status_code=code, **about, **times)
        for number, code in enumerate(["OK", "ERROR"])
    ]
    db.create_spans(spans)
    assert db.get_span("0") == spans[0]
    assert [span.span_id for span in db.get_spans(trace_id="1")] == ["0", "1"]
    assert (db.get_trace("1").total_spans, db.get_trace("1").error_count) == (2, 1)

    helper(db).run("One", session_id="s", user_id="ada")
    calculated = db.calculate_metrics()
    assert [(row["user_id"], row["agent_runs_count"]) for row in calculated] == [("ada", 1)]
    metrics, updated_at = db.get_metrics(user_id="ada")
    assert metrics[0]["model_metrics"] == [{"model_id": "gpt-4o-mini", "model_provider": "OpenAI", "count": 1}]
    assert updated_at


def test_sessions_of_other_users_are_refused(db: LockstitchDb) -> None:
    assert db.upsert_session(AgentSession(session_id="s", agent_id="helper", user_id="ada")) is not None
    assert db.upsert_session(AgentSession(session_id="s", agent_id="helper", user_id="bo")) is None
    assert db.rename_session("s", SessionType.AGENT, "Named", user_id="bo") is None
    assert db.rename_session("s", None, "Named").session_data["session_name"] == "Named"
    assert [session.session_id for session in db.get_sessions(session_name="nam", component_id="helper")] == ["s"]
    assert not db.reassign_session_owner("s", previous_user_id="bo", user_id="eve")
    assert db.reassign_session_owner("s", previous_user_id="ada", user_id="eve")
    assert not db.delete_session("s", user_id="ada")
    db.delete_sessions(["s"], user_id="eve")
    assert db.get_session("s") is None


@pytest.mark.parametrize("pair", [(LockstitchDb, BaseDb), (AsyncLockstitchDb, AsyncBaseDb)])
def test_methods_have_the_parameters_of_agno(pair: tuple[type, type]) -> None:
    database, base = pair
    assert not database.__abstractmethods__
    for name, method in inspect.getmembers(base, inspect.isfunction):
        if name.startswith("_") or getattr(database, name) is method or name == "close":
            continue
        wanted = {field: value.default for field, value in inspect.signature(method).parameters.items()}
        own = {field: value.default for field, value in inspect.signature(getattr(database, name)).parameters.items()}
        # Some have more parameters, as those of Agno's SQLite database.
        assert {field: value for field, value in own.items() if field in wanted} == wanted, name
        assert inspect.iscoroutinefunction(getattr(database, name)) is inspect.iscoroutinefunction(method), name
