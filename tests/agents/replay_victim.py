"""A process that is killed in a replay: `python -m tests.agents.replay_victim URL`. With `eval`, in an evaluation.

The model of the replay kills the process in its third step. The record has answered the calls of the first two steps.
"""

import asyncio
import os
import signal
import sys
from typing import Any

from lockstitch.agents.agent import Agent
from lockstitch.agents.evals.recorded_runs import RecordedRuns
from lockstitch.agents.evals.runner import evaluate
from lockstitch.agents.providers.scripted import Scripted
from lockstitch.agents.replays import replay
from lockstitch.agents.tools.function import tool
from lockstitch.engine.ports.provider import ModelRequest
from lockstitch.model import Json
from lockstitch.store import open_store

SOURCE, REPLAY = "source", "replay"
SELECTION = RecordedRuns(where=["agent=shop", "tag=vip"])

REPLIES: tuple[str | Json, ...] = (
    {"calls": [{"name": "charge", "input": {"amount": 5}}, {"name": "look", "input": {}}]},
    {"calls": [{"name": "charge", "input": {"amount": 5}}]},
    "Charged twice.",
)


class Shop:
    """An agent with a tool that has an effect, and the calls that its tools got. With `lethal`, step 3 is fatal.

    `reply` makes the replies instead of `replies`.
    """

    def __init__(self, *replies: str | Json, lethal: bool = False, reply: Any = None) -> None:
        self.ran: list[str] = []
        self._replies = replies or REPLIES
        self._make_reply = reply
        self._lethal = lethal
        self.requests: list[ModelRequest] = []

    def agent(self, **options: object) -> Agent:
        @tool
        def charge(amount: int) -> str:
            """Charge a card."""
            self.ran.append(f"charge {amount}")
            return f"receipt {len(self.ran)}"

        @tool(effect="safe")
        def look(box: int = 0) -> str:
            """Look into a box."""
            self.ran.append(f"look {box}")
            return f"{box} items"

        values: Json = {"model": Scripted(self._reply), "tools": [charge, look], "title": False, **options}
        return Agent("shop", **values)

    def _reply(self, request: ModelRequest) -> str | Json:
        if self._lethal and request.step == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        self.requests.append(request)
        return self._make_reply(request) if self._make_reply else self._replies[request.step - 1]


async def main(url: str, *, as_eval: bool) -> None:
    async with open_store(url) as store:
        agent = Shop(lethal=True).agent()
        if as_eval:
            await evaluate(agent, SELECTION, store=store, graders="exact", replay=True, concurrency=1)
        await replay(SOURCE, agent, store=store, key=REPLAY)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], as_eval=len(sys.argv) > 2))
