"""The plans of `serve --demo`: two task lists and the scripted replies of the planner's model."""

import json
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Any, Final

from lockstitch.agents.registry import embedder
from lockstitch.apps.prioritizer.rules_provider import RulesPlanner
from lockstitch.cli.demo.pace import DelayedModel, Pace
from lockstitch.engine.ports.provider import Chunk, ModelRequest, Response

CHECKOUT: Final = "Open the self-serve checkout by 1 April"

CHECKOUT_TASKS: Final = """# Checkout brief
- [ ] T4: Choose the payment provider (3h)
- [ ] T1: Write the refund policy (2h)
- [ ] T2: Payment form with 3-D Secure (8h) (after: T4)
- [ ] T5: Retry of failed payments (8h)
- [ ] T8: Load test at 10 times Friday (5h) (after: T5)
- [ ] T6: Open to 5 % of shops (4h) (after: T3)

# Legal review
- [ ] T7: Legal text for 6 countries (4h) (after: T1)
- [ ] T3: Receipts and invoices (5h) (after: T2)
  Invoices must name the seller’s law

# Analytics notes
- [ ] T9: Audit the old cart’s events (4h)
- [ ] T10: Event names for the funnel (2h)
"""

YEAR: Final = "Every shop on the new platform by the end of the year"

_TOPICS: Final = {
    "Orders": ("the import of old orders", "refunds in bulk", "the returns portal", "stock per warehouse"),
    "Money": ("rates per country", "VAT for the Nordics", "gift cards", "the invoice archive"),
    "Growth notes": ("search on phones", "the sign-up mails", "onboarding for shops", "the partner feed"),
    "Trust": ("the audit log", "consent in the app", "sign-in with passkeys", "backups across regions"),
    "Platform": ("alerts for slow queries", "the price table", "keyboard access", "the public changelog"),
}
_PHASES: Final = (
    ("Audit", 2, ()),
    ("Talk to shops about", 3, ()),
    ("Specify", 3, (0, 1)),
    ("Design", 5, (2,)),
    ("Document", 2, (2,)),
    ("Build", 8, (3,)),
    ("Test", 3, (5,)),
    ("Migrate", 5, (5,)),
    ("Roll out", 2, (4, 6)),
    ("Measure", 1, (8,)),
)
"""Per phase of a topic: the verb, the hours, and the phases of the same topic that come before it."""


def year_tasks() -> str:
    """Return a Markdown list of two hundred tasks."""
    lines: list[str] = []
    first = 1
    for document, topics in _TOPICS.items():
        lines.append(f"# {document}")
        for topic in topics:
            for place, (phase, hours, after) in enumerate(_PHASES):
                waits = f" (after: {', '.join(f'K{first + number}' for number in after)})" if after else ""
                lines.append(f"- [ ] K{first + place}: {phase} {topic} ({hours}h){waits}")
            first += len(_PHASES)
    return "\n".join(lines)


class DemoEmbedder:
    """An embedder with delays."""

    def __init__(self, pace: Pace) -> None:
        self._inner = embedder("hashing")
        self._pace = pace
        self.name, self.threshold = self._inner.name, self._inner.threshold

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        await self._pace.take(0.2, 0.5)
        return await self._inner.embed(texts)

    async def close(self) -> None:
        await self._inner.close()


class Planner(DelayedModel):
    """Plans the two lists of the demo with scripted replies, and any other list with rules."""

    def __init__(self, pace: Pace) -> None:
        super().__init__("large", self._scripted_reply, pace, haste=2.5)
        self._scripts = {CHECKOUT: checkout_replies(), YEAR: year_replies()}
        self._rules = RulesPlanner()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk | Response, None]:
        if self._script_of(request):
            async for piece in super().stream(request):
                yield piece
            return
        await self._take(0.6, 1.8)
        async for piece in self._rules.stream(request):
            yield piece

    def _script_of(self, request: ModelRequest) -> list[Any]:
        return next(
            (messages for outcome, messages in self._scripts.items() if outcome in (request.system or "")), list[Any]()
        )

    def _scripted_reply(self, request: ModelRequest) -> Any:
        messages = self._script_of(request)
        return messages[min(request.step, len(messages)) - 1]


def checkout_replies() -> list[Any]:
    """Return the replies for the list of ten tasks."""
    ids = ["T4", "T1", "T9", "T2", "T7", "T10", "T5", "T3", "T8", "T6"]
    sure = (0.94, 0.88, 0.81, 0.91, 0.72, 0.79, 0.69, 0.84, 0.77, 0.86)
    inferred = (("T10", "T9", 0.79), ("T5", "T2", 0.69), ("T3", "T7", 0.76), ("T6", "T10", 0.62), ("T7", "T3", 0.41))
    return [
        _step("Which tasks speak of taking money at all?", "semantic-search", query="payment, checkout, invoices"),
        _step("What do I already know about their order?", "query-task-graph", task_id="T2"),
        _step("Do their texts say who waits for whom?", "detect-dependencies", task_ids=ids),
        _step(
            "T3 and T7 wait for each other. T7 after T3 is the weakest, 0.41: if one has to go, it is that. "
            "What is stored of T7?",
            "query-task-graph",
            task_id="T7",
        ),
        _step("Are the notes that T9 was written from still there?", "get-document-context", task_ids=["T9-notes"]),
        _step("Without them T9 keeps 0.81. Waves follow from the graph.", "cluster-by-similarity", task_ids=ids),
        _answer(
            dict(zip(ids, sure, strict=True)),
            inferred,
            "Start with the payment provider: 5 of 9 other tasks depend on it.",
        ),
    ]


def year_replies() -> list[Any]:
    """Return the replies for the list of two hundred tasks."""
    count = len(_PHASES) * sum(map(len, _TOPICS.values()))
    ids = [f"K{number}" for number in range(1, count + 1)]
    sure = {id: round(0.55 + (number * 37 % 43) / 100, 2) for number, id in enumerate(ids)}
    return [
        _step("Where does the year hinge?", "semantic-search", query="platform, migration, all shops"),
        _step("What waits for the audit log?", "query-task-graph", task_id="K121"),
        _step("Alike tasks are better done together.", "cluster-by-similarity", task_ids=ids[::10]),
        _answer(
            sure, list(_between(ids)), "Talk to shops first and build in two strands: money and trust carry the rest."
        ),
    ]


def _between(ids: list[str]) -> Iterator[tuple[str, str, float]]:
    """Yield the dependencies that the model infers between topics."""
    size = len(_PHASES)
    for topic in range(len(ids) // size - 3):
        for other, phase, waits, confidence in ((1, 5, 2, 0.58), (3, 8, 6, 0.66)):
            if (topic + other) % 2:
                yield ids[(topic + other) * size + phase], ids[topic * size + waits], confidence


def _step(thought: str, tool: str, **values: Any) -> dict[str, Any]:
    return {"text": thought, "calls": [{"name": tool, "input": values}]}


def _answer(sure: dict[str, float], inferred: Any, summary: str) -> str:
    return json.dumps(
        {
            "ordered_task_ids": list(sure),
            "confidence_scores": sure,
            "dependencies": [
                {
                    "source_task_id": a,
                    "target_task_id": b,
                    "relationship_type": "prerequisite",
                    "confidence": confidence,
                }
                for a, b, confidence in inferred
            ],
            "synthesis_summary": summary,
        }
    )
