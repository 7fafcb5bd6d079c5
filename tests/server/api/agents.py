"""Scripted agents for tests of the API. Their responses are the same after each restart."""

import asyncio
import os

from lockstitch import Agent, App, tool
from lockstitch.testing import Scripted

STORY = "".join(f"word{number} " for number in range(40))


@tool(effect="safe")
async def look(item: str) -> str:
    """Look at something."""
    await asyncio.sleep(float(os.environ.get("LOOK_PAUSE", "0")))
    return f"{item}: there"


@tool(effect="once", approval=True)
async def pay(amount: int) -> str:
    """Pay a person, after an approval."""
    return f"paid {amount}"


@tool(frontend=True)
async def confirm(question: str) -> str:
    """Ask in the browser."""
    raise NotImplementedError


def calls(name: str, **arguments: object) -> dict[str, object]:
    return {"calls": [{"name": name, "input": arguments}]}


PAY = {"calls": [{"name": "pay", "id": "call_0", "input": {"amount": 5}}]}
"""A call whose id is the same in each run."""


def app() -> App:
    """Return a new app for each event loop."""
    return App(
        [
            Agent("echo", model=Scripted(lambda request: f"You said {len(request.messages)}."), title=False),
            Agent(
                "teller",
                model=Scripted(
                    [[{"text": STORY, "chunk": 8, "pause": 0.015, **calls("look", item="till")}, "The end."]]
                ),
                tools=[look],
                title=False,
            ),
            Agent("payer", model=Scripted([PAY, "Done."]), tools=[pay], title=False),
            Agent(
                "browser", model=Scripted([calls("confirm", question="Sure?"), "Fine."]), tools=[confirm], title=False
            ),
            Agent("failing", model=Scripted([{"fail": "request"}]), title=False),
        ]
    )
