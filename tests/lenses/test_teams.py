"""The documented example through the lens agno: three messages to a team, seven runs."""

import json
from typing import Any

import pytest

from lockstitch.store import Store
from tests.engine.books import ANSWERS, MESSAGES, RUNS, books

pytestmark = pytest.mark.anyio

FIELDS = {
    *("run_id", "session_id", "team_id", "team_name", "agent_id", "agent_name", "status", "input", "content"),
    *("content_type", "messages", "member_responses", "metrics", "events", "model", "model_provider", "citations"),
    "created_at",
}


@pytest.fixture(params=["sqlite", "postgres"])
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
async def story_store(store: Store) -> Store:
    crew = books()
    for message in MESSAGES:
        await crew.run(message, store=store, thread="books", user_id="ada")
    return store


async def look(store: Store, query: str) -> list[dict[str, Any]]:
    answer = await store.sql(query, lens="agno")
    return [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]


def read(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


@pytest.mark.req("S4-035", "S4-036", "S4-038", "S4-039", "S4-045")
async def test_array_has_all_runs_in_order(story_store: Store) -> None:
    (session,) = await look(story_store, "SELECT * FROM agno_sessions")
    assert (session["session_id"], session["session_type"], session["team_id"]) == ("books", "team", "NotebookLM")
    assert (session["agent_id"], session["user_id"]) == (None, "ada")
    model = (await story_store.thread("books")).settings["model"]
    assert read(session["team_data"]) == {"id": "NotebookLM", "name": "NotebookLM", "model": model}
    assert session["agent_data"] is None
    runs = read(session["runs"])
    assert all(run.keys() >= FIELDS for run in runs)
    assert [(run["team_id"], run["agent_id"]) for run in runs] == [
        (agent, None) if role == "team" else (None, agent) for _, role, agent in RUNS
    ]
    assert [run["status"] for run in runs] == ["COMPLETED"] * 7
    inputs = [json.loads(run["input"])["input_content"] for run in runs]
    assert inputs == [
        MESSAGES[0],
        MESSAGES[1],
        "Find out what happens in chapter 5.",
        MESSAGES[1],
        MESSAGES[2],
        "Find what a summary of chapter 5 needs.",
        "Write a summary of chapter 5.",
    ]
    answer = "In chapter 5 the letter is found."
    needed = "The letter is found, and everything changes."
    contents = [run["content"] for run in runs]
    assert contents == [ANSWERS[0], ANSWERS[1], answer, ANSWERS[1], ANSWERS[2], needed, ANSWERS[2]]


@pytest.mark.req("S4-040", "S4-041", "S4-042", "S4-043", "S4-044")
async def test_run_shows_messages_and_member_tasks(story_store: Store) -> None:
    (session,) = await look(story_store, "SELECT runs FROM agno_sessions")
    runs = read(session["runs"])
    assert [[response["agent_id"] for response in run["member_responses"]] for run in runs] == [
        *([], ["Researcher"], [], []),
        *(["Researcher", "Writer"], [], []),
    ], "a compile run belongs to no member"
    assert runs[1]["member_responses"][0]["run_id"] == runs[2]["run_id"]
    assert runs[2]["parent_run_id"] == runs[3]["parent_run_id"] == runs[1]["run_id"]
    assert "messages" not in runs[1]["member_responses"][0]
    roles = [[message["role"] for message in run["messages"]] for run in runs]
    assert roles[2] == ["system", "user", "assistant", "user", "assistant"], "with the search and its result"
    assert roles[3] == ["system", "user", "assistant"]
    assert roles[6] == ["system", "user", "assistant"], "the answer of the Researcher is not repeated"
    assert runs[1]["messages"][0]["content"] == "You help with books."
    events = [event["event"] for event in runs[2]["events"]]
    assert events == [
        *("RunStarted", "RunContent", "ToolCallStarted", "ToolCallCompleted", "RunContent", "RunCompleted"),
    ]
    assert all(event["event"].startswith("Team") for event in runs[1]["events"] if "Run" in event["event"])
    assert [run["metrics"]["steps"] for run in runs] == [1, 1, 2, 1, 1, 1, 1]
    assert all(run["metrics"]["total_tokens"] > 0 and isinstance(run["created_at"], int) for run in runs)
    assert {run["model_provider"] for run in runs} == {"scripted"}


@pytest.mark.req("S4-019", "S4-020", "S4-021")
async def test_team_and_its_members_are_registered(story_store: Store) -> None:
    components = await look(
        story_store, "SELECT component_id, component_type FROM agno_components ORDER BY component_id"
    )
    assert [(component["component_id"], component["component_type"]) for component in components] == [
        ("NotebookLM", "team"),
        ("Researcher", "agent"),
        ("Writer", "agent"),
    ]
    links = "SELECT * FROM agno_component_links ORDER BY position"
    columns = ("parent_component_id", "parent_version", "child_component_id", "child_version")
    assert [tuple(link[name] for name in columns) for link in await look(story_store, links)] == [
        ("NotebookLM", 1, "Researcher", 1),
        ("NotebookLM", 1, "Writer", 1),
    ]
    changed = books(writer="You write well.")
    await changed.run("Hello!", store=story_store, thread="other")
    configs = await look(
        story_store, "SELECT component_id, version FROM agno_component_configs ORDER BY component_id, version"
    )
    assert [(config["component_id"], config["version"]) for config in configs] == [
        ("NotebookLM", 1),
        ("NotebookLM", 2),
        ("Researcher", 1),
        ("Writer", 1),
        ("Writer", 2),
    ], "a changed member is a changed team"
    links += ", parent_version"
    assert [(link["parent_version"], link["child_version"]) for link in await look(story_store, links)] == [
        *((1, 1), (2, 1)),
        *((1, 1), (2, 2)),
    ]


async def test_other_lenses_show_the_turn_as_one(story_store: Store) -> None:
    query = "SELECT user_message, final_response FROM conversation_history ORDER BY sequence_number"
    rows = (await story_store.sql(query, lens="three_table")).rows
    assert [tuple(row) for row in rows] == list(zip(MESSAGES, ANSWERS, strict=True))
    runs = await story_store.runs("books")
    shown_rows = (
        await story_store.sql("SELECT run_id, total_tokens FROM agent_runs ORDER BY start_time", lens="langsmith")
    ).rows
    tokens = {turn: sum(run.input_tokens + run.output_tokens for run in runs if run.turn == turn) for turn in (1, 2, 3)}
    assert [row[1] for row in shown_rows] == list(tokens.values()), "including the usage of its members"
    calls = (await story_store.sql("SELECT count(*) FROM llm_calls", lens="langsmith")).rows
    assert calls[0][0] == 8
