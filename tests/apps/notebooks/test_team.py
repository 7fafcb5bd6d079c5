"""The team of a notebook: memories, lessons, and answers without a model."""

import asyncio
from typing import Any
from uuid import uuid4

import pytest

from lockstitch.agents import App, run_worker
from lockstitch.agents.providers.scripted import Scripted
from lockstitch.apps.notebooks import Notebooks, activity, citations
from lockstitch.apps.notebooks import notebooks as repository
from lockstitch.apps.notebooks.quote_provider import quoted
from lockstitch.apps.notebooks.records import Notebook
from lockstitch.engine.ports.provider import ModelRequest
from lockstitch.errors import Refused
from lockstitch.model import Stitch, codec
from lockstitch.store import Store, open_store
from tests.apps.notebooks.test_sources import LIBRARY

pytestmark = pytest.mark.anyio


def learning() -> Scripted:
    """A model that stores memories. Its Researcher notes a lesson in each run."""

    def answer(request: ModelRequest) -> Any:
        if request.purpose == "memory":
            text = str(request.messages[-1]["content"])
            return '["Ada likes dragons"]' if "dragons" in text and "I like" in text else "[]"
        tools = {tool["name"] for tool in request.tools}
        done = any("tool_result" in str(message["content"]) for message in request.messages)
        if "delegate" in tools:
            call = {"name": "delegate", "input": {"member": "Researcher", "task": "Look for it.", "final": True}}
            return {"calls": [call]}
        return "Nothing found." if done else {"calls": [{"name": "note_lesson", "input": {"text": "Search by shelf."}}]}

    return Scripted(answer)


async def systems(store: Store, session_id: str, agent: str) -> str:
    """Return the instructions and messages of an agent in its last run of a chat."""
    thread = await store.thread(session_id)
    runs = [run for run in await store.runs(thread) if run.agent == agent]
    log: list[Stitch] = await store.stitches(thread)
    calls = [
        stitch for stitch in log if stitch.run_id == runs[-1].id and stitch.type == "llm_call" and stitch.step_number
    ]
    return str(await store.request(calls[0].id))


@pytest.mark.req("S4-032", "S4-022", "S4-023")
async def test_only_the_same_user_receives_memories_and_lessons(store: Store, books: Notebook) -> None:
    notebooks = Notebooks(model=learning())
    other_notebook = await repository.create(store, "Other")
    await notebooks.run(store, books.number, "I like dragons", session_id="ada-1", user_id="ada")
    await notebooks.run(store, other_notebook.number, "books with dragons?", session_id="ada-2", user_id="ada")
    await notebooks.run(store, books.number, "books with dragons?", session_id="bob-1", user_id="bob")
    await notebooks.run(store, books.number, "books with dragons?", session_id="nobody-1")
    assert "Ada likes dragons" in await systems(store, "ada-2", "NotebookLM")
    assert "Search by shelf." in await systems(store, "ada-2", "Researcher")
    for session in ("bob-1", "nobody-1"):
        for agent in ("NotebookLM", "Researcher"):
            text = await systems(store, session, agent)
            assert "Ada likes" not in text
            assert "Search by shelf." not in text
    answer = await store.sql("SELECT memory, user_id FROM agno_memories", lens="agno")
    assert answer.rows == [("Ada likes dragons", "ada")]
    # A lesson is stored once for each user, and read by agent.
    answer = await store.sql("SELECT agent_id, user_id FROM agno_learnings ORDER BY user_id", lens="agno")
    assert sorted(answer.rows, key=str) == [("Researcher", "ada"), ("Researcher", "bob"), ("Researcher", None)]


async def test_quotes_sources_without_a_model(notebooks: Notebooks, store: Store, books: Notebook) -> None:
    await notebooks.add_source(store, books.number, "library.md", LIBRARY.encode())
    hello = await notebooks.run(store, books.number, "Hello!", session_id="chat")
    assert "No model is set" in str(hello.output_text)
    first = await notebooks.run(store, books.number, "Who wrote The Wild Robot?", session_id="chat")
    assert "The Wild Robot" in str(first.output_text)
    assert "[1]" in str(first.output_text)
    turn = (await activity.turns(store, await store.thread("chat")))[-1]
    assert turn.answer is not None
    assert [citation.number for citation in turn.answer.citations] == [1]
    nothing = await notebooks.run(store, books.number, "xylophone?", session_id="chat")
    assert "do not say anything about this" in str(nothing.output_text)


def test_quotes_the_best_sentences() -> None:
    text = "[1] a.txt, line 1\nCats sleep. Robots work hard.\n\n[2] b.txt, line 9\nNothing here."
    assert quoted(text, "What do robots do?")[0] == "- “Robots work hard.” [1]"


async def test_invalid_message_creates_no_chat(notebooks: Notebooks, store: Store, books: Notebook) -> None:
    for message in ("", " \n", "x" * 200 + "\ud800"):
        with pytest.raises(Refused):
            await notebooks.run(store, books.number, message)
    assert await repository.sessions(store, books.number) == []
    assert await store.count() == 0


async def test_answers_without_sources(notebooks: Notebooks, store: Store, books: Notebook) -> None:
    result = await notebooks.run(store, books.number, "Who wrote The Wild Robot?")
    assert "do not say anything" in str(result.output_text)


async def test_concurrent_searches_number_each_passage_once(
    notebooks: Notebooks, store: Store, books: Notebook
) -> None:
    text = "\n\n".join(
        f"Robot number {number} is a wild robot of its own kind, and this is its story." for number in range(30)
    )
    await Notebooks(passage_size=100, passage_overlap=0).add_source(store, books.number, "robots.txt", text)
    thread = await repository.ensure(store, books, "chat", user_id=None, agent="NotebookLM", message="hello")
    hits = await notebooks.search(store, books.number, "wild robot", limit=12)
    assert len(hits) == 12
    some = [citations.number(store, thread, uuid4(), "robot", hits[first : first + 6]) for first in (0, 3, 6, 0)]
    numbers = await asyncio.gather(*some)
    assert numbers[0] == numbers[3]
    assert numbers[0][3:] == numbers[1][:3]
    assert sorted(finding.number for finding in await citations.findings(store, thread.id)) == list(range(1, 13))


async def test_worker_of_another_process_uses_the_notebook(store: Store, store_url: str, books: Notebook) -> None:
    notebooks = Notebooks()
    await notebooks.add_source(store, books.number, "library.md", LIBRARY.encode())
    result = await notebooks.run(store, books.number, "Who wrote The Wild Robot?", session_id="chat", detach=True)
    assert result.status == "pending"
    async with open_store(store_url) as elsewhere:
        await run_worker(App(plugins=[Notebooks()]), store=elsewhere, until_idle=True)
    turn = (await activity.turns(store, await store.thread("chat")))[-1]
    assert turn.answer is not None
    assert [citation.source and citation.source.name for citation in turn.answer.citations] == ["library.md"]


def summarising(request: ModelRequest) -> Any:
    """Reply as a model that writes a summary, remembers nothing, and answers without the team."""
    if request.purpose == "session_summary":
        return '{"summary": "Ada asks for robots.", "topics": ["robots"]}'
    return "[]" if request.purpose else "The Wild Robot."


@pytest.mark.req("S4-011")
async def test_model_summarises_each_chat(store: Store, books: Notebook) -> None:
    notebooks = Notebooks(model=Scripted(summarising))
    await notebooks.run(store, books.number, "Robots?", session_id="chat-1", user_id="ada")
    (chat,) = await activity.chats(store, books)
    summary = chat.as_json()["summary"]
    assert (summary["summary"], summary["topics"]) == ("Ada asks for robots.", ["robots"])
    (row,) = (await store.sql("SELECT session_id, summary FROM agno_sessions", lens="agno")).rows
    assert row[0] == "chat-1"
    assert (codec.loads(row[1]) if isinstance(row[1], str) else row[1]) == summary


async def test_chat_has_no_summary_without_a_model(notebooks: Notebooks, store: Store, books: Notebook) -> None:
    await notebooks.run(store, books.number, "Robots?", session_id="chat-1")
    (chat,) = await activity.chats(store, books)
    assert chat.as_json()["summary"] is None
