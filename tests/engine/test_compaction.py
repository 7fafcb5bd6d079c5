"""Compaction in real runs: with every compactor, after a resume, and over many steps."""

from typing import Any

import pytest

from lockstitch.agents.agent import Agent
from lockstitch.agents.compactors.strategies import (
    SlidingWindowCompactor,
    SummarizingCompactor,
    ToolResultRemovalCompactor,
)
from lockstitch.agents.providers.scripted import Scripted
from lockstitch.agents.tools.function import tool
from lockstitch.model import Json, text_of
from lockstitch.model.message import blocks
from lockstitch.store import Store, open_store
from tests.engine.agents import calls, config_of, log, scripted

pytestmark = pytest.mark.anyio


@tool(effect="safe")
def look(place: int = 0) -> str:
    """Look."""
    return f"{place} " + "Much was seen. " * 40


COMPACTORS: dict[str, Any] = {
    "tool_result_removal": lambda: ToolResultRemovalCompactor(threshold=700, keep=2),
    "sliding_window": lambda: SlidingWindowCompactor(threshold=700, keep_turns=2, result_characters=100),
    "summarizing": lambda: SummarizingCompactor(threshold=700, keep_turns=1),
}


def valid(messages: list[Json]) -> None:
    """Check that every call has its result in the next message, and every result its call in the previous one."""
    call_ids: list[str] = []
    for message in messages:
        answered_ids = [block["tool_use_id"] for block in blocks(message) if block.get("type") == "tool_result"]
        assert answered_ids == call_ids
        call_ids = [block["id"] for block in blocks(message) if block.get("type") == "tool_use"]
    assert call_ids == []


@pytest.mark.req("S0-123", "S0-124", "S0-125", "S0-126")
@pytest.mark.parametrize("name", COMPACTORS)
async def test_compacted_context_stays_small_and_valid(store: Store, name: str):
    requests: list[list[Json]] = []

    def answer(request: Any) -> Any:
        if request.purpose:
            return f"In short: {request.purpose}."
        requests.append(list(request.messages))
        return "Done." if request.step == 8 else calls("look", look={"place": request.step})

    helper = Agent("helper", model=Scripted(answer), tools=[look], compactor=COMPACTORS[name](), title=False)
    for number in range(3):
        result = await helper.run(f"Question {number}", store=store, thread="t")
        assert (result.status, result.steps) == ("completed", 8)
        all_messages = await result.messages()
        assert len(all_messages) == 2 * 8
        assert sum("Much was seen." in str(message) for message in all_messages) == 7
        valid(all_messages)
    applied = [stitch for stitch in await log(store, "compaction") if stitch.data["applied"]]
    assert len(applied) >= 2
    assert {stitch.data["compactor"] for stitch in applied} == {name}
    for messages in requests:
        valid(messages)
        assert text_of(messages[0]).startswith("Question 0"), "the first message of the thread stays"
    for llm_call in await log(store, "llm_call"):
        if "purpose" not in llm_call.data:
            assert len((await store.request(llm_call.id))["messages"]) == llm_call.messages_count
    if name == "summarizing":
        summaries = [stitch for stitch in await log(store, "llm_call") if stitch.data.get("purpose") == "summary"]
        assert summaries
        assert all(summary.message is None for summary in summaries)
        assert "In short: summary." in str(await store.context("t"))
    assert (await store.verify()).problems == []


@pytest.mark.req("S0-125")
async def test_keeps_all_messages_without_compactor(store: Store):
    step = calls("look")
    await scripted(*[step] * 7, "Done.", tools=[look], compactor="none").run("Go", store=store, thread="t")
    assert await log(store, "compaction") == []
    assert str(await store.context("t")).count("Much was seen.") == 7 * 40


@pytest.mark.req("S0-029")
async def test_uses_last_provider_token_count_after_resume(store_url: str):
    usage = {"input_tokens": 90_000, "output_tokens": 20_000}
    turns = [[calls("look"), {"text": "One.", "usage": usage}], ["Two."]]

    def make() -> Agent:
        return scripted(turns=turns, tools=[look], compactor=ToolResultRemovalCompactor(100_000, keep=0))

    async with open_store(store_url) as store:
        first = await make().run("1", store=store, thread="t")
        assert await log(store, "compaction") == []
        config = await config_of(store, store_url, first.thread_id)
        assert (config["last_known_input_tokens"], config["last_known_output_tokens"]) == (90_000, 20_000)
    async with open_store(store_url) as store:
        await make().run("2", store=store, thread="t")
        (compaction,) = await log(store, "compaction")
        assert compaction.data["applied"]
        assert compaction.data["current_tokens"] > 110_000
        assert "Much was seen." not in str(await store.context("t"))


class Counting:
    """A backend that counts the records that it returns."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend
        self.records = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    async def read(self, *arguments: Any) -> Any:
        result = await self._backend.read(*arguments)
        self.records += len(result)
        return result

    async def find(self, *arguments: Any) -> Any:
        result = await self._backend.find(*arguments)
        self.records += len(result)
        return result


async def test_cost_per_step_stays_constant_with_window(store: Store):
    """With a window, the sent, read and remembered data do not grow with the thread."""
    lengths: list[int] = []
    reads: list[int] = []
    counting = Counting(store._backend)
    counting_store = Store(counting, clock=store.clock, project=store.project)  # type: ignore[arg-type]

    def answer(request: Any) -> Any:
        lengths.append(len(request.messages))
        reads.append(counting.records)
        return "Done." if request.step == 100 else calls("look", look={"place": request.step})

    window = SlidingWindowCompactor(threshold=1_000, keep_turns=5, result_characters=100)
    options: Any = {"tools": [look], "compactor": window, "title": False, "max_steps": 100}
    result = await Agent("helper", model=Scripted(answer), **options).run("Go", store=counting_store, thread="t")
    assert (result.status, result.steps) == ("completed", 100)
    assert max(lengths[40:]) <= max(lengths[:30])
    assert reads[-1] == reads[10], "a step reads nothing of the log"
    counting.records = 0
    await Agent("helper", model=Scripted(["Hi."]), **options).run("And?", store=counting_store, thread="t")
    # The stitches of the context, the previous run, and a few more: not the hundreds of stitches of the log.
    assert counting.records < max(lengths) + 20
    assert (await store.thread("t")).position > 200
