"""An agent that knows some answers and stores its inputs."""

from typing import Any

from lockstitch.agents.agent import Agent
from lockstitch.agents.evals.grader import Case
from lockstitch.agents.providers.scripted import Scripted
from lockstitch.engine.ports.provider import ModelRequest
from lockstitch.model import text_of

PRICES = {"scripted": {"input": 1000.0, "output": 1000.0}}

ANSWERS = {"2 + 2?": "4", "Capital?": "It is Paris.", "Shape?": '```json\n{"name": "Ada", "age": 36}\n```'}

CASES = [
    Case("sum", "2 + 2?", "4"),
    Case("capital", "Capital?", ["paris", "it is"]),
    Case("unknown", "Why?", "because"),
]


class Quiz:
    """The agent and its inputs."""

    def __init__(self, **options: Any) -> None:
        self.asked: list[str] = []
        self.answers = dict(ANSWERS)
        agent_options: dict[str, Any] = {"title": False, "base_delay": 0.0, "prices": PRICES, **options}
        self.agent = Agent("quiz", model=Scripted(self._reply), **agent_options)

    def _reply(self, request: ModelRequest) -> Any:
        question = text_of(request.messages[-1])
        self.asked.append(question)
        return {
            "text": self.answers.get(question, "I do not know."),
            "usage": {"input_tokens": 10, "output_tokens": 5},
        }
