"""Tools from Python functions: their description, their arguments and their execution."""

import asyncio
import contextvars
import enum
import sys
import threading
from functools import partial
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from lockstitch.agents.tools.function import tool
from lockstitch.engine.concurrency import run_blocking
from lockstitch.engine.ports.tool import Tool, ToolContext, ToolFailed
from lockstitch.errors import Refused
from tests.agents.tools.calling import CONTEXT, call

pytestmark = pytest.mark.anyio

WHO: contextvars.ContextVar[str] = contextvars.ContextVar("WHO", default="nobody")


class Size(enum.Enum):
    SMALL = "small"
    LARGE = "large"


class Address(BaseModel):
    street: str
    number: int = Field(default=1, description="Of the house")


@tool(effect="keyed", on_doubt="ask", approval=True, timeout=2.5)
async def send(
    to: Annotated[str, Field(description="Whom to write to")],
    address: Address,
    copies: Annotated[int, Field(ge=1)] = 1,
    kind: Literal["letter", "card"] = "letter",
    size: Size = Size.SMALL,
    note: str | None = None,
    *,
    ctx: ToolContext,
) -> str:
    """Send something.

    By post.
    """
    assert isinstance(address, Address)
    assert isinstance(size, Size)
    return f"{copies} {size.value} {kind} to {to}, {address.street} {address.number}, {note}, {ctx.key}"


# The description for the model


def test_schema_comes_from_hints_and_description_from_docstring() -> None:
    assert (send.name, send.description) == ("send", "Send something.\n\nBy post.")
    schema = send.input_schema
    properties = schema["properties"]
    assert schema["type"] == "object"
    assert schema["required"] == ["to", "address"]
    assert schema["additionalProperties"] is False
    assert "title" not in schema
    assert list(properties) == ["to", "address", "copies", "kind", "size", "note"]
    assert properties["to"]["description"] == "Whom to write to"
    assert (properties["copies"]["default"], properties["copies"]["minimum"]) == (1, 1)
    assert properties["kind"]["enum"] == ["letter", "card"]
    assert schema["$defs"]["Size"]["enum"] == ["small", "large"]
    assert schema["$defs"]["Address"]["properties"]["number"]["description"] == "Of the house"


def test_tool_has_given_options() -> None:
    assert (send.effect, send.on_doubt, send.approval, send.timeout) == ("keyed", "ask", True, 2.5)

    @tool
    def plain() -> None: ...

    assert (plain.effect, plain.on_doubt, plain.approval, plain.timeout) == ("once", "tell", False, None)
    assert (plain.description, plain.side) == ("", "backend")
    assert plain.input_schema == {"type": "object", "properties": {}, "additionalProperties": False}


def test_tool_has_given_name_and_description() -> None:
    named = tool(name="other", description="Says something.")(lambda word: word)
    assert (named.name, named.description) == ("other", "Says something.")
    assert list(named.input_schema["properties"]) == ["word"]


def test_frontend_tool_has_schema_and_no_code() -> None:
    @tool(frontend=True)
    def confirm(question: str) -> bool:
        """Ask the user."""
        raise AssertionError("never run here")

    assert (confirm.side, confirm.call) == ("frontend", None)
    assert confirm.input_schema["required"] == ["question"]
    assert confirm.definition["side"] == "frontend"


async def test_accepts_parameter_names_of_pydantic() -> None:
    @tool
    def odd(json: str, schema: int, model_config: str, model_dump: str, copy: bool = False, _hidden: str = "x") -> str:
        return f"{json} {schema} {model_config} {model_dump} {copy} {_hidden}"

    assert list(odd.input_schema["properties"]) == ["json", "schema", "model_config", "model_dump", "copy", "_hidden"]
    arguments = {"json": "a", "schema": 1, "model_config": "b", "model_dump": "c", "_hidden": "y"}
    assert await call(odd, **arguments) == "a 1 b c False y"


async def test_parameter_can_have_an_alias() -> None:
    @tool
    def move(from_: Annotated[str, Field(alias="from")], to: str) -> str:
        return f"{from_} → {to}"

    assert move.input_schema["required"] == ["from", "to"]
    assert await call(move, **{"from": "a", "to": "b"}) == "a → b"


async def test_accepts_methods_partials_and_objects() -> None:
    class Shop:
        def sell(self, count: int) -> int:
            return count * 2

        async def __call__(self, count: int) -> int:
            return count * 3

    assert await call(tool(Shop().sell), count="2") == 4
    assert await call(tool(name="partly")(partial(Shop.sell, Shop())), count="2") == 4
    assert await call(tool(name="object")(Shop()), count="2") == 6


# Rejected functions


def test_rejects_parameters_without_name() -> None:
    with pytest.raises(Refused, match=r"Tool many: parameter \*words"):

        @tool
        def many(*words: str) -> None: ...

    with pytest.raises(Refused, match=r"Tool any: parameter \*\*words"):
        tool(name="any")(lambda **words: words)

    with pytest.raises(Refused, match="Tool first: parameter word"):

        @tool
        def first(word: str, /) -> None: ...


def test_rejects_unknown_hints() -> None:
    with pytest.raises(Refused, match="'Unknown' is not defined"):

        @tool
        def broken(what: "Unknown") -> None: ...  # noqa: F821


def test_rejects_types_without_schema() -> None:
    class Strange: ...

    with pytest.raises(Refused, match="no JSON schema can describe"):

        @tool
        def strange(what: Strange) -> None: ...

    with pytest.raises(Refused, match="no JSON schema can describe"):

        @tool
        def function(what: "partial[int]") -> None: ...


def test_rejects_function_without_signature() -> None:
    with pytest.raises(Refused, match="Wrap it in a function"):
        tool(dict)


@pytest.mark.parametrize("name", ["two words", "<lambda>", "é", "x" * 129])
def test_rejects_names_that_models_cannot_use(name: str) -> None:
    with pytest.raises(Refused, match="is not a tool name"):
        tool(name=name)(lambda: None)


def test_rejects_schema_that_is_not_object_or_not_storable() -> None:
    with pytest.raises(Refused, match="must be of type object"):
        Tool("bad", "", {"type": "string"})
    with pytest.raises(Refused):

        @tool
        def endless(limit: float = float("inf")) -> None: ...


# Arguments


async def test_arguments_arrive_with_their_types() -> None:
    arguments: dict[str, Any] = {"to": "Ada", "address": {"street": "Main"}, "copies": "2", "size": "large"}
    assert await call(send, **arguments) == f"2 large letter to Ada, Main 1, None, {CONTEXT.key}"
    assert arguments["copies"] == "2", "what was given is not changed"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"to": "Ada"}, "address: Field required"),
        ({"to": "Ada", "address": {"street": 1}}, "address.street: Input should be a valid string"),
        ({"to": "Ada", "address": {"street": "x"}, "copies": 0}, "copies: Input should be greater than or equal to 1"),
        ({"to": "Ada", "address": {"street": "x"}, "kind": "mail"}, "kind: Input should be 'letter' or 'card'"),
        ({"to": "Ada", "address": {"street": "x"}, "form": "A4"}, "form: Extra inputs are not permitted"),
        ({"to": "Ada", "address": {"street": "x"}, "ctx": {}}, "ctx: Extra inputs are not permitted"),
    ],
)
async def test_invalid_arguments_are_rejected_by_name(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(Refused) as caught:
        await call(send, **arguments)
    assert str(caught.value) == f"Invalid arguments: {message}"
    assert send.check is not None
    with pytest.raises(Refused, match="Invalid arguments"):
        send.check(arguments)


async def test_reports_all_problems_at_once() -> None:
    with pytest.raises(Refused, match=r"to: Field required; address: Field required"):
        await call(send)


# Execution


async def test_function_with_ctx_gets_context() -> None:
    @tool
    def about(ctx: ToolContext) -> str:
        return f"{ctx.deps} {ctx.call_id}"

    assert await call(about) == "deps call-1"


async def test_sync_functions_run_in_a_thread() -> None:
    reached, go = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    @tool
    def block() -> str:
        loop.call_soon_threadsafe(reached.set)
        assert go.wait(60)
        return threading.current_thread().name

    running = [asyncio.create_task(call(block)) for _ in range(2)]
    await reached.wait()
    go.set()
    assert await asyncio.gather(*running) == ["lockstitch-blocking"] * 2


async def test_async_functions_run_in_the_loop() -> None:
    @tool
    async def where() -> bool:
        await asyncio.sleep(0)
        return threading.current_thread() is threading.main_thread()

    assert await call(where) is True


async def test_sync_tools_see_context_variables() -> None:
    @tool
    def who() -> str:
        return WHO.get()

    mark = WHO.set("Ada")
    try:
        assert await call(who) == "Ada"
    finally:
        WHO.reset(mark)


async def test_exception_of_function_is_raised() -> None:
    @tool
    def fail() -> None:
        raise ToolFailed("no more paper")

    with pytest.raises(ToolFailed, match="no more paper"):
        await call(fail)


def _next() -> None:
    next(iter(()))


def _leave() -> None:
    sys.exit("goodbye")


def _cancel() -> None:
    raise asyncio.CancelledError


@pytest.mark.parametrize(
    ("function", "message"),
    [(_next, "StopIteration"), (_leave, "SystemExit: goodbye"), (_cancel, "CancelledError")],
)
async def test_exception_that_would_end_loop_becomes_ordinary_error(function: Any, message: str) -> None:
    with pytest.raises(RuntimeError) as caught:
        await call(tool(function))
    assert str(caught.value) == message
    assert caught.value.__cause__ is not None


async def test_cancelled_call_returns_its_result_if_it_comes_before_a_second_cancellation() -> None:
    reached, go = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    @tool
    def block() -> str:
        loop.call_soon_threadsafe(reached.set)
        go.wait(60)
        return "done"

    running = asyncio.create_task(call(block))
    await reached.wait()
    running.cancel()
    go.set()
    assert await running == "done"


async def test_call_is_not_waited_for_after_a_second_cancellation() -> None:
    reached, go = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    @tool
    def block() -> None:
        loop.call_soon_threadsafe(reached.set)
        go.wait(60)

    running = asyncio.create_task(call(block))
    await reached.wait()
    running.cancel()
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    go.set()


def test_function_that_outlives_its_loop_does_no_harm() -> None:
    go = threading.Event()
    threads: list[threading.Thread] = []

    def block(loop: asyncio.AbstractEventLoop, reached: asyncio.Event) -> None:
        threads.append(threading.current_thread())
        loop.call_soon_threadsafe(reached.set)
        go.wait(60)

    async def give_up() -> None:
        reached, loop = asyncio.Event(), asyncio.get_running_loop()
        running = asyncio.create_task(run_blocking(lambda: block(loop, reached)))
        await reached.wait()
        running.cancel()

    asyncio.run(give_up())
    go.set()
    threads[0].join(60)
    assert not threads[0].is_alive()
