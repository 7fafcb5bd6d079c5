"""Scripted models for plans: step by step, or at once."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from lockstitch.agents.providers.scripted import Scripted
from lockstitch.engine.ports.provider import Chunk, ModelRequest, Response

TEN = """# Checkout brief
- [ ] T4: Choose the payment provider (3h)
- [ ] T1: Write the refund policy (2h)
- [ ] T2: Payment form with 3-D Secure (8h) (after: T4)
- [ ] T5: Retry of failed payments (8h) (after: T2)
- [ ] T8: Load test at 10 times Friday (5h) (after: T5)
- [ ] T6: Open to 5 % of shops (4h) (after: T3)

# Legal review
- [ ] T7: Legal text for 6 countries (4h) (after: T1)
- [ ] T3: Receipts and invoices (5h) (after: T2)
  Invoices must name the seller's law

# Analytics notes
- [ ] T9: Audit the old cart's events (4h)
- [ ] T10: Event names for the funnel (2h) (after: T9)
"""
IDS = ("T4", "T1", "T9", "T2", "T7", "T10", "T5", "T3", "T8", "T6")


def answer(ids: Sequence[str] = IDS, **more: Any) -> str:
    """Return a plan of these tasks. T3 and T7 wait for each other."""
    inferred = (("T3", "T7", 0.76), ("T7", "T3", 0.41)) if "T3" in ids else ()
    return json.dumps(
        {
            "ordered_task_ids": list(ids),
            "confidence_scores": dict.fromkeys(ids, 0.75),
            "dependencies": [
                {"source_task_id": a, "target_task_id": b, "relationship_type": "prerequisite", "confidence": sure}
                for a, b, sure in inferred
            ],
            "synthesis_summary": "Start with the payment provider.",
            **more,
        }
    )


def call(thought: str, tool: str, **arguments: Any) -> dict[str, Any]:
    return {"text": thought, "calls": [{"name": tool, "input": arguments}]}


STEPS = [
    call("Which tasks speak of money?", "semantic-search", query="payment"),
    call("Are the notes of T9 still there?", "get-document-context", task_ids=["T9-notes"]),
    answer(),
]


class Gated(Scripted):
    """A model that replies only when `let` allows it. `let` is the number of allowed replies."""

    def __init__(self, script: Sequence[Any] = STEPS) -> None:
        super().__init__(list(script))
        self.gate = asyncio.Semaphore(0)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk | Response, None]:
        await self.gate.acquire()
        async for part in super().stream(request):
            yield part
