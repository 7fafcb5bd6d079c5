"""Scripted agents for the clients of user interfaces. Their responses are the same after each restart."""

from typing import Any

from lockstitch import Agent, App, tool
from lockstitch.testing import Scripted

STORY = "".join(f"word{number} " for number in range(60))


@tool(effect="safe")
async def add(a: int, b: int) -> dict[str, int]:
    """Add two numbers."""
    return {"sum": a + b}


@tool(effect="once", approval=True)
async def pay(amount: int) -> str:
    """Pay a person, after an approval."""
    return f"paid {amount}"


@tool(frontend=True)
async def confirm(question: str) -> str:
    """Ask in the browser."""
    raise NotImplementedError


def calls(name: str, **arguments: Any) -> dict[str, Any]:
    return {"calls": [{"name": name, "input": arguments}]}


app = App(
    [
        Agent(
            "teller",
            model=Scripted(
                [
                    {"thinking": "Hm.", "text": STORY, "chunk": 8, "pause": 0.02, **calls("add", a=1, b=2)},
                    {"text": STORY[::-1], "chunk": 8, "pause": 0.02},
                ]
            ),
            tools=[add],
            title=False,
        ),
        Agent("payer", model=Scripted([calls("pay", amount=3), "Done."]), tools=[pay], title=False),
        Agent("browser", model=Scripted([calls("confirm", question="Sure?"), "Fine."]), tools=[confirm], title=False),
        Agent("failing", model=Scripted([{"fail": "request"}]), title=False),
    ]
)
