"""Streams of real runs in every format: their content and their end."""

import json
from collections.abc import AsyncIterable
from typing import Any

import pytest

from lockstitch.agents.agent import Agent
from lockstitch.agents.formatters import formats
from lockstitch.agents.providers.scripted import Scripted
from lockstitch.agents.registry import formatter
from lockstitch.engine.events import Event
from lockstitch.store import Store
from tests.engine.agents import add, calls, log, scripted, types

pytestmark = pytest.mark.anyio

IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD" * 400}}
PROMPT = [{"type": "text", "text": "Add, please."}, IMAGE]


def helper(**options: Any) -> Agent:
    step = {**calls("add", add={"a": 1, "b": 2}), "text": "Let me add — 加.", "chunk": 3}
    return scripted(turns=[[step, "It is 3."], ["Again."]], tools=[add], **options)


async def frames(agent: Agent, events: AsyncIterable[Event], *, detail: bool = False) -> list[str]:
    formatted = formatter(agent.definition.formatter)(detail)
    return [frame async for frame in formats.stream(events, formatted)]


def envelopes(lines: list[str]) -> list[dict[str, Any]]:
    return [json.loads(line.removeprefix("data: ")) for line in lines if not line.startswith("data: [DONE]")]


@pytest.mark.req("S0-022", "S0-135", "S0-136", "S0-139")
async def test_streams_run_in_its_format(store: Store):
    agent = helper(formatter="json")
    await agent.run("Hello", store=store, thread="t")
    assert (await log(store, "run_started"))[0].data["queue_present"] is False
    lines = await frames(agent, agent.stream(PROMPT, store=store, thread="u"))
    (started,) = await log(store, "run_started", thread="u")
    assert (started.data["queue_present"], started.data["formatter"]) == (True, "json")
    shown_envelopes = envelopes(lines)
    assert all(len(line.encode()) <= 2048 + len("data: \n\n") for line in lines)
    texts: dict[tuple[str, int], str] = {}
    for envelope in shown_envelopes:
        place = (envelope["type"], envelope["step"])
        texts[place] = texts.get(place, "") + envelope["delta"]
    said_text = "".join(text for (kind, _), text in texts.items() if kind == "text")
    assert said_text == "Let me add — 加.It is 3."
    assert json.loads(next(text for (kind, _), text in texts.items() if kind == "tool_call")) == {"a": 1, "b": 2}
    kinds = [kind for kind, _ in texts]
    assert not {"tool_result", "meta_final"} & set(kinds)
    assert "messages" not in texts["meta_init", 0]
    # With this setting the stream also has the history, the results and the end, without payloads.
    agent = helper(formatter="json", stream_meta_history_and_tool_results=True)
    lines = await frames(agent, agent.stream("More", store=store, thread="u"), detail=True)
    assert "QUJDQUJD" not in "".join(lines)
    plain = "".join(envelope["delta"] for envelope in envelopes(lines) if envelope["type"] == "meta_init")
    assert "Add, please." in plain
    assert "[base64: 1200 bytes]" in plain
    final = "".join(envelope["delta"] for envelope in envelopes(lines) if envelope["type"] == "meta_final")
    assert json.loads(final)["status"] == "completed"


@pytest.mark.req("S0-137", "S0-138")
async def test_streams_other_formats(store: Store):
    agent = helper(formatter="xml")
    lines = await frames(agent, agent.stream('<a & "b">', store=store, thread="x"))
    text = "".join(lines)
    assert "<meta_init" in text
    assert "<content-block-text" in text
    raw = Agent("raw", model=Scripted(["Hi."], raw_events=True), title=False, formatter="raw")
    lines = await frames(raw, raw.stream("Hi", store=store, thread="r"))
    assert envelopes(lines) == [{"type": "text", "text": "Hi."}]


@pytest.mark.req("S0-140")
@pytest.mark.parametrize("name", ["json", "xml", "raw"])
async def test_stream_ends_once_and_reports_failure(store: Store, name: str):
    agent = scripted({"fail": "auth", "message": "The key is wrong."}, formatter=name)
    lines = await frames(agent, agent.stream("Hi", store=store, thread="t"))
    assert lines.count(formats.DONE) == 1
    assert lines[-1] == formats.DONE
    assert all(line.startswith("data: ") and line.endswith("\n\n") for line in lines)
    assert sum("The key is wrong." in line for line in lines) == 1
    working_agent = scripted("Hi.", formatter=name)
    lines = await frames(working_agent, working_agent.stream("Hi", store=store, thread="t"))
    assert lines.count(formats.DONE) == 1
    assert "error" not in "".join(lines)


async def test_stream_reports_run_that_cannot_start(store: Store):
    def instructions(deps: Any) -> str:
        raise LookupError("secret")

    agent = scripted("Hi.", instructions=instructions)
    lines = await frames(agent, agent.stream("Hi", store=store, thread="t"))
    assert lines[-1] == formats.DONE
    assert "The stream was interrupted." in lines[-2]
    assert "secret" not in "".join(lines)


async def test_sends_events_after_commit(store: Store):
    """A listener that gets a call or a result finds it in the log."""
    agent = helper()
    kinds: list[str] = []
    async for event in agent.stream("Go", store=store, thread="t"):
        kinds.append(event.type)
        transformed = (
            types(await store.stitches("t"))
            if event.type in ("started", "tool_call", "tool_result", "finished")
            else []
        )
        if event.type == "started":
            assert "input" in transformed
        elif event.type == "tool_call":
            assert "llm_call" in transformed
        elif event.type == "tool_result":
            assert "tool_call" in transformed
        elif event.type == "finished":
            assert transformed[-1] == "run_completed"
    assert [kind for kind in kinds if kind != "text"] == ["started", "tool_call", "tool_result", "finished"]
