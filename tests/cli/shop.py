"""An app for tests of the command line: scripted agents, one per outcome of a run."""

import os
from pathlib import Path
from typing import Any

from lockstitch import Agent, App, ToolContext, thread_tools, tool
from lockstitch.model import text_of
from lockstitch.testing import Scripted

STORY = "Once upon a time there was a thread. " * 200
PAUSE = float(os.environ.get("STORY_PAUSE", "0.02"))
"""Seconds between two chunks. Long enough to interrupt the answer, unless a test sets STORY_PAUSE."""


@tool(effect="safe")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(approval=True)
def pay(amount: int) -> str:
    """Pay something."""
    return f"paid {amount}"


@tool(frontend=True)
def look(where: str) -> str:
    """Look at the user's page."""
    raise AssertionError


@tool(effect="once", on_doubt="ask")
async def charge(amount: int, ctx: ToolContext) -> str:
    """Charge a card. The first call blocks until the process is killed."""
    import asyncio

    bank = Path(os.environ["BANK"])
    first = not bank.exists()
    with bank.open("a") as file:
        file.write(f"{ctx.key}\n")
    if first:
        await asyncio.sleep(600)
    return f"charged {amount}"


def calls(name: str, **arguments: Any) -> dict[str, Any]:
    return {"calls": [{"name": name, "input": arguments}]}


def agent(name: str, script: Any, *tools: Any, **options: Any) -> Agent:
    prices = {"scripted": {"input": 1000.0, "output": 1000.0}}
    return Agent(name, model=Scripted(script), tools=tools, title=False, base_delay=0.0, prices=prices, **options)


app = App(
    [
        agent("echo", lambda request: f"You said: {text_of(request.messages[-1])}"),
        agent("adder", [calls("add", a=1, b=2), "It is 3."], add),
        agent("payer", [calls("pay", amount=5), "Done."], pay),
        agent(
            "payer-twice",
            [{"calls": [{"name": "pay", "input": {"amount": amount}} for amount in (5, 6)]}, "Done."],
            pay,
        ),
        agent(
            "questioner",
            [
                {
                    "calls": [
                        {"name": "ask_for_input", "input": {"question": f"Which {word}?"}}
                        for word in ("colour", "size")
                    ]
                },
                "Thanks.",
            ],
            *thread_tools(),
        ),
        agent("looker", [calls("look", where="title"), "I see."], look),
        agent(
            "looker-twice",
            [{"calls": [{"name": "look", "input": {"where": where}} for where in ("title", "foot")]}, "I see."],
            look,
        ),
        agent("charger", [calls("charge", amount=7), "Charged."], charge),
        agent("teller", [[{"text": STORY, "chunk": 20, "pause": PAUSE}], ["The end."]]),
        agent("failing", [[{"fail": "request", "message": "No such\nmodel."}], ["Fine."]]),
        agent("cut-off", [{"text": "Once upon a", "stop_reason": "max_tokens"}]),
        agent("retrying", [{"fail": "overloaded", "times": 2, "text": "At last."}], max_retries=3),
        Agent("keyless", model="anthropic:claude-sonnet-5", title=False),
        Agent("nowhere", model="scripted:/nonexistent/script.json", title=False),
    ]
)
