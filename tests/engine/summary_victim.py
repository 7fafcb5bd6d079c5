"""A process that is killed while the model writes a summary: `python -m tests.engine.summary_victim URL child|chat`."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator

from lockstitch.agents.agent import Agent
from lockstitch.agents.providers.scripted import Scripted
from lockstitch.engine.ports.provider import Chunk, ModelRequest, Response
from lockstitch.store import open_store
from tests.engine.threads.families import agent, asks, child, family, work_off

THREAD = "t"
LONG = "Hall A is free on Monday. Hall B is free on Tuesday. " * 50


class Lethal(Scripted):
    """A model that kills its process when it is asked for a summary."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk | Response, None]:
        if request.purpose in ("result_summary", "session_summary"):
            os.kill(os.getpid(), signal.SIGKILL)
        async for part in super().stream(request):
            yield part


def parent_and_child(summary: str, *, answer: str = LONG) -> tuple[Agent, Agent]:
    """Return an agent that waits for a child, and the agent of the child."""
    lead = agent("lead", asks(child(wait=True)), "Thanks.")
    usage = {"input_tokens": 10, "output_tokens": 100}
    member = agent(
        "member",
        {"text": answer, "usage": usage},
        side_calls={"result_summary": {"text": summary, "usage": {"input_tokens": 5, "output_tokens": 7}}},
    )
    return lead, member


async def main(url: str, kind: str) -> None:
    if kind == "chat":
        helper = Agent("helper", model=Lethal(["Hello."]), title=False, session_summary=True)
        async with open_store(url) as store:
            await helper.run("Hi", store=store, thread=THREAD)
    lead, _ = parent_and_child("")
    member = Agent("member", model=Lethal([LONG]), title=False)
    async with open_store(url) as store:
        await lead.start(store=store, goal="Plan", key=THREAD)
        await work_off(family(lead, member), store)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
