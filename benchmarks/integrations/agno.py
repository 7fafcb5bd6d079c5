"""Sessions of Agno: `LockstitchDb` and Agno's own `SqliteDb`, in turn, in one run.

    python -m benchmarks.integrations.agno [TURNS]

Needs Agno: after `make frameworks`, use build/frameworks/agno-newest/bin/python. A turn is a run of an agent with a
scripted model: the agent reads the session, answers a message of 1 KB with one of 1 KB, and stores session and run.
"""

import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agno.agent import Agent
from agno.db.sqlite import SqliteDb
from agno.metrics import MessageMetrics
from agno.models.base import Model
from agno.models.response import ModelResponse

from lockstitch.integrations.agno import LockstitchDb

TURNS = 300
BLOCK = 25
"""Turns of one database before the other one continues."""

STORED = 400
LENGTH = 1024
"""Characters of a message."""

TEXT = "The depot in Graz has a package. " * 32


@dataclass
class Scripted(Model):
    """A model that answers with the text of the last message."""

    id: str = "gpt-4o-mini"
    provider: str = "OpenAI"

    def invoke(self, *_: Any, messages: Any = None, **__: Any) -> ModelResponse:
        usage = MessageMetrics(input_tokens=900, output_tokens=250, total_tokens=1150)
        return ModelResponse(role="assistant", content=str(messages[-1].content), response_usage=usage)

    async def ainvoke(self, *values: Any, **named: Any) -> ModelResponse:
        return self.invoke(*values, **named)

    def invoke_stream(self, *values: Any, **named: Any) -> Any:
        yield self.invoke(*values, **named)

    async def ainvoke_stream(self, *values: Any, **named: Any) -> Any:
        yield self.invoke(*values, **named)

    def _parse_provider_response(self, response: Any, **_: Any) -> ModelResponse:
        return response

    def _parse_provider_response_delta(self, response: Any) -> ModelResponse:
        return response


def turns(agent: Agent, session_id: str, first: int, number: int) -> float:
    """Return the processor time of some turns of a session, in seconds."""
    started = time.process_time()
    for turn in range(first, first + number):
        agent.run(f"{turn:04} {TEXT}"[:LENGTH], session_id=session_id, user_id="ada")
    return time.process_time() - started


def size_of(path: Path) -> int:
    return sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*"))


def main(number: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        paths = {"own": Path(folder, "own.db"), "Agno": Path(folder, "agno.db")}
        with LockstitchDb.open(f"sqlite:///{paths['own']}") as own:
            databases: dict[str, Any] = {"own": own, "Agno": SqliteDb(db_file=str(paths["Agno"]))}
            agents = {
                name: Agent(
                    id="helper",
                    model=Scripted(),
                    db=db,
                    add_history_to_context=True,
                    num_history_runs=3,
                    telemetry=False,
                )
                for name, db in databases.items()
            }
            for agent in agents.values():
                turns(agent, "warm", 0, 5)
            seconds = dict.fromkeys(agents, 0.0)
            for first in range(0, number, BLOCK):
                for name, agent in agents.items():
                    seconds[name] += turns(agent, "1", first, BLOCK)
            for agent in agents.values():
                turns(agent, "1", number, STORED - number)
        content = STORED * 2 * LENGTH
        for name in agents:
            print(
                f"{name}: {1000 * seconds[name] / number:.2f} ms of processor time per turn at {number} turns, "
                f"{size_of(paths[name]) / content:.2f} bytes per byte of content at {STORED} turns"
            )
        print(f"ratio of processor time: {seconds['own'] / seconds['Agno']:.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else TURNS)
