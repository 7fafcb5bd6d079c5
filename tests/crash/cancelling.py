"""A payment that is cancelled while it is made, for the crash matrix. The run is retried, and the payment is made once.

The tool requests the cancel of its own run after it has paid. A person who reads the ledger settles each call in doubt.
The model pays again only if it gets the message that the payment was not made.
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from lockstitch.agents.agent import Agent
from lockstitch.agents.providers.scripted import Scripted
from lockstitch.agents.tools.function import tool
from lockstitch.engine.ports.provider import ModelRequest
from lockstitch.engine.ports.tool import ToolContext
from lockstitch.engine.replies import settle
from lockstitch.errors import NotFound
from lockstitch.model import Json, text_of
from lockstitch.model.message import blocks
from lockstitch.store import Store, lease_keeper, open_store
from lockstitch.testing import KillPoints
from tests.crash.errand import tools

THREAD: Final = "cancelling"


GIVEN: Final = {name: {"what": f"{name} it"} for name in ("look", "charge", "put")}


def paying(arguments: Mapping[str, Json]) -> Callable[[ModelRequest], Any]:
    """Return a model that pays unless it is done or unknown, puts the receipt away, and ends. Tools get `given`."""

    def answer(request: ModelRequest) -> Any:
        state, has_put = _read(request)
        if state in ("new", "not paid"):
            names = ["look", "charge"] if state == "new" else ["charge"]
        elif state == "unknown":
            return "I do not know whether it is paid."
        elif not has_put:
            names = ["put"]
        else:
            return "All done."
        return {"calls": [{"name": name, "input": arguments[name]} for name in names]}

    return answer


def _read(request: ModelRequest) -> tuple[str, bool]:
    """Return the outcome of the payment in the context, and True if the receipt is stored."""
    state, names = "new", dict[str, str]()
    has_put = False
    for message in request.messages:
        for block in blocks(message):
            match block.get("type"):
                case "tool_use":
                    names[str(block["id"])] = str(block["name"])
                case "tool_result":
                    name, text = names.get(str(block["tool_use_id"])), text_of(block)
                    has_put = has_put or name == "put"
                    if name == "charge":
                        paid = "paid" if not block.get("is_error") else "not paid"
                        state = "unknown" if "is unknown" in text else paid
                case "text" if "[call_settled charge" in str(block.get("text")):
                    text = str(block["text"])
                    state = "paid" if "It took effect" in text else state
                    state = "not paid" if "You may make this call again" in text else state
                case _:
                    pass
    return state, has_put


def agent(ledger: Path, points: KillPoints) -> Agent:
    """Return an agent. Its first payment requests the cancel of its run and then never ends."""
    _, put_tool, look, *_ = tools(ledger)
    requested = ledger.with_suffix(".cancelled")

    @tool(effect="once", on_doubt="ask")
    async def charge(what: str, ctx: ToolContext) -> str:
        """Charge."""
        line = {"response": str(ctx.response_id), "index": ctx.call_index, "key": ctx.key, "tool": "charge"}
        with ledger.open("a") as file:
            file.write(json.dumps(line) + "\n")
        if not requested.exists():
            requested.touch()
            await ctx.store.edit(ctx.thread, cancel_requested=True)
            await asyncio.Event().wait()
        return what

    known_tools = [points.tool(tool) for tool in (charge, put_tool, look)]
    return Agent("till", model=points.provider(Scripted(paying(GIVEN))), tools=known_tools, title=False)


async def run(url: str, ledger: Path, points: KillPoints) -> None:
    """Pay, or continue from where another process was killed."""
    lease_keeper.CANCEL_POLL_SECONDS = 0.02
    till = agent(ledger, points)
    async with points.store(open_store(url)) as store:
        try:
            await store.thread(THREAD)
        except NotFound:
            await till.run("Pay.", store=store, thread=THREAD)
        while True:
            last = (await store.runs(THREAD))[-1]
            if last.status == "completed":
                return
            if last.status in ("cancelled", "failed"):
                await till.retry(THREAD, store=store)
            elif not await _settle(store, ledger):
                await till.resume(THREAD, store=store)


async def _settle(store: Store, ledger: Path) -> bool:
    """Settle the calls in doubt of the thread by the ledger. Return False if it has none."""
    head = await store.thread(THREAD)
    waits = [wait for wait in head.waiting_for if wait["kind"] == "doubt"] if head.status == "waiting" else []
    for wait in waits:
        paid = ledger.exists() and '"charge"' in ledger.read_text()
        await settle(store, THREAD, wait["id"], **({"done": "charged"} if paid else {"redo": True}))
    return bool(waits)
