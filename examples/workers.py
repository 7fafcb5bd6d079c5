"""Execute goals with two worker processes, and stop each run at a budget.

    python examples/workers.py

`store.start` creates a thread and returns at once. Any worker that has the agent executes it. Workers can run on many
machines with one PostgreSQL URL. Here they are two processes with one SQLite file.
"""

import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from lockstitch import Agent, App, open_store, run_worker, tool
from lockstitch.ext import ModelRequest, text_of
from lockstitch.testing import Scripted


@tool(effect="safe")
def read(title: str) -> str:
    """Read a text."""
    return f"The text of {title}."


def reply(request: ModelRequest) -> Any:
    """Read first, then answer. The first request about "everything" is expensive."""
    if request.step > 1:
        return "Summarised."
    goal = text_of(request.messages[0])
    tokens = 100_000 if "everything" in goal else 1_000
    usage = {"input_tokens": tokens, "output_tokens": 10}
    return {"calls": [{"name": "read", "input": {"title": goal}}], "usage": usage}


summarizer = Agent(
    "summarizer",
    model=Scripted(reply),
    tools=[read],
    prices={"scripted": {"input": 3.0, "output": 15.0}},  # US dollars per million tokens
    run_budget=0.10,  # US dollars per run
)
app = App([summarizer], limits={"summarizer": 3})  # at most three threads at once, in all workers together

GOALS = [*(f"Summarise chapter {number}" for number in range(1, 5)), "Summarise everything"]


async def work(url: str) -> None:
    async with open_store(url) as store:
        await run_worker(app, store=store, until_idle=True)


async def main(url: str) -> None:
    async with open_store(url) as store:
        for goal in GOALS:
            await store.start("summarizer", goal)
        workers = [subprocess.Popen([sys.executable, Path(__file__).resolve(), url]) for _ in range(2)]
        for worker in workers:
            await asyncio.to_thread(worker.wait)
        for thread in sorted(await store.threads(), key=lambda thread: str(thread.goal)):
            result = thread.result or {}
            print(f"{thread.goal}: {result.get('summary') or result.get('error')}")


if __name__ == "__main__":
    if sys.argv[1:]:
        asyncio.run(work(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(main(f"sqlite:///{folder}/agents.db"))
