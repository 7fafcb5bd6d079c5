"""OpenAI Agents with the same loop and a session, which stores the items of each turn before the next one."""

import asyncio
from typing import Any
from uuid import uuid4

from agents import Agent, Model, ModelResponse, Runner, SQLiteSession, Usage, function_tool, set_tracing_disabled
from agents.memory import Session
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from benchmarks.content import ANSWER, RESULT, TEXT
from benchmarks.peers import Execute, Prepare


class Scripted(Model):
    def __init__(self, steps: int) -> None:
        self._steps = steps

    async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> ModelResponse:
        step = sum(item.get("type") == "function_call_output" for item in input) + 1
        last = step >= self._steps
        text = ResponseOutputText(type="output_text", text=ANSWER if last else TEXT, annotations=[])
        output: list[Any] = [
            ResponseOutputMessage(
                id=f"msg_{step}", type="message", role="assistant", status="completed", content=[text]
            )
        ]
        if not last:
            call = {"call_id": f"call_{step}", "name": "look", "arguments": "{}"}
            output.append(ResponseFunctionToolCall(type="function_call", **call))
        usage = Usage(requests=1, input_tokens=900, output_tokens=450, total_tokens=1350)
        return ModelResponse(output=output, usage=usage, response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


@function_tool
async def look() -> str:
    """Look."""
    return RESULT


def threads(url: str, concurrency: int) -> Prepare:
    set_tracing_disabled(True)
    runner = asyncio.Runner()
    sessions = _sqlite(url) if url.startswith("sqlite") else _postgres(url)

    def prepare(number: int, steps: int) -> Execute:
        agent = Agent(name="bench", model=Scripted(steps), tools=[look])

        async def execute_part(part: range) -> None:
            for _ in part:
                session = sessions(str(uuid4()))
                result = await Runner.run(agent, "Go", session=session, max_turns=steps + 1)
                if result.final_output != ANSWER or len(result.raw_responses) != steps:
                    raise RuntimeError(f"{len(result.raw_responses)} responses after {steps} steps")

        async def execute() -> None:
            async with asyncio.TaskGroup() as group:
                for first in range(concurrency):
                    group.create_task(execute_part(range(first, number, concurrency)))

        return lambda: runner.run(execute())

    return prepare


def _sqlite(url: str) -> Any:
    # One object for each thread, as in its documentation. All of them use one file.
    path = url.removeprefix("sqlite:///")
    return lambda name: SQLiteSession(name, path)


def _postgres(url: str) -> Any:
    from agents.extensions.memory import SQLAlchemySession
    from sqlalchemy.ext.asyncio import create_async_engine

    engine = create_async_engine(url.replace("postgresql://", "postgresql+psycopg://", 1))

    def session(name: str) -> Session:
        return SQLAlchemySession(name, engine=engine, create_tables=True)

    return session
