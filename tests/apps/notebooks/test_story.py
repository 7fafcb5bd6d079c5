"""The documented example: a notebook about books, three messages, seven runs."""

import asyncio
import json
import re
from typing import Any

import psycopg
import pytest

from lockstitch.agents.providers.scripted import Scripted
from lockstitch.apps.notebooks import Notebooks, activity
from lockstitch.apps.notebooks import notebooks as repository
from lockstitch.cli.entry import run
from lockstitch.engine.ports.provider import ModelRequest
from lockstitch.model import Thread, text_of
from lockstitch.store import Store

pytestmark = pytest.mark.anyio

SESSION = "73ccd158-0e18-4d0e-98c9-c362f3769774"
LIST = "Shelf C, ages 8 to 11. BROWN, Peter: The Wild Robot. 80 short chapters.\n\nYANG, Kelly: Front Desk. A motel."
MESSAGES = ("hello", "recommend books for a 9yo girl", "summarize each book")

STATEMENTS = (
    """SELECT session_id, session_type, team_id, agent_id, created_at
FROM agno_sessions
ORDER BY created_at DESC;""",
    """SELECT jsonb_array_length(runs) as num_runs
FROM agno_sessions
WHERE session_id = 'your-session-id';""",
    """SELECT
  r->>'run_id' as run_id,
  r->>'team_id' as team_id,
  r->>'agent_id' as agent_id,
  r->>'status' as status,
  left(r->>'input', 80) as input_truncated,
  left(r->>'content', 100) as content_truncated,
  r->>'created_at' as created_at
FROM agno_sessions,
     jsonb_array_elements(runs) AS r
WHERE session_id = 'your-session-id'
ORDER BY (r->>'created_at')::bigint;""",
    """SELECT n.title, ns.session_id, ns.created_at
FROM notebook_sessions ns
JOIN notebooks n ON n.id = ns.notebook_id
WHERE ns.session_id = 'your-session-id';""",
)
"""The four documented statements, unchanged."""


def spoken_by_sqlite(statement: str) -> str:
    """Return a PostgreSQL statement for SQLite."""
    for old, new in (
        ("jsonb_array_length", "json_array_length"),
        ("r->>", "r.value->>"),
        ("left(", "substr("),
        (" 80)", " 1, 80)"),
        (" 100)", " 1, 100)"),
        ("jsonb_array_elements(runs)", "json_each(runs)"),
        ("(r.value->>'created_at')::bigint", "CAST(r.value->>'created_at' AS INTEGER)"),
    ):
        statement = statement.replace(old, new)
    return statement


def model() -> Scripted:
    """A leader that greets, then delegates to the Researcher and compiles, then delegates to both members."""

    def answer(request: ModelRequest) -> Any:
        if request.purpose is not None:
            return "[]"
        tools = {tool["name"] for tool in request.tools}
        if "delegate" in tools:
            return lead(request)
        if "search_sources" in tools:
            searched = any("tool_result" in str(message) for message in request.messages)
            call = {"name": "search_sources", "input": {"query": "wild robot chapters, front desk motel"}}
            return "The Wild Robot, 80 short chapters [1]." if searched else {"calls": [call]}
        return "## The Wild Robot\nA robot, in 80 short chapters. [1]"

    def lead(request: ModelRequest) -> Any:
        if request.turn == 1:
            return "Hello! Welcome to NotebookLM!"
        look = {"name": "delegate", "input": {"member": "Researcher", "task": "Find books for a girl of nine."}}
        if request.turn == 2:
            return {"calls": [look]} if request.step == 1 else "Read The Wild Robot: short chapters, ages 8 to 11 [1]."
        write = {"name": "delegate", "input": {"member": "Writer", "task": "Summarise each book.", "final": True}}
        return {"calls": [look, write]}

    return Scripted(answer)


async def told_story(store: Store) -> tuple[Notebooks, Thread]:
    """The example, in notebook 4."""
    notebooks = Notebooks(model=model())
    await notebooks.setup(store)
    for title in ("One", "Two", "Three", "Books"):
        await repository.create(store, title, description=f"About {title}.", instructions="Answer for children.")
    await notebooks.add_source(store, 4, "list.txt", LIST)
    for message in MESSAGES:
        result = await notebooks.run(store, 4, message, session_id=SESSION, user_id="ada")
        assert result.status == "completed", result.error
    return notebooks, await store.thread(SESSION)


@pytest.mark.req("S4-046", "S4-003", "S4-055", "S4-016", "S4-005")
async def test_three_messages_cause_seven_runs(store: Store) -> None:
    _, thread = await told_story(store)
    runs = await store.runs(thread)
    assert [(run.role, run.agent, run.turn) for run in runs] == [
        ("team", "NotebookLM", 1),
        ("team", "NotebookLM", 2),
        ("agent", "Researcher", 2),
        ("team", "NotebookLM", 2),
        ("team", "NotebookLM", 3),
        ("agent", "Researcher", 3),
        ("agent", "Writer", 3),
    ]
    assert [run.parent_run_id for run in runs] == [
        None,
        None,
        runs[1].id,
        runs[1].id,
        None,
        runs[4].id,
        runs[4].id,
    ]
    assert {run.status for run in runs} == {"completed"}
    books = await repository.notebook_of(store, thread)
    assert books is not None
    assert (books.id, books.title) == (4, "Books")
    assert [link.session_id for link in await repository.sessions(store, 4)] == [SESSION]
    # Every run receives the notebook in its instructions. No message contains it.
    calls = [stitch for stitch in await store.stitches(thread) if stitch.type == "llm_call"]
    for call in calls:
        if not call.data.get("purpose"):
            system = (await store.request(call.id))["system"]
            for part in ("# Notebook: Books", "About Books.", "Answer for children.", "- list.txt (text, "):
                assert part in system
    inputs = [
        text_of(stitch.message)
        for stitch in await store.stitches(thread)
        if stitch.type == "input" and stitch.lane is None
    ]
    assert inputs == list(MESSAGES)


@pytest.mark.req("S4-003", "S4-055", "X4-11")
async def test_next_run_receives_changed_instructions(store: Store) -> None:
    notebooks, thread = await told_story(store)
    await repository.change(store, 4, instructions="Answer in rhymes.")
    result = await notebooks.run(store, 4, "hello again", session_id=SESSION)
    last = [
        stitch
        for stitch in await store.stitches(thread)
        if stitch.type == "llm_call" and not stitch.data.get("purpose")
    ][-1]
    system = (await store.request(last.id))["system"]
    assert "Answer in rhymes." in system
    assert "Answer for children." not in system
    leader = next(stitch for stitch in await store.log(result.run_id) if stitch.type == "llm_call")
    messages = str((await store.request(leader.id))["messages"])
    assert "recommend books for a 9yo girl" in messages, "with the history"
    for part in ("# Notebook", "About Books.", "Answer for children.", "Answer in rhymes."):
        assert part not in messages


async def test_activity_shows_the_runs_of_each_turn(store: Store) -> None:
    _, thread = await told_story(store)
    hello, recommend, summarize = await activity.turns(store, thread)
    assert [activity.act for activity in hello.activities] == ["answers"]
    assert [(activity.act, [member.act for member in activity.members]) for activity in recommend.activities] == [
        ("hands on", ["1 search"]),
        ("compiles", []),
    ]
    assert [(activity.act, [member.who for member in activity.members]) for activity in summarize.activities] == [
        ("hands on", ["Researcher", "Writer"])
    ]
    assert [turn.message for turn in (hello, recommend, summarize)] == list(MESSAGES)
    for turn, text in ((recommend, "Read The Wild Robot"), (summarize, "## The Wild Robot")):
        answer = turn.answer
        assert answer is not None
        assert answer.output is not None
        assert answer.output.startswith(text)
        (citation,) = answer.citations
        assert (citation.number, citation.source and citation.source.name, citation.where) == (1, "list.txt", "line 1")
        assert "The Wild Robot" in citation.quote
    chat = (await activity.chats(store, await repository.get(store, 4)))[0]
    assert (chat.title, chat.messages) == ("hello", 3)


@pytest.mark.req("S4-056", "S4-057", "S4-058", "S4-059", "S4-060")
async def test_documented_statements_return_expected_rows(store: Store, store_url: str, backend: str) -> None:
    notebooks, thread = await told_story(store)
    question, answer = "Which one is longer? " * 20, "The Wild Robot, by far. " * 20
    await notebooks.team.close()
    notebooks = Notebooks(model=Scripted([answer]))
    await notebooks.run(store, 1, question, session_id="later")
    statements = [statement.replace("your-session-id", SESSION) for statement in STATEMENTS]
    later = STATEMENTS[2].replace("your-session-id", "later")
    if backend == "sqlite":
        *statements, later = [spoken_by_sqlite(statement) for statement in [*statements, later]]
        results = [(await store.sql(statement, lens="agno")).rows for statement in [*statements, later]]
    else:
        # Any client of the database, with the unchanged statements.
        with psycopg.connect(store_url, autocommit=True) as connection:
            connection.execute("SET search_path TO agno")
            results = [connection.execute(statement.encode()).fetchall() for statement in [*statements, later]]
    sessions, count, rows, notebook, (truncated,) = results
    newest = await store.thread("later")
    assert sorted(sessions) == sorted(
        (shown.key or str(shown.id), "team", "NotebookLM", None, int(shown.created_at.timestamp()))
        for shown in (newest, thread)
    )
    assert [row[4] for row in sessions] == sorted((row[4] for row in sessions), reverse=True)
    assert count == [(7,)]
    text = json.dumps({"input_content": question}, separators=(",", ":") if backend == "sqlite" else None)
    assert truncated[4:6] == (text[:80], answer[:100])
    runs = await store.runs(thread)
    assert [row[0] for row in rows] == [str(run.id) for run in runs], "in the order of time"
    assert [int(row[6]) for row in rows] == [int(run.started_at.timestamp()) for run in runs]
    assert [row[1:4] for row in rows] == [
        ("NotebookLM", None, "COMPLETED"),
        ("NotebookLM", None, "COMPLETED"),
        (None, "Researcher", "COMPLETED"),
        ("NotebookLM", None, "COMPLETED"),
        ("NotebookLM", None, "COMPLETED"),
        (None, "Researcher", "COMPLETED"),
        (None, "Writer", "COMPLETED"),
    ]
    assert [json.loads(row[4])["input_content"] for row in (rows[0], rows[1], rows[2], rows[6])] == [
        "hello",
        "recommend books for a 9yo girl",
        "Find books for a girl of nine.",
        "Summarise each book.",
    ]
    assert rows[0][5] == "Hello! Welcome to NotebookLM!"
    ((title, session_id, linked_at),) = notebook
    assert (title, session_id) == ("Books", SESSION)
    (link,) = await repository.sessions(store, 4)
    assert linked_at == (link.created_at if backend == "postgres" else link.as_json()["created_at"])


async def test_runs_in_the_lens_have_their_citations(store: Store) -> None:
    _, thread = await told_story(store)
    ((runs,),) = (await store.sql("SELECT runs FROM agno_sessions", lens="agno")).rows
    citations = [run["citations"] for run in (runs if isinstance(runs, list) else json.loads(runs))]
    assert [citation is not None for citation in citations] == [False, True, False, False, True, False, False]
    (document,) = citations[1]["documents"]
    assert (document["number"], document["file_name"], document["line"]) == (1, "list.txt", 1)
    assert "The Wild Robot" in document["cited_text"]
    assert thread.last_turn == 3


@pytest.mark.req("S4-061")
async def test_documented_statements_run_in_the_shell(
    store: Store, store_url: str, backend: str, capfd: pytest.CaptureFixture[str]
) -> None:
    await told_story(store)
    statement = STATEMENTS[3].replace("your-session-id", SESSION).removesuffix(";")
    arguments = ["--store", store_url, "--json", "sql", "--lens", "agno"]
    assert await asyncio.to_thread(run, [*arguments, statement]) == 0
    assert "Books" in capfd.readouterr().out
    if backend == "postgres":
        statement = STATEMENTS[1].replace("your-session-id", SESSION)
        assert await asyncio.to_thread(run, [*arguments, statement]) == 0
        assert re.search(r"\b7\b", capfd.readouterr().out)
