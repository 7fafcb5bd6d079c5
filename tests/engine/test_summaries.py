"""Summaries that the model writes: of a chat after each turn, and of a child's result for its parent."""

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest

from lockstitch.agents.agent import Agent
from lockstitch.agents.providers.scripted import Scripted
from lockstitch.agents.team import Team
from lockstitch.engine.ports.provider import ModelRequest
from lockstitch.model import codec, text_of
from lockstitch.store import Store
from tests.docs.warm import warm_commands
from tests.engine.agents import log, scripted
from tests.engine.books import delegate
from tests.engine.summary_victim import LONG, THREAD, parent_and_child
from tests.engine.threads.families import agent, asks, child, done, family, family_of, results, work_off

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]


async def purposes(store: Store, thread: Any = THREAD) -> list[str]:
    """Return the purposes of the model calls outside the loop."""
    stitches = [stitch for stitch in await store.stitches(thread) if stitch.type == "llm_call"]
    return [stitch.data["purpose"] for stitch in stitches if "purpose" in stitch.data]


async def be_killed(url: str, kind: str) -> None:
    """Run the victim until it is killed."""
    arguments = ("-m", "tests.engine.summary_victim", url, kind)
    process = await asyncio.create_subprocess_exec(warm_commands() / "python", *arguments, cwd=ROOT)
    assert await process.wait() == -signal.SIGKILL


@pytest.mark.req("S3-040", "S3-042")
async def test_parent_gets_summary_of_long_result(store: Store) -> None:
    lead, member = parent_and_child("Both halls are free.")
    await lead.start(store=store, goal="Plan", key=THREAD)
    await work_off(family(lead, member), store)
    (report,) = await results(store)
    assert report.data["summary"] == "Both halls are free."
    assert text_of(report.message).endswith("summary: Both halls are free.")
    (worker,) = await family_of(store)
    assert worker.result is not None
    assert worker.result["summary"] == LONG, "the child stores the whole result"
    (call,) = [stitch for stitch in await log(store, "llm_call", thread=str(worker.id)) if "purpose" in stitch.data]
    assert (call.data["purpose"], call.data["text"]) == ("result_summary", "Both halls are free.")
    (run,) = await store.runs(worker)
    assert (run.steps, run.output_tokens) == (1, 107)


@pytest.mark.req("S3-040")
@pytest.mark.parametrize(
    ("reply", "is_on", "written", "summary"),
    [
        ("Short.", True, "Wrong.", "Short."),
        (done("The halls are free. " * 50), True, "Wrong.", "The halls are free. " * 50),
        (LONG, False, "Wrong.", LONG[:2000]),
        (LONG, True, {"fail": "auth"}, LONG[:2000]),
    ],
    ids=["short", "own summary", "off", "failed"],
)
async def test_report_contains_result_without_summary_of_model(
    store: Store, reply: Any, is_on: bool, written: Any, summary: str
) -> None:
    lead = agent("lead", asks(child(wait=True)), "Thanks.")
    member = agent("member", reply, side_calls={"result_summary": written}, result_summary=is_on)
    await lead.start(store=store, goal="Plan", key=THREAD)
    await work_off(family(lead, member), store)
    (report,) = await results(store)
    assert report.data["summary"] == summary
    assert (await store.thread(THREAD)).status == "completed"


@pytest.mark.req("S3-040")
async def test_result_of_team_is_summarised(store: Store) -> None:
    writer = scripted(LONG, name="writer")

    def reply(request: ModelRequest) -> Any:
        return "Free." if request.purpose else {"calls": [delegate("writer", "Look for halls.", final=True)]}

    team = Team("member", model=Scripted(reply), members=[writer], answer="choose", title=False)
    lead = agent("lead", asks(child(wait=True)), "Thanks.")
    await lead.start(store=store, goal="Plan", key=THREAD)
    await work_off(family(lead, team), store)
    (report,) = await results(store)
    assert report.data["summary"] == "Free."


@pytest.mark.req("S3-040", "S3-055")
async def test_summary_is_written_once_when_process_is_killed(store: Store, store_url: str) -> None:
    """The process is killed during the call. The answer is committed before, and is not requested again."""
    await be_killed(store_url, "child")
    (worker,) = await family_of(store)
    assert [stitch.message is not None for stitch in await log(store, "llm_call", thread=str(worker.id))] == [True]
    lead, member = parent_and_child("Both halls are free.", answer="Another answer.")
    await work_off(family(lead, member), store)
    (report,) = await results(store)
    assert report.data["summary"] == "Both halls are free."
    assert await purposes(store, worker) == ["result_summary"]
    assert len(await log(store, "llm_call", thread=str(worker.id))) == 2


@pytest.mark.req("S4-011")
async def test_chat_has_summary_after_each_turn(store: Store) -> None:
    prompts: list[str] = []

    def reply(request: ModelRequest) -> Any:
        if request.purpose != "session_summary":
            return f"Answer {request.turn}."
        prompts.append(text_of(request.messages[-1]))
        summary = {"summary": f"Turns: {len(prompts)}.", "topics": ["halls", "prices"]}
        return "```json\n" + codec.dumps(summary).decode() + "\n```"

    helper = Agent("helper", model=Scripted(reply), session_summary=True, title=False)
    await helper.run("First?", store=store, thread=THREAD)
    first = (await store.thread(THREAD)).summary
    assert first is not None
    assert (first["summary"], first["topics"]) == ("Turns: 1.", ["halls", "prices"])
    await helper.run("Second?", store=store, thread=THREAD)
    assert "First?" in prompts[0]
    assert "Turns: 1." in prompts[1]
    assert "Second?" in prompts[1]
    assert "Answer 2." in prompts[1]
    assert "First?" not in prompts[1], "the summary replaces earlier turns"
    rows = (await store.sql("SELECT summary FROM agno_sessions", lens="agno")).rows
    shown = codec.loads(rows[0][0]) if isinstance(rows[0][0], str) else rows[0][0]
    assert shown == (await store.thread(THREAD)).summary
    assert shown["summary"] == "Turns: 2."
    assert await purposes(store) == ["session_summary"] * 2


@pytest.mark.req("S4-011")
async def test_chat_has_one_summary_when_process_is_killed(store: Store, store_url: str) -> None:
    await be_killed(store_url, "chat")
    helper = scripted("Another answer.", session_summary=True, side_calls={"session_summary": "Greetings."})
    result = await helper.resume(THREAD, store=store)
    assert result is not None
    assert (result.status, result.output_text) == ("completed", "Hello.")
    summary = (await store.thread(THREAD)).summary
    assert summary is not None
    assert summary["summary"] == "Greetings."
    assert await purposes(store) == ["session_summary"]


async def test_chat_keeps_summary_when_call_fails(store: Store) -> None:
    for answer in ("It is about halls.", {"fail": "auth"}):
        helper = scripted("Hello.", session_summary=True, side_calls={"session_summary": answer})
        result = await helper.run("Hi", store=store, thread=THREAD)
        assert result.status == "completed"
    summary = (await store.thread(THREAD)).summary
    assert summary is not None
    assert (summary["summary"], summary["topics"]) == ("It is about halls.", [])


async def test_chat_has_no_summary_by_default(store: Store) -> None:
    await scripted("Hello.").run("Hi", store=store, thread=THREAD)
    assert (await store.thread(THREAD)).summary is None
    assert await purposes(store) == []
