"""Broken components: a tool, a check, a memory, a compactor, a file store, a provider. The thread is never blocked."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel, field_validator

from lockstitch.agents.agent import Agent
from lockstitch.agents.tools.function import tool
from lockstitch.engine.ports.compactor import CompactionInput, CompactionResult, Summarize
from lockstitch.engine.ports.memory import NoMemoryStore, Retrieved, Scope, Updated
from lockstitch.engine.ports.provider import Chunk, Download, ModelRequest, Provider, Response
from lockstitch.engine.ports.tool import ToolContext
from lockstitch.model import Json, Message
from lockstitch.store import Store
from tests.engine.agents import add, assert_at_rest, assert_can_continue, calls, log, scripted, types

pytestmark = pytest.mark.anyio

HOSTILE: dict[str, Any] = {
    "NaN": float("nan"),
    "infinity": [1.0, float("inf")],
    "bytes": b"\xff\x00",
    "a huge integer": 2**200,
    "a lone surrogate": "\ud800",
    "NUL": "a\x00b",
    "NaN in a block": [{"type": "text", "text": "x", "score": float("nan")}],
    "a surrogate in a block": [{"type": "text", "text": "\udfff"}],
    "an object in a block": [{"type": "text", "text": object()}],
    "no JSON at all": object(),
    "a set": {1, 2},
    "keys that are no text": {(1, 2): "x", 3: "y"},
    "ten megabytes": "x" * 10_000_000,
    "ten megabytes in a block": [{"type": "text", "text": "x" * 10_000_000}],
}


def nested(depth: int) -> Any:
    value: Any = "deep"
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("name", [*HOSTILE, "deep nesting", "a cycle"])
async def test_run_continues_with_any_return_value_of_tool(store: Store, name: str):
    cycle: list[Any] = []
    cycle.append(cycle)
    value = {**HOSTILE, "deep nesting": nested(2000), "a cycle": cycle}[name]

    @tool
    def strange() -> Any:
        """Return something strange."""
        return value

    result = await scripted(calls("strange"), "I see.", tools=[strange]).run("Go", store=store, thread="t")
    assert (result.status, result.output_text) == ("completed", "I see.")
    (answer,) = await log(store, "tool_call")
    assert answer.message is not None
    assert len(str(answer.message)) < 500_000
    if name in ("NaN", "a lone surrogate", "NaN in a block", "a surrogate in a block", "a cycle"):
        assert answer.message["is_error"]
    await assert_can_continue(store)


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    "problem",
    [
        ValueError("\ud800 \x00"),
        Unspeakable(),
        SystemExit(3),
        asyncio.CancelledError(),
        StopIteration("x"),
        TimeoutError(),
    ],
    ids=lambda problem: type(problem).__name__,
)
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
async def test_error_of_tool_becomes_its_result(store: Store, problem: BaseException, is_async: bool):
    if is_async:

        @tool
        async def broken() -> str:
            """Break."""
            raise problem
    else:

        @tool
        def broken() -> str:
            """Break."""
            raise problem

    result = await scripted(calls("broken"), "I see.", tools=[broken]).run("Go", store=store, thread="t")
    assert (result.status, result.output_text) == ("completed", "I see.")
    (answer,) = await log(store, "tool_call")
    assert answer.message is not None
    assert answer.message["is_error"]
    assert len(await log(store, "tool_error")) == 1
    await assert_can_continue(store)


async def test_cancels_tool_at_its_time_limit(store: Store):
    @tool(timeout=0.05)
    async def sleep() -> str:
        """Sleep."""
        await asyncio.Event().wait()
        return ""

    @tool(timeout=0.05)
    async def stubborn() -> str:
        """Sleep, also after a cancel."""
        while not finished.is_set():
            with suppress(asyncio.CancelledError):
                await finished.wait()
        return ""

    finished = asyncio.Event()
    helper = scripted(calls("sleep", "stubborn"), "I see.", tools=[sleep, stubborn])
    result = await helper.run("Go", store=store, thread="t")
    assert result.output_text == "I see."
    for answer in await log(store, "tool_call"):
        assert answer.message is not None
        assert "did not end within 0.05 seconds" in answer.message["content"]
    finished.set()
    await assert_can_continue(store)


@pytest.mark.parametrize("name", ["x" * 300, "", "a\x00b", "é" * 200])
async def test_answers_call_with_any_tool_name(store: Store, name: str):
    blocks = [{"type": "tool_use", "id": "c", "name": name, "input": {}}]
    result = await scripted({"blocks": blocks, "stop_reason": "tool_use"}, "I see.").run("Go", store=store, thread="t")
    assert (result.status, result.output_text) == ("completed", "I see.")
    (answer,) = await log(store, "tool_call")
    assert answer.message is not None
    assert answer.message["content"].endswith("is unknown. Choose from: none.")
    await assert_can_continue(store)


@pytest.mark.parametrize("given", [None, [], "text", 3, {"__invalid_json": "{a:"}])
async def test_answers_call_whose_arguments_are_not_an_object(store: Store, given: Any):
    blocks = [{"type": "tool_use", "id": "c", "name": "add", "input": given}]
    helper = scripted({"blocks": blocks, "stop_reason": "tool_use"}, "I see.", tools=[add])
    assert (await helper.run("Go", store=store, thread="t")).output_text == "I see."
    (answer,) = await log(store, "tool_call")
    assert answer.message is not None
    assert answer.message["is_error"]
    assert answer.message["content"].startswith("Invalid arguments:")
    await assert_can_continue(store)


IDS: list[Any] = ["c", "c", "", None, 7]


async def test_assigns_unique_ids_to_calls_of_one_response(store: Store):
    blocks = [
        {"type": "tool_use", "id": id, "name": "add", "input": {"a": 1, "b": 1}} for id in ("c", "c", "", None, 7)
    ]
    helper = scripted({"blocks": blocks, "stop_reason": "tool_use"}, "Done.", tools=[add])
    assert (await helper.run("Go", store=store, thread="t")).output_text == "Done."
    answers = await log(store, "tool_call")
    assert len({answer.call_id for answer in answers}) == 5
    await assert_can_continue(store)


# Checks and structured output


def _raises(text: str) -> str | None:
    raise ValueError("the check is broken")


@pytest.mark.parametrize(
    "check",
    [_raises, lambda text: 42, lambda text: False, lambda text: "\ud800"],
    ids=["raises", "number", "bool", "text"],
)
async def test_fails_run_when_answer_check_raises(store: Store, check: Any):
    helper = scripted("One.", "Two.", check=check, max_steps=2)
    result = await helper.run("Go", store=store, thread="t")
    assert result.status in ("failed", "completed")
    if result.status == "failed":
        (error,) = await log(store, "error")
        assert error.data["where"] == "final_answer_check"
        assert result.error
    await assert_can_continue(store)


class Odd(BaseModel):
    number: float

    @field_validator("number")
    @classmethod
    def _odd(cls, value: float) -> float:
        if value == 13:
            raise KeyError("unlucky")
        return value


async def test_returns_invalid_output_to_model(store: Store):
    replies = ['{"number": NaN}', '{"number": 1e999}', '{"number": 13}', "[" * 5000, '{"number": 1}']
    result = await scripted(*replies, output=Odd).run("Go", store=store, thread="t")
    assert (result.status, result.output) == ("completed", Odd(number=1))
    plain = {"type": "object", "properties": {"number": {"type": "number"}}}
    result = await scripted(*replies, output=plain).run("Go", store=store, thread="u")
    assert result.status == "completed"
    await assert_can_continue(store)


# Memory


class BrokenMemory(NoMemoryStore):
    name = "broken"

    def __init__(self, where: str) -> None:
        self.where = where

    def _act(self, where: str) -> None:
        if where == self.where:
            raise RuntimeError(f"the memory is broken: {where}")

    async def retrieve(self, scope: Scope, message: Message) -> Retrieved:
        self._act("retrieve")
        return Retrieved()

    async def update(self, scope: Scope, messages: Sequence[Message]) -> Updated | None:
        self._act("update")
        return Updated(1, 0)

    async def before_compact(self, scope: Scope, messages: Sequence[Message]) -> Json | None:
        self._act("before_compact")
        return {}

    async def after_compact(self, scope: Scope, messages: Sequence[Message]) -> Json | None:
        self._act("after_compact")
        return {}


class Shrinking:
    """A compactor that keeps the first message."""

    name = "shrinking"
    threshold = 0
    parameters: Json = {}

    def __init__(self, problem: Exception | None = None) -> None:
        self.problem = problem

    async def compact(self, compaction_input: CompactionInput, summarize: Summarize) -> CompactionResult | None:
        if self.problem is not None:
            raise self.problem
        first = next(stitch.position for stitch in compaction_input.stitches if stitch.message is not None)
        return CompactionResult(keep=[(first, first)], tokens=1)


@pytest.mark.parametrize("where", ["retrieve", "update", "before_compact", "after_compact"])
async def test_records_memory_error_and_continues(store: Store, where: str):
    helper = scripted("Done.", memory=BrokenMemory(where), compactor=Shrinking())
    result = await helper.run("Go", store=store, thread="t")
    assert (result.status, result.output_text) == ("completed", "Done.")
    (error,) = await log(store, "error")
    assert (error.data["type"], error.data["fatal"]) == ("RuntimeError", False)
    assert where in error.data["message"]
    await assert_can_continue(store)


async def test_records_compactor_error_and_continues(store: Store):
    helper = scripted("Done.", compactor=Shrinking(KeyError("x")))
    result = await helper.run("Go", store=store, thread="t")
    assert result.output_text == "Done."
    (error,) = await log(store, "error")
    assert (error.data["type"], error.data["fatal"]) == ("KeyError", False)
    (compaction,) = await log(store, "compaction")
    assert (compaction.data["applied"], compaction.data["reason"]) == (False, "compactor_failed")
    await assert_can_continue(store)


# Files


class BrokenFiles:
    name = "broken"

    async def store(self, thread_id: UUID, file_id: str, filename: str, content: bytes) -> str | None:
        raise OSError("the disk is on fire")

    async def retrieve(self, path: str) -> bytes:
        raise OSError

    async def delete(self, path: str) -> None:
        raise OSError


@pytest.mark.req("S0-113")
async def test_records_file_store_error_and_keeps_tool_result(store: Store):
    @tool
    def draw(ctx: ToolContext) -> str:
        """Draw."""
        ctx.save_file("a.png", b"a")
        ctx.save_file("b.png", b"b")
        return "drawn"

    block = {"type": "code_execution_tool_result", "content": {"content": [{"file_id": "f1"}, {"file_id": "missing"}]}}
    files = {"f1": {"filename": "x.txt", "content": "x"}}
    helper = scripted(
        {**calls("draw"), "blocks": [block]}, "Done.", tools=[draw], files=BrokenFiles(), provider_files=files
    )
    result = await helper.run("Go", store=store, thread="t")
    assert (result.status, result.output_text) == ("completed", "Done.")
    (answer,) = await log(store, "tool_call")
    assert answer.message is not None
    assert answer.message["content"] == "drawn"
    errors = await log(store, "file_error")
    assert [error.data["type"] for error in errors] == ["OSError", "ProviderError", "OSError", "OSError"]
    assert [error.data["file_id"] for error in errors][:2] == ["f1", "missing"]
    await assert_can_continue(store)


# Providers


class Raw(Provider):
    """A provider that yields the given values, or raises them."""

    name = "raw"

    def __init__(self, *says: Any) -> None:
        self.says = says

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk | Response, None]:
        text = self.says[min(request.attempt, len(self.says) - 1)]
        if isinstance(text, BaseException):
            raise text
        if text is None:
            return
        yield Chunk("text", "…")
        yield Response({"role": "assistant", "content": text}, "end_turn")

    async def download(self, file_id: str) -> Download:
        raise ValueError("no files")

    async def close(self) -> None: ...


def raw(*says: Any, **options: Any) -> Agent:
    return Agent("helper", model=Raw(*says), **{"title": False, "base_delay": 0.0, "max_retries": 1, **options})


async def test_fails_run_when_provider_breaks_contract(store: Store):
    result = await raw(ZeroDivisionError("oops")).run("Go", store=store, thread="t")
    assert (result.status, result.stop_reason) == ("failed", "error")
    assert "ZeroDivisionError: oops" in (result.error or "")
    assert types(await log(store))[-2:] == ["api_error", "run_failed"]
    await assert_can_continue(store)


@pytest.mark.parametrize("said", [[{"type": "text", "text": "\ud800"}], [{"type": "x", "y": float("nan")}], None])
async def test_retries_model_call_when_answer_cannot_be_stored(store: Store, said: Any):
    result = await raw(said, [{"type": "text", "text": "Better."}]).run("Go", store=store, thread="t")
    assert (result.status, result.output_text) == ("completed", "Better.")
    (retry,) = await log(store, "api_retry")
    assert retry.data["error"] == "garbled"
    failed = await raw(said).run("Go", store=store, thread="u")
    assert failed.status == "failed"
    await assert_can_continue(store, "u")


@pytest.mark.parametrize("said", [[], "", [{"type": "text", "text": ""}]])
async def test_accepts_empty_answer(store: Store, said: Any):
    result = await raw(said).run("Go", store=store, thread="t")
    assert result.status == "completed"
    assert result.output_text in ("", None)
    await assert_can_continue(store)


# Before the run


async def test_writes_nothing_when_instructions_raise(store: Store):
    def instructions(deps: Any) -> str:
        raise LookupError("no such customer")

    with pytest.raises(LookupError, match="no such customer"):
        await scripted("x", instructions=instructions).run("Go", store=store, thread="t")
    assert await store.count() == 0
    await scripted("Fine.").run("Go", store=store, thread="t")
    before = await store.stitches("t")
    with pytest.raises(LookupError):
        await scripted("x", instructions=instructions).run("Go", store=store, thread="t")
    assert await store.stitches("t") == before
    await assert_can_continue(store)


@pytest.mark.parametrize(
    "prompt", ["\ud800", [{"type": "text", "text": float("nan")}], [{"type": "text", "text": b""}]]
)
async def test_refuses_prompt_that_cannot_be_stored(store: Store, prompt: Any):
    with pytest.raises(ValueError, match="cannot be stored"):
        await scripted("x").run(prompt, store=store, thread="t")
    assert await store.count() == 0


async def test_releases_thread_on_interrupt(store: Store):
    @tool
    async def interrupted() -> str:
        """Be interrupted."""
        task.cancel()
        await asyncio.sleep(10)
        return ""

    helper = scripted(calls("interrupted"), "Done.", tools=[interrupted])
    task = asyncio.create_task(helper.run("Go", store=store, thread="t"))
    with pytest.raises(asyncio.CancelledError):
        await task
    head = await assert_at_rest(store)
    assert head.status == "pending"
    final_result = await helper.resume("t", store=store)
    assert final_result is not None
    assert (final_result.status, final_result.in_doubt) == (
        "completed",
        [{"call_id": "call_1_1_0", "name": "interrupted"}],
    )
    await assert_can_continue(store)
