"""`LockstitchSession` with items as the SDK writes them. `frameworks/openai_agents` has the tests with the SDK."""

import asyncio
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lockstitch import Agent, NotFound, Refused, ThreadWaiting, open_store
from lockstitch.integrations.openai_agents import LockstitchSession
from lockstitch.integrations.openai_agents import session as session_module
from lockstitch.integrations.openai_agents.records import SavedState
from lockstitch.model.message import text_of
from lockstitch.store import Store
from lockstitch.testing import Scripted
from tests.integrations.openai_agents.talking import SUM, answered, called, said, talk, texts

pytestmark = pytest.mark.anyio

KEY = "openai-agents:1"
SUM_TYPES = ["input", "llm_call", "tool_call", "llm_call"]


def session_of(store: Store, session_id: str = "1", **options: Any) -> LockstitchSession:
    return LockstitchSession(session_id, store=store, **options)


def fresh_session_of(store: Store, **options: Any) -> LockstitchSession:
    """Return a session that has to read the log, as in a new process."""
    session_module._known_threads.clear()
    return session_of(store, **options)


async def types(store: Store, thread: str = KEY) -> list[str]:
    return [stitch.type for stitch in await store.stitches(thread)]


async def session_texts(session: LockstitchSession) -> list[str]:
    return texts(await session.get_items())


async def test_records_a_conversation_with_its_run(store: Store) -> None:
    session = session_of(store, model="gpt-5")
    for text in ("add 2 3", "hi"):
        await talk(session, text)
    assert await types(store) == [*SUM_TYPES, "input", "llm_call"]
    first, second = await store.runs(KEY)
    assert (first.status, first.steps, first.input_tokens, first.output_tokens) == ("completed", 2, 30, 10)
    assert (second.status, second.steps, second.model) == ("completed", 1, "gpt-5")
    assert (first.total_cost or 0) > 0
    turns = (await store.history(KEY)).turns
    assert [(turn.user_message, turn.final_response) for turn in turns] == [
        ("hi", "You said hi."),
        ("add 2 3", "The sum is 5."),
    ]
    assert [hit.position for hit in await store.search("sum")] == [4]
    assert [stitch.data.get("openai_agents", {}).get("items") for stitch in await store.stitches(KEY)] == [None] * 6


async def test_another_process_continues_without_recording_twice(store: Store, store_url: str) -> None:
    session = session_of(store)
    await session.add_items([said("add 2 3")])
    async with open_store(store_url) as other:
        await talk(session_of(other), "add 2 3")
    await talk(session, "bye")
    assert await session_texts(session) == [*SUM, "bye", "You said bye."]
    assert await types(store) == [*SUM_TYPES, "input", "llm_call"]
    assert [(run.status, run.input_tokens) for run in await store.runs(KEY)] == [("completed", 30), ("completed", 10)]


async def test_concurrent_writers_lose_nothing(store: Store, store_url: str) -> None:
    async with open_store(store_url) as other:
        sessions = [session_of(store), session_of(other)]
        await asyncio.gather(
            *(sessions[number % 2].add_items([{"role": "user", "content": f"{number}"}]) for number in range(20))
        )
        assert sorted(await session_texts(sessions[0]), key=int) == [str(number) for number in range(20)]
        assert await sessions[0].get_items() == await sessions[1].get_items()


ITEMS: list[Any] = [
    {"role": "user", "content": "plain"},
    {"type": "message", "role": "user", "content": "typed"},
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
    {
        "role": "user",
        "content": [{"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,aGk="}],
    },
    {"role": "user", "content": [{"type": "input_audio", "data": "x"}]},
    {"role": "assistant", "content": "Hi there!"},
    {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "status": None,
        "content": [
            {"type": "output_text", "text": "ä", "annotations": [], "logprobs": None},
            {"type": "refusal", "refusal": "no"},
        ],
    },
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "", "annotations": []}]},
    {"type": "message", "role": "assistant", "content": []},
    {"id": "r", "type": "reasoning", "summary": [{"type": "summary_text", "text": "why"}], "encrypted_content": None},
    {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"b":1,"a":[]}', "id": "f1", "status": None},
    {"type": "function_call", "call_id": "c2", "name": "f", "arguments": "not JSON"},
    {"type": "function_call_output", "call_id": "c1", "output": "done"},
    {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "x"}], "id": None},
    {"type": "function_call_output", "call_id": "unknown", "output": "late"},
    {"type": "web_search_call", "id": "w", "action": {"type": "search", "query": "q"}, "status": "completed"},
    {"type": "computer_call_output", "call_id": "c9", "output": {"type": "computer_screenshot"}},
    {"type": "compaction", "id": "z", "encrypted_content": "…"},
    {"__enc__": 1, "v": 1, "kid": "k", "payload": "secret"},
    {"role": "assistant", "content": 7, "number": 2**70},
]


async def test_items_of_any_shape_are_read_back_unchanged(store: Store) -> None:
    session = session_of(store)
    for item in ITEMS:
        await session.add_items([item])
    assert await session.get_items() == ITEMS
    await session.add_items(ITEMS)
    for reader in (session, fresh_session_of(store)):
        assert await reader.get_items() == ITEMS * 2
        assert await reader.get_items(3) == ITEMS[-3:]
        assert await reader.get_items(0) == []
    with pytest.raises(Refused):
        await session.add_items([*ITEMS[:1], {"number": float("nan")}])
    assert len(await session.get_items()) == 2 * len(ITEMS)


@pytest.mark.parametrize("seed", range(2))
async def test_items_and_context_are_those_of_a_list(store: Store, seed: int) -> None:
    chance = random.Random(seed)
    expected: list[Any] = []
    session = session_of(store)
    for number in range(30):
        what = chance.random()
        if what < 0.6:
            new: list[Any] = [{"role": "user", "content": f"in {number}"}]
            if what < 0.45:
                new.append({"role": "assistant", "content": f"out {number}"})
            if what < 0.2:
                call = {"type": "function_call", "call_id": f"{number}", "name": "f", "arguments": "{}"}
                new[1:] = [{**call, "call_id": f"{number}.{n}"} for n in range(3)]
            await session.add_items(new)
            expected += new
        elif what < 0.85:
            assert await session.pop_item() == (expected.pop() if expected else None)
        elif what < 0.95 and expected:
            size = chance.randrange(1, len(expected) + 1)
            items, complete, replace_suffix = await session._snapshot(size)
            start = chance.randrange(size)
            summary: list[Any] = [{"role": "user", "content": f"summary {number}"}, {"type": "compaction", "id": "z"}]
            assert items == expected[-size:]
            assert complete == (size == len(expected))
            assert await replace_suffix(start, summary)
            assert not await replace_suffix(start, summary), "the items have changed"
            expected[len(expected) - size + start :] = summary
        elif what > 0.98:
            await session.clear_session()
            expected = []
        if chance.random() < 0.3:
            session = fresh_session_of(store)
        limit = chance.randrange(1, 6)
        assert await session.get_items(limit) == expected[-limit:]
        assert await session.get_items() == expected
        inputs = [item["content"] for item in expected if item.get("role") == "user"]
        recorded = await store.context(KEY) if expected else []
        assert [text_of(message) for message in recorded if message["role"] == "user"] == inputs


async def test_long_log_is_read_only_as_far_as_needed(store: Store) -> None:
    session = session_of(store, session_settings={"limit": 2})
    items: list[Any] = [{"role": "user", "content": f"{number}"} for number in range(300)]
    await session.add_items(items)
    fresh = fresh_session_of(store, session_settings={"limit": 2})
    assert await fresh.get_items() == items[-2:]
    assert fresh._known.transcript is not None
    assert len(fresh._known.transcript.items) == 64
    assert await fresh.get_items(-1) == items
    assert await session.pop_item() == items.pop()
    fresh = fresh_session_of(store)
    assert await fresh.get_items(100) == items[-100:]
    assert fresh._known.transcript is not None
    assert len(fresh._known.transcript.items) < 299
    assert await fresh.get_items() == items


async def test_removed_items_stay_in_the_log(store: Store) -> None:
    session = session_of(store)
    await talk(session, "add 2 3")
    assert texts([await session.pop_item()]) == SUM[-1:]
    assert [text_of(message) for message in await store.context(KEY)] == [*SUM[:2], ""]
    await session.clear_session()
    assert await session.get_items() == await store.context(KEY) == []
    await talk(session, "hi")
    assert await session_texts(fresh_session_of(store)) == ["hi", "You said hi."]
    assert await types(store) == [*SUM_TYPES, "compaction", "compaction", "input", "llm_call"]
    assert len((await store.history(KEY)).turns) == 2


async def test_input_that_is_removed_and_added_again_is_one_run(store: Store) -> None:
    session = session_of(store)
    await session.add_items([said("hi")])
    await session.pop_item()
    await talk(session, "hi")
    (turn,) = (await store.history(KEY)).turns
    assert (turn.user_message, turn.final_response) == ("hi", "You said hi.")


async def test_next_message_or_rewind_follow_an_interrupted_run(store: Store) -> None:
    session = session_of(store)
    assert not await session.rewind()
    await session.add_items([said("add 2 3")])
    await session.add_items([answered(SUM[1]), called()])
    assert await session_of(store).rewind()
    assert await session_texts(session) == SUM[:1]
    await talk(session, "hi")
    assert [run.status for run in await store.runs(KEY)] == ["cancelled", "completed"]
    assert not await session.rewind()


async def test_state_of_a_waiting_run_is_kept_until_the_run_continues(store: Store, store_url: str) -> None:
    session = session_of(store)
    waiting = SimpleNamespace(raw_item=SimpleNamespace(call_id="call-1"), name="add")
    state = SimpleNamespace(to_json=lambda: {"state": 1}, get_interruptions=lambda: [waiting])
    await session.add_items([said("add 2 3")])
    await session.add_items([answered(SUM[1]), called()])
    await session.save_state(state)
    async with open_store(store_url) as other:
        later = session_of(other)
        assert await later._load_state() == {"state": 1}
        await later.add_items([{"call_id": "call-1", "output": "5", "type": "function_call_output"}])
        assert await later._load_state() is None
        await later.add_items([answered(SUM[4], 2)])
    assert await session_texts(session) == SUM
    paused = [stitch for stitch in await store.stitches(KEY) if stitch.type == "run_paused"]
    assert paused[0].data["waiting_for"] == [{"kind": "approval", "id": "call-1", "name": "add"}]
    assert [run.status for run in await store.runs(KEY)] == ["completed"]
    assert await session_of(store, "2")._load_state() is None


async def test_lockstitch_agent_continues_a_session_and_the_opposite(store: Store) -> None:
    session = session_of(store)
    await talk(session, "add 2 3")
    native = Agent("native", model=Scripted(["Blue."]), title=False)
    assert (await native.run("And the sky?", store=store, thread=session.thread)).output_text == "Blue."
    await talk(session, "hi")
    assert await session_texts(session) == [*SUM, "And the sky?", "Blue.", "hi", "You said hi."]
    assert [run.status for run in await store.runs(KEY)] == ["completed"] * 3


async def test_copy_carries_session_and_state_and_deletion_removes_them(store: Store, tmp_path: Path) -> None:
    session = session_of(store)
    await session.add_items([said("add 2 3")])
    await session.save_state(SimpleNamespace(to_json=lambda: {"state": 1}, get_interruptions=list))
    async with open_store(f"sqlite:///{tmp_path}/copy.db") as copy:
        assert (await store.copy_to(copy)).skipped_extensions == []
        there = session_of(copy)
        assert await there._load_state() == {"state": 1}
        await talk(there, "add 2 3")
        assert await session_texts(there) == SUM
    await store.delete(KEY)
    assert await store.table(SavedState).count() == 0
    assert await session.get_items() == []
    await talk(session, "hi")
    assert await session_texts(session) == ["hi", "You said hi."]
    assert await store.purge(before=store.clock.now()) == 1
    with pytest.raises(NotFound):
        await store.thread(KEY)


async def test_refuses_threads_of_other_users_and_of_open_runs(store: Store) -> None:
    await session_of(store, user_id="ada").add_items([{"role": "user", "content": "hi"}])
    with pytest.raises(Refused, match="another user"):
        await session_of(store, user_id="eve").get_items()
    head = await store.create(key="native")
    await store.append(head, new_runs=[store.new_run(head)])
    session = session_of(store, "native", namespace=None)
    assert session.thread == "native"
    with pytest.raises(ThreadWaiting, match="Nothing was written"):
        await session.add_items([{"role": "user", "content": "hi"}])


async def test_works_from_other_loops_and_waits_for_a_cancelled_write(store: Store) -> None:
    session = session_of(store)
    await asyncio.to_thread(lambda: asyncio.run(talk(session, "hi")))
    task = asyncio.ensure_future(session.add_items([said("bye")]))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await session_texts(session) == ["hi", "You said hi.", "bye"]


def test_opens_a_store_for_programs_without_a_loop(store_url: str) -> None:
    with LockstitchSession.open("1", store_url) as session:
        asyncio.run(talk(session, "add 2 3"))
    with LockstitchSession.open("1", store_url) as session:
        assert asyncio.run(session_texts(session)) == SUM
    with pytest.raises(Refused, match=r"LockstitchSession.open"):
        LockstitchSession("1", store=session.store)
