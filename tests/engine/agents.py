"""Agents with a scripted model, and helpers that read their threads."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

from lockstitch.agents.agent import Agent
from lockstitch.agents.providers.scripted import Scripted
from lockstitch.agents.tools.function import tool
from lockstitch.engine.ports.tool import ToolContext
from lockstitch.engine.result import Result
from lockstitch.model import Json, Stitch, Thread, codec
from lockstitch.store import Store
from lockstitch.store.threads import ThreadRef
from tests.lenses.looking import look


@tool(effect="safe")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def send(to: str, ctx: ToolContext) -> str:
    """Send an email."""
    return f"sent to {to} under {ctx.call_id}"


@tool(frontend=True)
def confirm(question: str = "?") -> bool:
    """Ask the user in the browser."""
    raise AssertionError("never run here")


@tool(approval=True)
def pay(amount: int) -> str:
    """Pay something."""
    return f"paid {amount}"


def calls(*names: str, **inputs: Any) -> dict[str, Any]:
    """Return a reply that calls these tools."""
    return {"calls": [{"name": name, "input": inputs.get(name, {})} for name in names]}


def scripted(*replies: Any, turns: list[list[Any]] | None = None, **options: Any) -> Agent:
    """Return an agent with these replies, in one turn or in each of several."""
    side_calls, files = options.pop("side_calls", {}), options.pop("provider_files", {})
    script = {"replies": turns or list(replies), "side_calls": side_calls, "files": files}
    settings = {"title": False, "base_delay": 0.0, **options}
    return Agent(settings.pop("name", "helper"), model=Scripted(script), **settings)


def types(stitches: list[Stitch]) -> list[str]:
    return [stitch.type for stitch in stitches]


def of_type(stitches: list[Stitch], *kinds: str) -> list[Stitch]:
    return [stitch for stitch in stitches if stitch.type in kinds]


async def log(store: Store, *kinds: str, thread: str = "t") -> list[Stitch]:
    """Return the log of the thread, or only the stitches of these types."""
    stitches = await store.stitches(thread)
    return of_type(stitches, *kinds) if kinds else stitches


async def assert_at_rest(store: Store, thread: str = "t") -> Thread:
    """Return the thread, after checking that it is not held, has no open call and accepts the next message."""
    head = await store.thread(thread)
    assert head.worker_id is None, f"held by {head.worker_id}"
    problems = (await store.verify()).problems
    assert not problems, problems
    return head


async def assert_can_continue(store: Store, thread: str = "t") -> Result:
    """Check that a working agent of the same name can continue the thread."""
    await assert_at_rest(store, thread)
    result = await scripted("Still here.").run("Are you there?", store=store, thread=thread)
    assert (result.status, result.output_text) == ("completed", "Still here.")
    return result


async def config_of(store: Store, url: str, thread: ThreadRef) -> Json:
    """Return the row of a thread in agent_config. Its file of the file backend must be equal."""
    thread_id = (await store.thread(thread)).id
    (row,) = await look(store, "three_table", f"SELECT * FROM agent_config WHERE agent_uuid = '{thread_id}'")
    file = file_of(url, "agent_config", f"{thread_id}.json")
    assert file in (None, row)
    return row


async def turn_of(store: Store, url: str, run_id: UUID) -> Json:
    """Return the row of a run in conversation_history. Its file of the file backend must be equal."""
    (row,) = await look(store, "three_table", f"SELECT * FROM conversation_history WHERE run_id = '{run_id}'")
    # Pattern 4 of the document queries these two columns. Its files do not have them.
    for name in ("input_tokens", "output_tokens"):
        assert row.pop(name) == row["usage"][name]
    file = file_of(url, "conversation_history", row["agent_uuid"], f"{row['sequence_number']:03d}.json")
    assert file in (None, row)
    return row


def file_of(url: str, *path: str) -> Json | None:
    """Return a projection of the file backend. Return None on other backends."""
    if not url.startswith("file:"):
        return None
    place = Path(url.removeprefix("file://").replace("//", "/"))
    return codec.loads(place.joinpath(*path).read_bytes())


async def until(condition: Callable[[], Awaitable[Any]], seconds: float = 60.0) -> Any:
    """Return the first true value of the function."""
    clock = asyncio.get_running_loop().time
    end = clock() + seconds
    while clock() < end:
        if value := await condition():
            return value
        await asyncio.sleep(0.01)
    raise AssertionError("it never came")
