"""Forks: new root threads that continue from any position of a thread, with a valid context."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

import pytest

from lockstitch.agents.agent import Agent
from lockstitch.agents.providers.scripted import Scripted
from lockstitch.agents.tools.function import tool
from lockstitch.errors import MessageIdReused, Refused, ThreadHeld, ThreadWaiting
from lockstitch.model import FakeClock, text_of
from lockstitch.model.message import user
from lockstitch.store import Store, Turn
from lockstitch.store.writes.media import LARGE
from tests.store.test_archive import old_goal

pytestmark = pytest.mark.anyio

CALLS = {"calls": [{"name": "add", "input": {"a": 1, "b": 2}}, {"name": "add", "input": {"a": 3, "b": 4}}]}


@tool(effect="safe")
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def helper(*script: object) -> Agent:
    return Agent("helper", model=Scripted(list(script)), tools=[add], instructions="Add.", title=False)


async def create_conversation(store: Store) -> Agent:
    agent = helper(CALLS, "It is 3 and 7.")
    await agent.run("Add", store=store, thread="t", user_id="ada")
    return agent


async def test_fork_at_the_end_has_the_whole_context(store: Store):
    agent = await create_conversation(store)
    origin = await store.thread("t")
    fork = await store.fork("t", key="u")
    assert (fork.parent_id, fork.user_id, fork.agent) == (None, "ada", "helper")
    assert fork.state["forked_from"] == {"thread_id": str(origin.id), "position": origin.position}
    assert await store.context("u") == await store.context("t")
    await agent.run("And now?", store=store, thread="u")
    assert len(await store.context("u")) == 8
    assert len(await store.context("t")) == 4
    assert (await store.verify()).problems == []


async def test_rebuilds_requests_of_fork_when_origin_is_deleted(store: Store):
    agent = await create_conversation(store)
    await store.fork("t", key="u")
    result = await agent.run("And now?", store=store, thread="u")
    await store.delete("t")
    call = next(stitch for stitch in await store.log(result.run_id) if stitch.type == "llm_call")
    request = await store.request(call.id)
    assert request["system"] == "Add."
    assert [message["role"] for message in request["messages"]] == ["user", "assistant", "user", "assistant", "user"]


async def test_fork_has_valid_context_at_every_position(store: Store):
    await create_conversation(store)
    for stitch in await store.stitches("t"):
        fork = await store.fork("t", at=stitch.position)
        context = await store.context(fork)
        for number, before in enumerate(context):
            blocks = before["content"] if isinstance(before["content"], list) else []
            requested = [block["id"] for block in blocks if block["type"] == "tool_use"]
            if requested:
                assert [block["tool_use_id"] for block in context[number + 1]["content"]] == requested


async def test_fork_answers_open_calls_and_keeps_results(store: Store):
    await create_conversation(store)
    first = next(stitch for stitch in await store.stitches("t") if stitch.type == "tool_call")
    fork = await store.fork("t", at=first.position)
    stored, missing = (await store.context(fork))[-1]["content"]
    assert (stored["content"], "is_error" in stored) == ("3", False)
    assert missing["is_error"]
    assert "not carried over" in missing["content"]


async def test_rejects_fork_at_unknown_position(store: Store):
    await create_conversation(store)
    for wrong in (0, -1, 1000):
        with pytest.raises(Refused, match="cannot be forked at"):
            await store.fork("t", at=wrong)
    assert await store.count() == 1


async def ask(agent: Agent, store: Store, thread: str, *messages: str) -> None:
    for message in messages:
        await agent.run(message, store=store, thread=thread)


def echo(word: str) -> Agent:
    return Agent("helper", model=Scripted([word]), instructions="Answer.", title=False)


def shown(turns: Sequence[Turn]) -> list[tuple[int, str, str | None, bool]]:
    return [(turn.run.turn, turn.user_message, turn.final_response, turn.inherited) for turn in turns]


async def test_history_of_fork_includes_inherited_turns(store: Store):
    await ask(echo("yes"), store, "t", "one", "two", "three")
    fork = await store.fork("t", before_turn=3, key="u")
    await ask(echo("no"), store, "u", "drei")
    page = await store.history("u")
    assert shown(page.turns) == [(3, "drei", "no", False), (2, "two", "yes", True), (1, "one", "yes", True)]
    source = await store.thread("t")
    assert [turn.inherited_from for turn in page.turns] == [None, source.id, source.id]
    assert page.turns[1].as_json()["inherited_from"] == str(source.id)
    assert len(await store.runs(fork)) == 1, "inherited turns are stored once"
    assert shown((await store.history("t")).turns)[0] == (3, "three", "yes", False)
    assert (await store.verify()).problems == []


async def test_pages_through_own_and_inherited_turns(store: Store):
    await ask(echo("a"), store, "t", "1", "2", "3")
    await store.fork("t", key="u")
    await ask(echo("b"), store, "u", "4", "5")
    for limit in (1, 2, 3, 4, 5, 6):
        numbers: list[int] = []
        before = None
        while True:
            page = await store.history("u", limit=limit, before=before)
            numbers += [turn.run.turn for turn in page.turns]
            if not page.has_more:
                break
            before = numbers[-1]
        assert numbers == [5, 4, 3, 2, 1]
        for offset in range(7):
            page = await store.history("u", limit=limit, offset=offset)
            assert [turn.run.turn for turn in page.turns] == [5, 4, 3, 2, 1][offset : offset + limit]
            assert page.has_more == (offset + limit < 5)


async def test_fork_of_fork_inherits_turns_of_both(store: Store):
    await ask(echo("a"), store, "t", "1", "2")
    await store.fork("t", before_turn=2, key="u")
    await ask(echo("b"), store, "u", "2b", "3b")
    await store.fork("u", before_turn=3, key="v")
    await ask(echo("c"), store, "v", "3c")
    assert [turn.user_message for turn in (await store.history("v")).turns] == ["3c", "2b", "1"]
    early = await store.fork("v", before_turn=1)
    assert (await store.history(early)).turns == []
    assert await store.context(early) == []
    # Turn 2 of v is in u, so the fork starts there.
    second = await store.fork("v", before_turn=3)
    assert [turn.user_message for turn in (await store.history(second)).turns] == ["2b", "1"]


async def test_keeps_inherited_turns_when_source_is_deleted(store: Store):
    agent = await create_conversation(store)
    await agent.run("And now?", store=store, thread="t")
    source = await store.thread("t")
    await store.fork("t", key="u")
    await ask(echo("c"), store, "u", "third")
    before = shown((await store.history("u")).turns)
    await store.delete("t")
    page = await store.history("u")
    assert shown(page.turns) == before
    assert [turn.inherited_from for turn in page.turns] == [None, source.id, source.id]
    assert [turn.run.turn for turn in (await store.history("u", limit=1, offset=1)).turns] == [2]
    with pytest.raises(Refused, match="was deleted"):
        await store.fork("u", before_turn=2)


async def test_keeps_inherited_turns_when_source_is_archived(store: Store, clock: FakeClock):
    source = await old_goal(store, clock)
    fork = await store.fork(source)
    before = shown((await store.history(fork)).turns)
    assert before == [(2, "q1", "a1", True), (1, "q0", "a0", True)]
    assert await store.archive(store.clock.now() + timedelta(days=1))
    assert shown((await store.history(fork)).turns) == before


async def test_inherited_turn_that_was_cut_has_no_answer(store: Store):
    await create_conversation(store)
    call = next(stitch for stitch in await store.stitches("t") if stitch.type == "tool_call")
    fork = await store.fork("t", at=call.position)
    assert shown((await store.history(fork)).turns) == [(1, "Add", None, True)]


async def test_fork_takes_key_of_its_source(store: Store):
    await ask(echo("a"), store, "t", "1", "2")
    source = await store.thread("t")
    fork = await store.fork("t", before_turn=2, take_key=True)
    assert (await store.thread("t")).id == fork.id
    assert (await store.thread(source.id)).key is None
    # Ids of messages are not ordered by time, so the id of a source may be higher than the id of its fork.
    high = UUID("ffffffff-ffff-7fff-bfff-ffffffffffff")
    await store.create(id=high, key="high")
    await ask(echo("a"), store, "high", "1")
    fork = await store.fork("high", take_key=True)
    assert (await store.thread("high")).id == fork.id != high
    with pytest.raises(Refused, match="not both"):
        await store.fork("high", take_key=True, key="other")
    assert (await store.verify()).problems == []


async def test_regenerates_last_turn_under_the_same_key(store: Store):
    agent = echo("old")
    await ask(agent, store, "t", "one", "two")
    source = await store.thread("t")
    result = await echo("new").regenerate("t", store=store)
    assert result is not None
    assert (result.output_text, result.thread_id != source.id) == ("new", True)
    assert shown((await store.history("t")).turns) == [(2, "two", "new", False), (1, "one", "old", True)]
    assert [turn.final_response for turn in (await store.history(source.id)).turns] == ["old", "old"]
    again = await echo("newer").regenerate("t", store=store)
    assert again is not None
    assert shown((await store.history("t")).turns) == [(2, "two", "newer", False), (1, "one", "old", True)]
    await ask(echo("last"), store, "t", "three")
    assert [turn.final_response for turn in (await store.history("t")).turns] == ["last", "newer", "old"]
    assert (await store.thread("t")).state["inherited"][0]["thread_id"] == str(source.id), "no empty links"


async def test_resends_edited_message_of_an_earlier_turn(store: Store):
    await ask(echo("old"), store, "t", "one", "two", "three")
    queued = await store.regenerate("t", turn=1, message={"role": "user", "content": "eins"})
    assert queued.thread.id == (await store.thread("t")).id
    assert (await store.thread("t")).status == "pending"
    result = await echo("new").resume("t", store=store)
    assert result is not None
    assert result.run_id == queued.run_id
    assert shown((await store.history("t")).turns) == [(1, "eins", "new", False)]


async def test_repeated_regenerate_request_creates_one_fork(store: Store):
    await ask(echo("old"), store, "t", "one", "two")
    source = await store.thread("t")
    first = await store.regenerate("t", message_id="again-1")
    # The key leads to the fork now, the id still to its source.
    for ref in ("t", source.id):
        repeated = await store.regenerate(ref, message_id="again-1")
        assert (repeated.thread.id, repeated.run_id, repeated.new) == (first.thread.id, first.run_id, False)
    with pytest.raises(MessageIdReused):
        await store.regenerate(source.id, message_id="again-1", message=user("zwei"))
    with pytest.raises(MessageIdReused):
        await store.regenerate("t", message_id="again-1", turn=1)
    result = await echo("new").resume("t", store=store)
    assert (result and result.run_id) == first.run_id
    repeated = await store.regenerate("t", message_id="again-1")
    assert (repeated.run_id, repeated.new) == (first.run_id, False)
    assert await store.count() == 2
    second = await store.regenerate("t", message_id="again-2")
    assert second.new
    with pytest.raises(Refused, match="1 to"):
        await store.regenerate("t", message_id="")


async def test_regenerate_requests_with_one_id_create_one_fork_when_sent_at_once(store: Store):
    await ask(echo("old"), store, "t", "one")
    source = (await store.thread("t")).id
    queued = await asyncio.gather(*(store.regenerate(source, message_id="m") for _ in range(5)))
    assert len({(message.thread.id, message.run_id) for message in queued}) == 1
    assert sum(message.new for message in queued) == 1
    assert await store.count() == 2


async def test_fork_accepts_message_of_inherited_turn_once(store: Store):
    agent = echo("old")
    results = [
        await agent.run(text, store=store, thread="t", message_id=message_id)
        for text, message_id in (("one", "m-1"), ("two", "m-2"))
    ]
    fork = await store.fork("t", before_turn=2, take_key=True)
    again = await agent.run("one", store=store, thread="t", message_id="m-1")
    assert again.run_id == results[0].run_id
    queued = await store.enqueue("helper", user("one"), thread="t", message_id="m-1")
    assert (queued.run_id, queued.new) == (results[0].run_id, False)
    with pytest.raises(MessageIdReused):
        await agent.run("eins", store=store, thread="t", message_id="m-1")
    # The second turn is not part of the fork, so its message is new there.
    other = await agent.run("two", store=store, thread="t", message_id="m-2")
    assert (other.thread_id, other.run_id != results[1].run_id) == (fork.id, True)
    second = await store.fork("t")
    assert (await agent.run("two", store=store, thread=second.id, message_id="m-2")).run_id == other.run_id
    assert [turn.inherited_from is None for turn in (await store.history("t")).turns] == [True, False]


async def test_fork_accepts_message_of_regenerated_turn_once(store: Store):
    agent = echo("old")
    first = await agent.run("one", store=store, thread="t", message_id="m-1")
    one = await agent.regenerate("t", store=store, message_id="r-1")
    two = await agent.regenerate("t", store=store, message_id="r-2", message="eins")
    # Clients repeat requests that were answered before the key moved.
    for thread in ("t", first.thread_id):
        again = await agent.run("one", store=store, thread=thread, message_id="m-1")
        assert (again.thread_id, again.run_id) == (first.thread_id, first.run_id)
    repeated = await store.regenerate("t", message_id="r-1")
    assert one is not None
    assert (repeated.thread.id, repeated.run_id, repeated.new) == (one.thread_id, one.run_id, False)
    with pytest.raises(MessageIdReused):
        await agent.run("zwei", store=store, thread="t", message_id="m-1")
    assert (two and two.thread_id, await store.count()) == ((await store.thread("t")).id, 3)
    assert [turn.user_message for turn in (await store.history("t")).turns] == ["eins"]


async def test_forks_and_regenerates_turn_with_large_media(store: Store):
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * (LARGE + 4)}}
    message = user([image, {"type": "text", "text": "What is it?"}])
    await echo("old").run(message, store=store, thread="t")
    source = await store.thread("t")
    fork = await store.fork("t")
    assert (await store.context(fork.id))[0] == message
    queued = await store.regenerate("t")
    result = await echo("new").resume("t", store=store)
    assert (result and result.run_id) == queued.run_id
    await store.delete(source.id)
    assert (await store.messages(queued.run_id))[0] == message, "the fork refers to the media"
    assert (await store.context(fork.id))[0] == message
    assert (await store.verify()).problems == []


async def test_regenerated_run_has_options_of_first_run(store: Store):
    agent = echo("a")
    await agent.run("x", store=store, thread="t", metadata={"a": 1}, tags=["b"], extras={"c": 2})
    await agent.regenerate("t", store=store)
    run = (await store.runs("t"))[0]
    assert (run.metadata, run.tags, run.extras) == ({"a": 1}, ["b"], {"c": 2})


async def test_rejects_regenerate_when_thread_is_not_at_rest(store: Store):
    await ask(echo("a"), store, "t", "1")
    await store.enqueue("helper", {"role": "user", "content": "2"}, thread="t")
    with pytest.raises(ThreadWaiting):
        await store.regenerate("t")
    await store.register_worker()
    await store.claim("t")
    with pytest.raises(ThreadHeld):
        await store.regenerate("t")
    await store.create(key="empty")
    with pytest.raises(Refused, match="has no turn"):
        await store.regenerate("empty")


async def test_fork_keeps_context_when_history_window_is_limited(store: Store):
    agent = Agent("helper", model=Scripted(["a"]), instructions="Answer.", title=False, history=2)
    await ask(agent, store, "t", "1", "2")
    await agent.regenerate("t", store=store)
    call = next(stitch for stitch in await store.stitches("t") if stitch.type == "llm_call")
    request = await store.request(call.id)
    assert [text_of(message) for message in request["messages"]] == ["1", "a", "2"]
