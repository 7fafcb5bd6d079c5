"""The dataset of `serve --demo` with two evaluations of its support agent."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import Final, NamedTuple

from lockstitch.agents import Agent
from lockstitch.agents.evals.runner import evaluate
from lockstitch.agents.evals.stored_datasets import Datasets
from lockstitch.cli.demo.pace import Event
from lockstitch.model import FakeClock
from lockstitch.store import Store

DATASET: Final = "shop-questions"
INSTRUCTIONS: Final = "You help customers of a shop. Answer in one sentence, with the amount or the deadline."
"""Instructions of the second evaluation."""


class Question(NamedTuple):
    """A case of the dataset, with the answers under the instructions of the agent and under `INSTRUCTIONS`."""

    id: str
    text: str
    expected: list[str]
    first: str
    second: str


_QUESTIONS: Final = (
    Question(
        "late-order",
        "My order is four days late. What do I get if it never arrives?",
        ["refund", "10 days"],
        "I am sorry about the delay. Please wait a little longer, most orders arrive in the end.",
        "You get a full refund if it has not arrived 10 days after the promised date.",
    ),
    Question(
        "return-period",
        "How long can I return a lamp?",
        ["30 days"],
        "You can return it within 30 days. The lamp must be unused, and the box should be complete.",
        "You can return it for 30 days after the delivery.",
    ),
    Question(
        "return-fee",
        "What does a return cost?",
        ["€4.90", "damaged"],
        "There is a small fee for returns. It is shown before you confirm the return.",
        "A return costs €4.90, and nothing if the item arrived damaged.",
    ),
    Question(
        "gift-cards",
        "Can I pay with two gift cards?",
        ["yes"],
        "Yes, with up to five gift cards for each order.",
        "Yes, with up to five gift cards for each order.",
    ),
    Question(
        "invoice-copy",
        "Where do I find my invoice?",
        ["Orders", "PDF"],
        "It is in your account under *Orders*. You can open it there and save it as a PDF.",
        "It is in your account under *Orders*.",
    ),
    Question(
        "phone-hours",
        "When can I call you?",
        ["Monday", "17:00"],
        "You can call us on working days.",
        "You can call us until 17:00.",
    ),
)


def answer_to(text: str, system: str | None) -> str | None:
    """Return the answer to a question of the dataset under the instructions of a request, or None."""
    question = next((question for question in _QUESTIONS if question.text == text), None)
    if question is None:
        return None
    return question.second if INSTRUCTIONS in (system or "") else question.first


def story(now: datetime, agent: Agent) -> Iterator[Event]:
    """Yield the events with their times."""
    yield now - timedelta(days=4), _make
    yield now - timedelta(days=3, hours=23), partial(_evaluate, agent, None)
    yield now - timedelta(days=2, hours=22), partial(_evaluate, agent, INSTRUCTIONS)


async def _make(store: Store, clock: FakeClock) -> None:
    datasets = Datasets(store)
    await datasets.create(DATASET, description="Questions about deliveries, returns and payment.")
    await datasets.put(DATASET, [{"id": item.id, "input": item.text, "expected": item.expected} for item in _QUESTIONS])


async def _evaluate(agent: Agent, instructions: str | None, store: Store, clock: FakeClock) -> None:
    # One case at a time: all cases advance the same clock.
    await evaluate(
        agent, f"dataset:{DATASET}", store=store, graders="contains", instructions=instructions, concurrency=1
    )
