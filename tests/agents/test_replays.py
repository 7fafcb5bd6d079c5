"""Replays: recorded threads and runs that run again, with tool results from the record."""

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest

from lockstitch.agents.replays import replay, resume_replay, start_replay
from lockstitch.agents.tools.function import tool
from lockstitch.engine.cancel import cancel
from lockstitch.engine.ports.tool import Tool
from lockstitch.engine.replies import approve
from lockstitch.errors import KeyTaken, NotFound, Refused
from lockstitch.model import Json, Memory, Stitch, codec, text_of
from lockstitch.store import Store
from lockstitch.store.reports.diff import steps_of
from tests.agents.replay_victim import REPLAY, SOURCE, Shop
from tests.docs.warm import warm_commands
from tests.engine import books
from tests.engine.agents import calls, pay, scripted, types
from tests.engine.threads.families import agent as family_agent
from tests.engine.threads.families import asks, child, done, family, work_off
from tests.integrations.importing import import_bytes
from tests.integrations.runs import agent_trace

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]


async def record_of(store: Store, thread: Any = SOURCE) -> list[Any]:
    """Return everything that a replay must not change."""
    head = await store.thread(thread)
    return [head, *await store.runs(head), *await store.stitches(head)]


async def recorded(store: Store, *replies: str | Json) -> Shop:
    """Record a thread with two turns. Return its shop."""
    shop = Shop(*replies)
    await shop.agent().run("Charge 5 twice.", store=store, thread=SOURCE, user_id="ada", tags=["vip"])
    shop.ran.clear()
    return shop


def results(stitches: list[Stitch]) -> list[str]:
    return [str((stitch.message or {}).get("content")) for stitch in stitches if stitch.type == "tool_call"]


async def test_replays_thread_with_recorded_results_and_without_effects(store: Store) -> None:
    shop = await recorded(store)
    await scripted("Bye.", name="shop").run("Thanks.", store=store, thread=SOURCE)
    before = await record_of(store)
    report = await replay(SOURCE, shop.agent(), store=store)
    assert not shop.ran
    assert report.thread.status == "failed", "the second turn of the script makes calls that the record does not have"
    assert report.divergence is not None
    assert report.divergence.name == "charge"
    assert [turn.run.status for turn in report.turns] == ["completed", "failed"]
    first = report.turns[0]
    assert first.difference is not None
    assert all(pair.same for pair in first.difference.pairs)
    assert first.run.metadata["replay_of"] == str(first.source and first.source.id)
    assert first.run.tags == ["vip"]
    stitches = await store.log(first.run.id)
    assert results(stitches) == ["receipt 1", "0 items", "receipt 3"]
    assert "tool_started" not in types(stitches)
    assert await record_of(store) == before
    assert not (await store.verify()).problems
    # A replay is no conversation of its user.
    assert [head.key for head in await store.threads(user_id="ada")] == [SOURCE]
    assert await store.count(user_id="ada", kind="replay") == 1


async def test_stops_at_call_without_recorded_result(store: Store) -> None:
    await recorded(store)
    shop = Shop(asks(("look", {}), ("charge", {"amount": 6})), "Never.")
    run = (await store.runs(SOURCE))[0]
    report = await replay(run, shop.agent(), store=store, live_safe=True)
    assert not shop.ran
    diverged = report.divergence
    assert diverged is not None
    assert (diverged.step, diverged.name, diverged.input) == (1, "charge", {"amount": 6})
    assert diverged.message == (
        'The replay stopped at the call charge({"amount":6}), which has no recorded result. The record has 2 other '
        "unused calls of charge here."
    )
    assert report.thread.result == {"status": "failed", "summary": None, "error": diverged.message}
    assert (report.turns[0].run.status, report.turns[0].run.stop_reason) == ("failed", "diverged")
    assert results(await store.log(report.turns[0].run.id))[0] == "0 items"
    assert (report.same, report.same_calls) == (False, False)
    with pytest.raises(Refused, match="a replay, which is not retried"):
        await shop.agent().retry(report.thread, store=store)
    with pytest.raises(Refused, match="takes no messages"):
        await shop.agent().run("Continue", store=store, thread=report.thread)
    with pytest.raises(Refused, match="is a replay"):
        await replay(report.thread, shop.agent(), store=store)


async def test_uses_each_result_once_and_runs_safe_tools_live(store: Store) -> None:
    await recorded(store)
    shop = Shop(asks(("look", {}), ("look", {"box": 3})), asks(("look", {})), "Looked.")
    report = await replay(SOURCE, shop.agent(), store=store, live_safe=True)
    assert report.output_text == "Looked."
    assert shop.ran == ["look 3", "look 0"]
    assert results(await store.log(report.turns[0].run.id)) == ["0 items", "3 items", "0 items"]
    shop.ran.clear()
    report = await replay(SOURCE, shop.agent(), store=store)
    assert report.divergence is not None
    assert report.divergence.input == {"box": 3}
    assert not shop.ran


async def test_resumes_replay_after_kill(store_url: str, store: Store) -> None:
    await recorded(store)
    arguments = ("-m", "tests.agents.replay_victim", store_url)
    process = await asyncio.create_subprocess_exec(warm_commands() / "python", *arguments, cwd=ROOT)
    assert await process.wait() == -signal.SIGKILL
    head = await store.thread(REPLAY)
    assert (head.kind, head.status) == ("replay", "running")
    shop = Shop()
    report = await replay(SOURCE, shop.agent(), store=store, key=REPLAY)
    assert (report.thread.id, report.same, shop.ran) == (head.id, True, [])
    # The call of step 2 equals one of step 1. It got the second result, although another process used the first.
    assert results(await store.log(report.turns[0].run.id)) == ["receipt 1", "0 items", "receipt 3"]
    assert [request.step for request in shop.requests] == [3]
    assert (await replay(SOURCE, shop.agent(), store=store, key=REPLAY)).thread.id == head.id
    with pytest.raises(KeyTaken):
        await replay(SOURCE, shop.agent(), store=store, key=SOURCE)


async def test_changes_prompt_and_version_without_changing_current_version(store: Store) -> None:
    shop = await recorded(store)
    await shop.agent(instructions="Be brief.").version(store)
    report = await replay(SOURCE, shop.agent(instructions="Be brief."), store=store, instructions="Be polite.")
    assert (report.same, shop.requests[-1].system) == (True, "Be polite.")
    stored = await store.agents.get(store.project, "shop")
    assert (stored.version, report.thread.version) == (2, 3)
    await replay(SOURCE, shop.agent(), store=store, version=1)
    assert shop.requests[-1].system is None
    mistakes: list[Json] = [{"model": "gpt"}, {"version": 9}, {"at": 99}, {"source": "unknown"}]
    for wrong in mistakes:
        count = await store.count()
        with pytest.raises((Refused, NotFound)):
            await replay(wrong.pop("source", SOURCE), shop.agent(), store=store, **wrong)
        assert await store.count() == count


async def test_starts_at_position_with_recorded_responses(store: Store) -> None:
    await recorded(store)
    second = [stitch for stitch in await store.stitches(SOURCE) if stitch.type == "llm_call"][1]
    shop = Shop("unused", "unused", "Another end.")
    report = await replay(SOURCE, shop.agent(), store=store, at=second.position)
    assert ([request.step for request in shop.requests], report.output_text) == ([3], "Another end.")
    assert (report.same, report.same_calls) == (False, True)
    totals = report.totals()
    assert (totals["source"]["steps"], totals["replay"]["steps"]) == (1, 1)
    assert report.turns[0].run.input_tokens == totals["replay"]["input_tokens"]


async def test_answers_replies_of_persons_and_children_from_record(store: Store) -> None:
    app = family(
        family_agent("lead", calls("pay", pay={"amount": 2}), asks(child("count", wait=True)), done("5"), tools=[pay]),
        family_agent("member", done("5 boxes")),
    )
    lead = app.agent("lead")
    head = await lead.start(store=store, goal="Count and pay", key=SOURCE)
    await lead.resume(head, store=store)
    (wait,) = (await store.thread(head)).waits
    await approve(store, head, str(wait.call_id))
    await work_off(app, store)
    await work_off(app, store)
    assert (await store.thread(head)).status == "completed"
    before, threads = await record_of(store), await store.count()
    started = await start_replay(SOURCE, lead, store=store)
    assert started.status == "pending"
    await work_off(app, store)
    report = await store.replay_report(started)
    assert (report.thread.status, report.output_text, report.same) == ("completed", "5", True)
    assert await store.count() == threads + 1
    texts = [stitch.message for stitch in await store.stitches(started) if stitch.type == "thread_result"]
    assert texts == [
        stitch.message for stitch in before if isinstance(stitch, Stitch) and stitch.type == "thread_result"
    ]
    assert await record_of(store) == before


async def test_replays_team_and_memories(store: Store) -> None:
    office = books.books()
    for message in books.MESSAGES:
        await office.run(message, store=store, thread=SOURCE)
    report = await replay(SOURCE, office, store=store)
    assert (report.thread.status, report.same) == ("completed", True)
    runs = sorted(await store.runs(report.thread), key=lambda run: run.sequence)
    assert [(run.turn, run.role, run.agent) for run in runs] == list(books.RUNS)
    searches = [stitch for stitch in await store.stitches(report.thread) if stitch.name == "search"]
    assert ["recorded" in stitch.data for stitch in searches] == [True]

    keen = scripted("Tea.", name="keen", memory="record", side_calls={"memory": "[]"})
    await store.memories.put(
        Memory(
            user_id="bo", text="Bo likes tea", agent="keen", created_at=store.clock.now(), updated_at=store.clock.now()
        )
    )
    result = await keen.run("What does Bo like? tea", store=store, thread="keen", user_id="bo")
    memories = await store.memories.list()
    report = await replay(result.run_id, keen, store=store)
    found = [
        next(stitch.message for stitch in await store.log(run_id) if stitch.type == "memory_retrieval")
        for run_id in (result.run_id, report.turns[0].run.id)
    ]
    assert found[0] is not None
    assert found[0] == found[1]
    assert await store.memories.list() == memories


async def test_ends_when_cancelled_or_when_record_is_deleted(store: Store) -> None:
    shop = await recorded(store)
    first = await start_replay(SOURCE, shop.agent(), store=store)
    assert (await cancel(store, first)).status == "cancelled"
    second = await start_replay(SOURCE, shop.agent(), store=store)
    await store.delete(SOURCE)
    report = await resume_replay(second, store=store)
    assert report.thread.status == "failed"
    assert report.thread.result is not None
    assert "was deleted" in report.thread.result["error"]


async def test_replays_imported_trace(store: Store) -> None:
    body = b"\n".join(codec.dumps(run) for run in agent_trace().runs)
    await import_bytes(store, "langsmith", body)
    (head,) = await store.threads()
    calls_of_trace = [stitch for stitch in await store.stitches(head) if stitch.type == "tool_call"]
    first = calls_of_trace[0]

    @tool
    def unused() -> str:
        raise AssertionError("never run here")

    stored = Tool(str(first.name), "Search.", {"type": "object"}, call=unused.call)
    asked = steps_of(await store.log((await store.runs(head))[0].id))
    arguments = next(step.values["args"] for step in asked if step.kind == "tool")
    agent = scripted(asks((stored.name, arguments)), "Bye.", tools=[stored])
    report = await replay(head, agent, store=store)
    assert (report.thread.status, report.output_text) == ("completed", "Bye.")
    (message, *_) = await store.messages(report.turns[0].run.id)
    assert text_of(message) == "hello"
    with pytest.raises(NotFound):
        await replay(head, store=store)
