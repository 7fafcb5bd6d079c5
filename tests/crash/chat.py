"""A chat for the crash matrix: a client that sends each request twice, a deps factory, a regenerated answer, a fork.

The client writes every acknowledged request to a file. After a kill, it sends the request without an acknowledgement
again, with the same id. Each message is answered once, and each effect happens once.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from lockstitch.agents.agent import Agent
from lockstitch.agents.providers.scripted import Scripted
from lockstitch.agents.tools.function import tool
from lockstitch.engine.config import RunStart
from lockstitch.engine.ports.provider import ModelRequest
from lockstitch.engine.ports.tool import ToolContext
from lockstitch.errors import KeyTaken
from lockstitch.model import Json
from lockstitch.store import Store, open_store
from lockstitch.testing import KillPoints
from tests.crash.errand import write_effect

THREAD, BRANCH = "chat", "branch"


def chat(ledger: Path, points: KillPoints) -> Agent:
    """Return an agent whose tools get the ledger and the user from the deps factory."""

    def deps(start: RunStart) -> Json:
        return {"ledger": str(ledger), "user": start.user_id}

    @tool(effect="once")
    async def charge(what: str, ctx: ToolContext) -> str:
        """Charge the user."""
        return await write_effect(Path(ctx.deps["ledger"]), ctx, f"charge {ctx.deps['user']} {what}")

    def reply(request: ModelRequest) -> Any:
        """Charge once per message."""
        last = request.messages[-1]
        if last["role"] == "user" and isinstance(last["content"], str):
            return {"calls": [{"name": "charge", "input": {"what": last["content"]}}]}
        return "Charged."

    return Agent(
        "clerk",
        model=points.provider(Scripted(reply)),
        instructions=lambda deps: f"Serve {deps['user']}.",
        tools=[points.tool(charge)],
        deps=deps,
        title=False,
    )


async def run(url: str, ledger: Path, points: KillPoints) -> None:
    """Send the requests that have no acknowledgement yet."""
    clerk = chat(ledger, points)
    acknowledged = ledger.with_suffix(".acknowledged")
    async with points.store(open_store(url)) as store:
        for number, request in enumerate(_requests(clerk, store)):
            if acknowledged.exists() and number < len(acknowledged.read_text()):
                continue
            for _ in range(2):
                await request()
            with acknowledged.open("a") as file:
                file.write("x")


def _requests(clerk: Agent, store: Store) -> list[Callable[[], Awaitable[Any]]]:
    """Return the requests of the client. Each may be sent several times."""

    def message(text: str, thread: str) -> Callable[[], Awaitable[Any]]:
        return lambda: clerk.run(text, store=store, thread=thread, user_id="ada", message_id=f"{thread} {text}")

    async def fork() -> None:
        with suppress(KeyTaken):
            await store.fork(THREAD, before_turn=2, key=BRANCH)

    return [
        message("one", THREAD),
        message("two", THREAD),
        lambda: clerk.regenerate(THREAD, store=store, message_id="again"),
        message("three", THREAD),
        fork,
        message("four", BRANCH),
    ]
