"""Agents that create child threads, and helpers that read the tree."""

from typing import Any

from lockstitch.agents.agent import Agent
from lockstitch.agents.app import App
from lockstitch.agents.tools.threads import thread_tools
from lockstitch.engine.ports.tool import Tool
from lockstitch.engine.worker import WorkerLoop
from lockstitch.model import Json, Stitch, Thread
from lockstitch.store import Store
from tests.engine.agents import scripted


def asks(*calls: tuple[str, Json]) -> Json:
    """Return a reply that calls tools with these inputs. A tool may appear more than once."""
    return {"calls": [{"name": name, "input": arguments} for name, arguments in calls]}


def child(goal: str = "part", *, agent: str = "member", wait: bool = False, **more: Any) -> tuple[str, Json]:
    return "create_thread", {"goal": goal, "agent": agent, "wait_for_completion": wait, **more}


def done(summary: str = "did it", **more: Any) -> Json:
    return asks(("complete_thread", {"result_summary": summary, **more}))


def agent(name: str, *replies: Any, tools: list[Tool] | None = None, **options: Any) -> Agent:
    return scripted(*replies, name=name, tools=[*thread_tools(), *(tools or [])], **options)


def turns(name: str, *turn_scripts: list[Any]) -> Agent:
    """Return an agent with these replies in each of several turns."""
    return scripted(turns=list(turn_scripts), name=name, tools=thread_tools())


async def elsewhere(store: Store, *names: str) -> None:
    """Return agents that have code only in other processes."""
    for name in names:
        await store.agents.register(store.project, name, {})


def family(lead: Agent, *members: Agent, **options: Any) -> App:
    return App([lead, *members], **options)


async def work_off(app: App, store: Store, **options: Any) -> WorkerLoop:
    """Run a worker until no work is left."""
    worker = WorkerLoop(app, store, **{"concurrency": 5, "poll": 0.05, "until_idle": True, **options})
    await worker.run()
    return worker


async def results(store: Store, thread: Any = "t") -> list[Stitch]:
    return [stitch for stitch in await store.stitches(thread) if stitch.type == "thread_result"]


async def family_of(store: Store, thread: Any = "t") -> list[Thread]:
    """Return the descendants of a thread by goal."""
    return sorted((await store.tree(thread))[1:], key=lambda head: (head.depth, head.goal or ""))
