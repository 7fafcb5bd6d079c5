"""An app for tests of `eval`: agents that know some answers, a judge, and agents that fail."""

import asyncio
import os
from typing import Any

from lockstitch import Agent, App
from lockstitch.engine.ports.provider import ModelRequest
from lockstitch.model import text_of
from lockstitch.testing import Scripted

PRICES = {"scripted": {"input": 1000.0, "output": 1000.0}}


def know(request: ModelRequest) -> str:
    question = text_of(request.messages[-1])
    if "Grade" in question:
        raise ValueError("the quiz is not a judge")
    with open(os.environ["ASKED"], "a") as file:
        file.write(question + "\n")
    if "2 + 2" in question:
        return "It is 4."
    if "capital" in question:
        return "Paris."
    return f"The sky is {os.environ.get('SKY', 'grey')}."


class Stuck(Scripted):
    """Blocks at one question until the process is killed."""

    async def stream(self, request: ModelRequest) -> Any:
        async for part in super().stream(request):
            word = os.environ.get("STUCK")
            if word and word in text_of(request.messages[-1]):
                await asyncio.sleep(600)
            yield part


def is_short(text: str) -> bool:
    return len(text) < 100


def moody(request: ModelRequest) -> Any:
    return "4" if "2 + 2" in text_of(request.messages[-1]) else {"fail": "auth", "message": "No key."}


def agent(name: str, model: Any, **options: Any) -> Agent:
    return Agent(name, model=model, title=False, base_delay=0.0, prices=PRICES, **options)


app = App(
    [
        agent("quiz", Scripted(know)),
        agent("slow", Stuck(know)),
        agent("referee", Scripted(['{"score": 0.9, "reason": "Near enough."}']), output={"type": "object"}),
        agent("broken", Scripted([{"fail": "auth", "message": "No key."}])),
        agent("moody", Scripted(moody)),
    ]
)
