"""Agno with the same loop. It stores the run at its end; `agno_checkpoints` also stores it after each tool call."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal
from uuid import uuid4

from agno.agent import Agent
from agno.db.postgres import PostgresDb
from agno.db.sqlite import SqliteDb
from agno.models.base import Model
from agno.models.response import ModelResponse

from benchmarks.content import ANSWER, RESULT, TEXT
from benchmarks.peers import Execute, Prepare


@dataclass
class Scripted(Model):
    id: str = "scripted"
    steps: int = 1

    def invoke(self, messages: list[Any], **_: Any) -> ModelResponse:
        step = sum(message.role == "tool" for message in messages) + 1
        if step >= self.steps:
            return ModelResponse(role="assistant", content=ANSWER)
        call = {"id": f"call_{step}", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        return ModelResponse(role="assistant", content=TEXT, tool_calls=[call])

    async def ainvoke(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    def invoke_stream(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    def ainvoke_stream(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    def _parse_provider_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    def _parse_provider_response_delta(self, *_: Any) -> Any:
        raise NotImplementedError


def look() -> str:
    """Look."""
    return RESULT


def threads(url: str, concurrency: int, *, checkpoint: Literal["runs", "tool-batch"] = "runs") -> Prepare:
    sqlite = url.startswith("sqlite")
    database = SqliteDb(db_url=url) if sqlite else PostgresDb(url.replace("postgresql://", "postgresql+psycopg://", 1))
    places = ThreadPoolExecutor(concurrency)

    def prepare(number: int, steps: int) -> Execute:
        agent = Agent(model=Scripted(steps=steps), tools=[look], db=database, checkpoint=checkpoint, telemetry=False)

        def run(_: int) -> None:
            result = agent.run("Go", session_id=str(uuid4()))
            if not str(result.content).endswith(ANSWER) or len(result.tools or []) != steps - 1:
                raise RuntimeError(f"{result.status} after {len(result.tools or [])} tool calls")

        def execute() -> None:
            for _ in places.map(run, range(number)):
                pass

        return execute

    return prepare
