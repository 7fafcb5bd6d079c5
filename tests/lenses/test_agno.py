"""The lens agno: sessions with their runs in one array, and the other tables of the framework."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lockstitch.model import Agent, AgentVersion, Entry, Eval, Knowledge, Memory, Run, TeamMember
from lockstitch.store import Store
from tests.lenses.mirror import research
from tests.lenses.story import SYSTEM, Story, tell
from tests.samples import answered, said

pytestmark = pytest.mark.anyio

NOW = datetime(2025, 3, 4, 10, 0, 0, 999_900, tzinfo=UTC)

COLUMNS = {
    "agno_sessions": "session_id session_type agent_id team_id workflow_id user_id session_data agent_data team_data "
    "workflow_data runs summary created_at updated_at project",
    "agno_components": "component_id component_type name description current_version metadata created_at updated_at "
    "deleted_at project",
    "agno_component_configs": "component_id version label stage config notes created_at updated_at deleted_at project",
    "agno_component_links": "parent_component_id parent_version link_kind link_key child_component_id child_version "
    "position meta created_at updated_at project",
    "agno_memories": "memory_id memory feedback input agent_id team_id user_id topics created_at updated_at",
    "agno_learnings": "learning_id learning_type namespace user_id agent_id team_id workflow_id session_id entity_id "
    "entity_type content metadata created_at updated_at",
    "agno_knowledge": "id name description metadata type size linked_to access_count status status_message external_id "
    "created_at updated_at",
    "agno_metrics": "id agent_runs_count team_runs_count workflow_runs_count agent_sessions_count team_sessions_count "
    "workflow_sessions_count users_count token_metrics model_metrics date aggregation_period completed created_at "
    "updated_at",
    "agno_eval_runs": "run_id eval_type eval_data eval_input name agent_id team_id workflow_id model_id model_provider "
    "evaluated_component_name created_at updated_at",
    "agno_schema_versions": "table_name version created_at updated_at",
}

RUN = (
    "run_id session_id team_id team_name agent_id agent_name status input content content_type messages "
    "member_responses metrics events model model_provider citations created_at"
)


async def look(store: Store, query: str) -> list[dict[str, Any]]:
    answer = await store.sql(query, lens="agno")
    return [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]


def read(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


async def runs(store: Store, session: str) -> list[dict[str, Any]]:
    (row,) = await look(store, f"SELECT runs FROM agno_sessions WHERE session_id = '{session}' AND project = 'default'")
    return read(row["runs"])


@pytest.mark.req("S4-028", "S4-029", "S4-030", "X4-12")
async def test_views_have_columns_of_agno(store: Store) -> None:
    assert len(COLUMNS) == 10, "all tables of the framework"
    for view, names in COLUMNS.items():
        answer = await store.sql(f"SELECT * FROM {view}", lens="agno")
        assert answer.columns == names.split(), view


@pytest.mark.req("S4-014", "S4-019", "S4-036", "X4-09", "X4-13")
async def test_workflow_is_a_component_with_sessions(store: Store) -> None:
    await store._backend.put([Agent(name="nightly", role="workflow", created_at=NOW, updated_at=NOW)])
    head = await store.create(agent="nightly", key="night-1", settings={"model": "m"})
    run = store.new_run(head, agent="nightly", role="workflow", status="completed", input_position=1)
    await store.append(head, [said("Go", run_id=run.id)], new_runs=[run])
    (component,) = await look(store, "SELECT component_id, component_type FROM agno_components")
    assert component == {"component_id": "nightly", "component_type": "workflow"}
    (session,) = await look(store, "SELECT * FROM agno_sessions")
    assert (session["session_type"], session["workflow_id"]) == ("workflow", "nightly")
    assert read(session["workflow_data"]) == {"id": "nightly", "name": "nightly", "model": "m"}
    assert [session[name] for name in ("agent_id", "team_id", "agent_data", "team_data")] == [None] * 4
    (shown,) = read(session["runs"])
    assert [shown[name] for name in ("workflow_id", "agent_id", "agent_name", "team_id", "team_name")] == [
        "nightly",
        *[None] * 4,
    ]
    (day,) = await look(store, "SELECT * FROM agno_metrics")
    assert (day["workflow_runs_count"], day["workflow_sessions_count"], day["agent_runs_count"]) == (1, 1, 0)


@pytest.mark.req("S4-009", "S4-010", "S4-011", "S4-013", "S4-015")
async def test_every_thread_is_one_session(store: Store, tmp_path: Path) -> None:
    story = await tell(store, tmp_path)
    await research().put(store)
    rows = await look(store, "SELECT * FROM agno_sessions")
    assert not [row for row in rows if "langsmith" in row["session_id"]], "a trace is not a session"
    sessions = {(row["project"], row["session_id"]): row for row in rows}
    assert len(sessions) == len(rows) == 13
    shop = sessions["default", "shop"]
    assert (shop["session_type"], shop["agent_id"], shop["team_id"], shop["user_id"]) == (
        "agent",
        "keeper",
        None,
        "ada",
    )
    assert read(shop["session_data"]) == {"session_state": story.shop.extras, "session_name": "Prices of drinks"}
    assert story.shop.settings["model"]
    assert read(shop["agent_data"]) == {"id": "keeper", "name": "keeper", "model": story.shop.settings["model"]}
    assert (shop["created_at"], shop["updated_at"]) == (
        int(story.shop.created_at.timestamp()),
        int(story.shop.updated_at.timestamp()),
    ), "seconds, without fractions"
    assert (shop["team_data"], shop["summary"]) == (None, None)
    assert read(sessions["default", "boss"]["summary"]) == story.boss.result
    assert len(read(shop["runs"])) == 3
    child = story.scouts[0]
    assert sessions["default", str(child.id)]["agent_id"] == "scout_down", "without a key its id is its name"


@pytest.mark.req("S4-035", "S4-036", "S4-037", "S4-038", "S4-039")
async def test_run_object_has_documented_keys(story_store: Store) -> None:
    first, second, third = await runs(story_store, "shop")
    assert set(RUN.split()) <= set(first)
    assert (first["agent_id"], first["agent_name"], first["team_id"], first["team_name"]) == ("keeper",) * 2 + (
        None,
    ) * 2
    assert [run["status"] for run in (first, second, third)] == ["COMPLETED"] * 3
    assert json.loads(first["input"]) == {"input_content": "What do tea and coffee cost?"}
    assert json.loads(third["input"]) == {"input_content": "Thank you."}, "the text of all blocks"
    assert (first["content"], first["content_type"], first["citations"]) == ("Tea costs 3, coffee 6.", "str", None)
    assert [run["status"] for run in await runs(story_store, "failed")] == ["FAILED"]
    assert [run["status"] for run in await runs(story_store, "paused")] == ["COMPLETED", "PAUSED"]
    assert [run["status"] for run in await runs(story_store, "cancelled")] == ["CANCELLED"]


@pytest.mark.req("S4-037", "X4-04")
async def test_run_object_shows_open_statuses(store: Store) -> None:
    head = await store.create(key="open", agent="helper")
    for number, status in enumerate(("pending", "running", "failed"), start=1):
        run = store.new_run(head, status=status).changed(sequence=number, turn=number)
        head = (await store.append(head, [said("Hi", run_id=run.id)], new_runs=[run])).head
    assert [run["status"] for run in await runs(store, "open")] == ["PENDING", "RUNNING", "FAILED"]


@pytest.mark.req("S4-012", "S4-040", "S4-041", "S4-042", "S4-044")
async def test_run_object_has_documented_content(story_store: Store, story: Story) -> None:
    rows, stored_runs = await runs(story_store, "shop"), await story_store.runs("shop")
    assert [run["run_id"] for run in rows] == [str(run.id) for run in stored_runs]
    for object_, run in zip(rows, stored_runs, strict=True):
        messages = await story_store.messages(run.id)
        assert object_["messages"] == [{"role": "system", "content": SYSTEM}, *messages]
        assert object_["created_at"] == int(run.started_at.timestamp())
        metrics = object_["metrics"]
        assert (metrics["input_tokens"], metrics["output_tokens"]) == (run.input_tokens, run.output_tokens)
        assert metrics["total_tokens"] == run.input_tokens + run.output_tokens
        assert metrics["cost"] == pytest.approx(run.total_cost)
        assert (metrics["model"], object_["model"], object_["model_provider"]) == ("scripted", "scripted", "scripted")
        assert run.completed_at is not None
        assert metrics["duration"] == pytest.approx((run.completed_at - run.started_at).total_seconds(), abs=0.01)
    events = [event["event"] for event in rows[0]["events"]]
    assert events[:4] == ["RunStarted", "RunContent", "ToolCallStarted", "ToolCallStarted"]
    assert events[4:6] == ["ToolCallCompleted", "ToolCallCompleted"]
    assert events[-1] == "RunCompleted"
    assert "ToolCallError" in [event["event"] for event in rows[1]["events"]]
    failed = [event["event"] for event in (await runs(story_store, story.failed.key or ""))[0]["events"]]
    assert failed == ["RunStarted", "RunError"]


async def team(store: Store) -> list[Run]:
    """Write records of a leader that delegated to a member and then compiled: three runs of one message."""
    await store._backend.put([Agent(name="lead", role="team", created_at=NOW, updated_at=NOW)])
    head = await store.create(agent="lead", key="books", user_id="ada")
    runs: list[Run] = []
    for place, (agent, role, question, answer) in enumerate(
        (
            ("lead", "team", "Recommend a book", "I ask."),
            ("researcher", "agent", "Find books", "Momo."),
            ("lead", "team", "Sum up", "Read Momo."),
        )
    ):
        parent = runs[0].id if runs else None
        run = store.new_run(
            head,
            agent=agent,
            role=role,
            parent_run_id=parent,
            status="completed",
            input_position=head.position + 1,
            model="m",
            provider="p",
        ).changed(
            output_position=head.position + 2,
            input_tokens=10 * (place + 1),
            output_tokens=1,
            completed_at=store.clock.now(),
        )
        lane = run.id if parent else None
        entries: list[Entry] = [
            said(question, run_id=run.id, lane=lane),
            answered(answer, run_id=run.id, lane=lane, input_tokens=10 * (place + 1), output_tokens=1),
        ]
        head = (await store.append(head, entries, new_runs=[run])).head
        runs.append(run)
    return runs


@pytest.mark.req("S4-036", "S4-043", "S4-045", "X4-08", "X4-09")
async def test_team_run_contains_member_runs(store: Store) -> None:
    runs = await team(store)
    (session,) = await look(store, "SELECT session_type, team_id, agent_id, runs FROM agno_sessions")
    assert (session["session_type"], session["team_id"], session["agent_id"]) == ("team", "lead", None)
    rows = read(session["runs"])
    assert [run["run_id"] for run in rows] == [str(run.id) for run in runs], "members too, in the order of their start"
    assert [(run["team_id"], run["agent_id"]) for run in rows] == [
        ("lead", None),
        (None, "researcher"),
        ("lead", None),
    ]
    assert json.loads(rows[1]["input"]) == {"input_content": "Find books"}, "the leader's instruction"
    stored = await store.stitches("books", runs[1].input_position, runs[1].input_position)
    assert stored[0].message == said("Find books").message, "stored as a message, shown as JSON in a text"
    below = rows[0]["member_responses"]
    assert [run["content"] for run in below] == ["Momo.", "Read Momo."]
    whole = {run["run_id"]: run for run in rows}
    for run in below:
        without = {"messages", "member_responses"}
        assert run == {name: value for name, value in whole[run["run_id"]].items() if name not in without}
    assert [run["parent_run_id"] for run in rows] == [None, str(runs[0].id), str(runs[0].id)]
    assert rows[1]["member_responses"] == []


@pytest.mark.req("S4-019", "S4-020", "S4-021")
async def test_registry_lists_agents_teams_and_versions(store: Store) -> None:
    for version in (1, 2):
        definition = {"name": "lead", "instructions": f"v{version}"}
        await store._backend.put(
            [AgentVersion(name="lead", version=version, digest=f"{version}", definition=definition, created_at=NOW)]
        )
    metadata = {"description": "Leads."}
    await store._backend.put(
        [Agent(name="lead", role="team", version=2, metadata=metadata, created_at=NOW, updated_at=NOW)]
    )
    for place, member in enumerate(("researcher", "writer")):
        await store._backend.put([TeamMember(team="lead", version=2, place=place, member=member, member_version=1)])
    (component,) = await look(store, "SELECT * FROM agno_components")
    assert (component["component_id"], component["component_type"]) == ("lead", "team")
    assert (component["current_version"], component["description"]) == (2, "Leads.")
    assert component["created_at"] == int(NOW.timestamp()), "whole seconds"
    configs = await look(store, "SELECT version, stage, config FROM agno_component_configs ORDER BY version")
    assert [read(config["config"])["instructions"] for config in configs] == ["v1", "v2"], "old versions stay"
    links = await look(store, "SELECT * FROM agno_component_links ORDER BY position")
    assert [(link["child_component_id"], link["parent_version"]) for link in links] == [
        ("researcher", 2),
        ("writer", 2),
    ]
    assert len({(link["parent_component_id"], link["link_kind"], link["link_key"]) for link in links}) == 2


@pytest.mark.req("S4-022", "S4-023", "S4-024", "S4-026", "S4-027")
async def test_memories_knowledge_and_evals_are_shown(store: Store) -> None:
    times: dict[str, Any] = {"created_at": NOW, "updated_at": NOW}
    head = await store.create(agent="helper", key="talk")
    for user in ("ada", "bob"):
        await store._backend.put([Memory(user_id=user, agent="helper", text=f"likes {user}", tags=["taste"], **times)])
    learned = Memory(
        kind="learning", agent="helper", thread_id=head.id, text="Ask first.", metadata={"namespace": "n"}, **times
    )
    await store._backend.put([learned])
    await store._backend.put([Knowledge(name="manual", type="pdf", size=3, metadata={"access_count": 4}, **times)])
    await store._backend.put([Eval(name="speed", type="accuracy", agent="helper", result={"score": 1}, **times)])
    (memory,) = await look(store, "SELECT * FROM agno_memories WHERE user_id = 'ada'")
    assert (memory["memory"], memory["agent_id"], read(memory["topics"])) == ("likes ada", "helper", ["taste"])
    (learning,) = await look(store, "SELECT * FROM agno_learnings WHERE agent_id = 'helper'")
    assert (learning["session_id"], learning["namespace"]) == ("talk", "n")
    assert read(learning["content"])["text"] == "Ask first."
    (document,) = await look(store, "SELECT * FROM agno_knowledge")
    assert (document["name"], document["type"], document["access_count"]) == ("manual", "pdf", 4)
    (evaluated,) = await look(store, "SELECT * FROM agno_eval_runs")
    assert (evaluated["eval_type"], read(evaluated["eval_data"])) == ("accuracy", {"score": 1})
    versions = await look(store, "SELECT table_name, version FROM agno_schema_versions")
    ((version,),) = (await store.sql("SELECT max(version) FROM schema_versions")).rows
    assert {row["table_name"]: row["version"] for row in versions} == {
        table: str(version) for table in COLUMNS if table != "agno_schema_versions"
    }, "the record's own version"


@pytest.mark.req("S4-025", "S4-031")
async def test_daily_metrics_outlive_runs(store: Store) -> None:
    runs = await team(store)
    await research().put(store)
    query = "SELECT * FROM agno_metrics"
    (day,) = await look(store, query)
    assert str(day["date"]) == runs[0].started_at.astimezone(UTC).date().isoformat()
    assert (day["agent_runs_count"], day["team_runs_count"], day["team_sessions_count"], day["users_count"]) == (
        1,
        2,
        1,
        1,
    )
    tokens = read(day["token_metrics"])
    assert (tokens["input_tokens"], tokens["output_tokens"], tokens["total_tokens"]) == (60, 3, 63)
    assert read(day["model_metrics"]) == [{"model_id": "m", "model_provider": "p", "count": 3}]
    assert await store.purge(user_id="ada") == 1
    remaining = [row for row in await look(store, query) if str(row["date"]) == str(day["date"])]
    assert [read(row["token_metrics"]) for row in remaining] == [tokens]
    assert remaining[0]["team_runs_count"] + remaining[0]["agent_runs_count"] == 3
