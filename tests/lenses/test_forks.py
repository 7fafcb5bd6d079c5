"""Forks and stopped answers in the lenses."""

import asyncio

import pytest

from lockstitch.agents import Agent
from lockstitch.engine.cancel import cancel
from lockstitch.store import Store
from lockstitch.testing import Scripted
from tests.engine.test_cancel import Stopping
from tests.lenses.looking import look
from tests.lenses.test_documents import ask

pytestmark = pytest.mark.anyio


def echo(word: str) -> Agent:
    return Agent("helper", model=Scripted([word]), title=False)


async def test_lens_shows_inherited_turns_and_counts_them_once(store: Store, backend: str) -> None:
    for text in ("1", "2"):
        await echo("old").run(text, store=store, thread="t")
    source = await store.thread("t")
    await echo("new").regenerate("t", store=store)
    await echo("newer").run("3", store=store, thread="t")
    await store.fork("t", key="u")
    for key, own in (("t", [3, 2]), ("u", [])):
        fork = await store.thread(key)
        rows = await ask(store, backend, "three_table", "The conversation of a fork", agent_uuid=fork.id)
        expected = [
            {
                "sequence_number": turn.run.turn,
                "inherited_from": str(turn.inherited_from) if turn.inherited_from else None,
                "user_message": turn.user_message,
                "final_response": turn.final_response,
            }
            for turn in (await store.history(fork)).turns
        ]
        assert rows == expected
        assert [row["final_response"] for row in rows] == ["newer", "new", "old"]
        assert [row["sequence_number"] for row in rows if row["inherited_from"] is None] == own
    assert rows[-1]["inherited_from"] == str(source.id)
    turns = await look(store, "three_table", "SELECT run_id FROM conversation_history")
    assert len({row["run_id"] for row in turns}) == len(turns) == 4


async def test_lens_cuts_turn_at_start_of_fork(store: Store, backend: str) -> None:
    await echo("old").run("1", store=store, thread="t")
    question = next(stitch for stitch in await store.stitches("t") if stitch.type == "input")
    fork = await store.fork("t", at=question.position)
    (row,) = await ask(store, backend, "three_table", "The conversation of a fork", agent_uuid=fork.id)
    assert (row["user_message"], row["final_response"]) == ("1", None)
    await store.delete("t")
    assert await ask(store, backend, "three_table", "The conversation of a fork", agent_uuid=fork.id) == []


async def test_lens_ignores_invalid_state(store: Store) -> None:
    await echo("old").run("1", store=store, thread="t")
    head = await store.thread("t")
    wrong = [{"thread_id": "x", "first_turn": "y"}, 5, {"thread_id": str(head.id), "first_turn": "a", "last_turn": []}]
    for inherited in (wrong, "no list", {"a": 1}):
        head = (await store.append(head, fields={"state": {"inherited": inherited}})).head
        assert len(await look(store, "three_table", "SELECT * FROM visible_turns")) == 1


async def test_lenses_show_stopped_answer(store: Store) -> None:
    model = Stopping("Once upon")
    task = asyncio.create_task(Agent("helper", model=model, title=False).run("Tell", store=store, thread="t"))
    await model.gate.reached.wait()
    await cancel(store, "t")
    await task
    (turn,) = await look(store, "three_table", "SELECT final_response, stop_reason FROM conversation_history")
    assert turn == {"final_response": "Once upon", "stop_reason": "cancelled"}
    (run,) = await look(store, "langsmith", "SELECT output_messages FROM lens_agent_runs")
    assert "Once upon" in str(run["output_messages"])
    (session,) = await look(store, "agno", "SELECT runs FROM agno_sessions")
    assert "Once upon" in str(session["runs"])
