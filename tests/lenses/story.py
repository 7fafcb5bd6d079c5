"""Threads with everything that lenses show, written by the real engine with a scripted model.

`tell(store, folder)` writes them and returns their ids. Their content is exact: the script sets every token count, so
that tests can compare figures.
"""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from lockstitch.agents.agent import Agent
from lockstitch.agents.app import App
from lockstitch.agents.compactors.strategies import ToolResultRemovalCompactor
from lockstitch.agents.providers.scripted import Scripted
from lockstitch.agents.tools.function import tool
from lockstitch.agents.tools.threads import thread_tools
from lockstitch.engine.cancel import cancel
from lockstitch.engine.ports.tool import Tool, ToolContext
from lockstitch.engine.worker import WorkerLoop
from lockstitch.model import Json, Thread
from lockstitch.store import Store
from tests.engine import story as everything

PRICES = {"scripted": {"input": 2.0, "output": 10.0, "cache_write": 2.5, "cache_read": 0.2}}

SYSTEM = "You run a shop."


@tool(effect="safe")
def price(of: str) -> Json:
    """Return a price."""
    return {"of": of, "price": len(of)}


@tool
def broken(why: str = "no such luck") -> str:
    """Break."""
    raise ValueError(why)


@tool
def draw(ctx: ToolContext) -> str:
    """Draw a chart."""
    ctx.save_file("chart.png", b"png", mime_type="image/png", file_id="file_chart")
    return "drawn"


@tool(frontend=True)
def confirm(question: str = "?") -> bool:
    """Ask the user in the browser."""
    raise AssertionError("never run here")


@tool(effect="safe")
def look() -> str:
    """Look around."""
    return "Much was seen. " * 40


def calls(*requests: tuple[str, Json], text: str | None = None, tokens: tuple[int, int] = (100, 20)) -> Json:
    """Return a reply that calls these tools."""
    reply = {} if text is None else {"text": text}
    return {
        **reply,
        "calls": [{"name": name, "input": arguments} for name, arguments in requests],
        "usage": usage(*tokens),
    }


def says(text: str, tokens: tuple[int, int] = (200, 30), **more: Any) -> Json:
    return {"text": text, "usage": usage(*tokens), **more}


def usage(inputs: int, outputs: int, written: int = 0, read: int = 0) -> Json:
    return {
        "input_tokens": inputs,
        "output_tokens": outputs,
        "cache_write_tokens": written,
        "cache_read_tokens": read,
    }


def agent(name: str, *turns: list[Any], tools: list[Tool] | None = None, **options: Any) -> Agent:
    """Return an agent with these replies in each of its turns."""
    agent_options: dict[str, Any] = {
        "title": False,
        "base_delay": 0.0,
        "prices": PRICES,
        "instructions": SYSTEM,
        **options,
    }
    side_calls = agent_options.pop("side_calls", {})
    return Agent(
        name, model=Scripted({"replies": list(turns), "side_calls": side_calls}), tools=tools or [], **agent_options
    )


@dataclass(frozen=True)
class Story:
    """The threads, by what happened in them."""

    shop: Thread
    """A chat of three turns: two parallel tools, then a tool that raises and one that creates a file, then no tool."""
    paused: Thread
    """A chat that waits for the frontend: one backend result is present, two frontend calls are open."""
    continued: Thread
    """A chat that waited for the frontend and continued."""
    compacted: Thread
    """A chat in which old tool results were compacted, twice."""
    forked: Thread
    """A fork of `compacted`."""
    boss: Thread
    """A goal with two children that it waited for."""
    scouts: list[Thread]
    """Those children. The second failed."""
    failed: Thread
    """A chat whose one run failed."""
    cancelled: Thread
    """A goal that was cancelled while it waited for the frontend."""
    everything: Thread
    """A chat with every type of stitch, with `log="full"`. See tests/engine/story.py."""
    archived: Thread
    """A goal that has ended and is archived."""
    elsewhere: Thread
    """A chat in another project."""


async def tell(store: Store, folder: Path) -> Story:
    """Write the story. `folder` is for the files that tools create."""
    # First, because it archives all ended threads.
    await _archive(store)
    await _chat(store, folder)
    await _relay(store)
    await _compact(store)
    await _family(store)
    await _failures(store)
    await everything.tell(store, folder, "everything")
    other_store = store.in_project("elsewhere")
    await agent("helper", [says("Nobody.")]).run("Anybody?", store=other_store, thread="shop")
    return Story(
        **{
            name: await store.thread(name)
            for name in ("shop", "paused", "continued", "compacted", "boss", "failed", "cancelled")
        },
        forked=await store.fork("compacted", key="forked"),
        scouts=sorted(await store.children("boss"), key=lambda child: child.goal or ""),
        everything=await store.thread("everything"),
        archived=await store.thread("archived"),
        elsewhere=await other_store.thread("shop"),
    )


async def _chat(store: Store, folder: Path) -> None:
    keeper = agent(
        "keeper",
        [
            calls(("price", {"of": "tea"}), ("price", {"of": "coffee"}), text="Let me see.", tokens=(1000, 50)),
            {**says("Tea costs 3, coffee 6.", tokens=(1200, 40)), "usage": usage(1200, 40, written=200, read=400)},
        ],
        [calls(("broken", {}), ("draw", {})), says("One of them broke.")],
        [says("Good bye.")],
        tools=[price, broken, draw],
        files=f"file:{folder}",
        max_steps=7,
        api_kwargs={"temperature": 0.5},
        server_tools=[{"type": "web_search_20250305", "name": "web_search"}],
        title=True,
        side_calls={"title": {"text": "Prices of drinks", "usage": usage(10, 5)}},
    )
    await keeper.run("What do tea and coffee cost?", store=store, thread="shop", user_id="ada", extras={"credits": 42})
    await keeper.run("Draw it.", store=store, thread="shop", user_id="ada")
    await keeper.run([{"type": "text", "text": "Thank "}, {"type": "text", "text": "you."}], store=store, thread="shop")


async def _relay(store: Store) -> None:
    for thread in ("paused", "continued"):
        asks = calls(("confirm", {"question": "Sure?"}), ("price", {"of": "rum"}), ("confirm", {"question": "Really?"}))
        asker = agent("asker", [says("Hello.")], [asks, says("Sold.")], tools=[confirm, price])
        await asker.run("Hello?", store=store, thread=thread)
        waiting = await asker.run("I want rum.", store=store, thread=thread)
        assert waiting.status == "waiting"
    answers = [{"tool_use_id": f"call_2_1_{index}", "content": "yes"} for index in (0, 2)]
    await asker.submit("continued", answers, store=store)


async def _compact(store: Store) -> None:
    looker = agent(
        "looker",
        [calls(("look", {})), calls(("look", {}), ("look", {})), calls(("look", {})), says("Seen.")],
        [calls(("look", {}), ("look", {})), says("Seen again.")],
        tools=[look],
        compactor=ToolResultRemovalCompactor(threshold=300, keep=1),
    )
    await looker.run("Look around.", store=store, thread="compacted")
    await looker.run("And again.", store=store, thread="compacted")


async def _family(store: Store) -> None:
    script = [
        ("create_thread", {"goal": f"Look {where}", "agent": f"scout_{where}", "wait_for_completion": True})
        for where in ("down", "up")
    ]
    tasks = {"tasks": [{"description": "Send them out", "status": "completed"}, {"description": "Sum up"}]}
    boss = agent(
        "boss",
        [calls(("update_tasks", tasks)), calls(*script), says("All looked.")],
        tools=thread_tools(),
    )
    down = agent("scout_down", [calls(("look", {})), says("Nothing down there.")], tools=[look, *thread_tools()])
    up = agent("scout_up", [{"fail": "auth", "message": "The key is wrong."}], tools=thread_tools())
    await boss.start(store=store, goal="Find the parcel", key="boss")
    await WorkerLoop(App([boss, down, up]), store, concurrency=2, poll=0.05, until_idle=True).run()


async def _failures(store: Store) -> None:
    failing = agent("failing", [{"fail": "auth", "message": "The key is wrong."}])
    await failing.run("Can you?", store=store, thread="failed")
    asker = agent("asker", [calls(("confirm", {}))], tools=[confirm])
    await asker.start(store=store, goal="Ask somebody", key="cancelled")
    await asker.resume("cancelled", store=store)
    await cancel(store, "cancelled")


async def _archive(store: Store) -> None:
    done = agent("doer", [calls(("look", {})), says("Done long ago.")], tools=[look])
    await done.start(store=store, goal="Something old", key="archived")
    await done.resume("archived", store=store)
    assert await store.archive(store.clock.now() + timedelta(seconds=1)) == 1
