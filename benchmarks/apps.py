"""The apps of worker processes, by name."""

import asyncio
from collections.abc import Callable

from benchmarks import goals
from benchmarks.processes.errand import agent as errand
from lockstitch import Agent, App, ToolContext
from lockstitch.agents.tools.threads import thread_tools
from lockstitch.testing import Scripted


def leader() -> Agent:
    """Return an agent that creates a child, waits for it, and answers."""
    ask = {"calls": [{"name": "create_thread", "input": {"goal": "Go", "agent": "bench", "wait_for_completion": True}}]}
    return Agent("leader", model=Scripted([ask, "Done."]), tools=thread_tools(["create_thread"]), title=False)


def member() -> Agent:
    """Return the agent of the leader's child, which answers at once. A worker with only its code skips the leader."""
    return goals.agent(1)


async def _stay(_: ToolContext) -> None:
    await asyncio.sleep(3600)


async def _pass(_: ToolContext) -> None:
    return None


APPS: dict[str, Callable[[], App]] = {
    "goals": lambda: App([goals.agent()]),
    "leaders": lambda: App([leader()]),
    "stay": lambda: App([errand(_stay)]),
    "pass": lambda: App([errand(_pass)]),
}
"""Apps by name. The tool of `stay` never returns; the tool of `pass` returns at once."""
