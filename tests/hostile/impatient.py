"""`lockstitch` with short waits, so that an outage of some seconds has the effects of one of minutes.

    python -m tests.hostile.impatient worker --store …

A walker executes many short steps. A sleeper executes one step, which lasts until the file GATE exists.
"""

import asyncio
import os
import sys
from pathlib import Path

from lockstitch import Agent, App, tool
from lockstitch.backends.postgres import pool
from lockstitch.backends.sqlite import writer
from lockstitch.cli import entry
from lockstitch.engine import worker
from lockstitch.store.writes import writer as appending
from lockstitch.testing import Scripted

STEPS = 100


@tool(effect="safe")
async def step(number: int) -> str:
    """Do a short step. Doing it twice does no harm."""
    await asyncio.sleep(0.05)
    return f"{number} is done"


@tool(effect="safe")
async def sleep() -> str:
    """Sleep until the test opens the gate."""
    while not Path(os.environ["GATE"]).exists():  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    return "slept"


def _agent(name: str, *replies: object) -> Agent:
    return Agent(name, model=Scripted(list(replies)), tools=[step, sleep], title=False)


def _calls(name: str, **arguments: object) -> dict[str, object]:
    return {"calls": [{"name": name, "input": arguments}]}


walker = _agent("walker", *(_calls("step", number=number) for number in range(STEPS)), "The end.")
sleeper = _agent("sleeper", _calls("sleep"), "The end.")

app = App([walker, sleeper])

if __name__ == "__main__":
    pool.PATIENCE = 1.0
    writer.PATIENCE = 0.5
    appending.OUTCOME_TIMEOUT = 0.5
    worker.RETRY_AFTER_SECONDS = 1.0
    sys.exit(entry.run(sys.argv[1:]))
