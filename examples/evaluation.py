"""Evaluate an agent on a dataset, and compare it with its previous version.

    python examples/evaluation.py

Every case is a stored run. If the evaluation is killed, the next call continues it and runs no completed case again.
"""

import asyncio
import json
import tempfile
from pathlib import Path

from lockstitch import Agent, evaluate, open_store
from lockstitch.ext import ModelRequest, text_of
from lockstitch.testing import Scripted

CASES = [
    {"id": "sum", "input": "What is 2 + 2?", "expected": "4"},
    {"id": "capital", "input": "What is the capital of Norway?", "expected": "Oslo"},
]


def reply(request: ModelRequest) -> str:
    """Answer as a model that knows the capital only if its instructions ask it to look it up."""
    if "2 + 2" in text_of(request.messages[-1]):
        return "It is 4."
    return "The capital is Oslo." if "Look it up" in (request.system or "") else "The capital is Bergen."


async def main(dataset: Path) -> None:
    dataset.write_text("\n".join(json.dumps(case) for case in CASES))
    async with open_store("sqlite:///:memory:") as store:
        for instructions in ("Answer briefly.", "Answer briefly. Look it up first."):
            agent = Agent("guide", model=Scripted(reply), instructions=instructions, title=False)
            evaluation = await evaluate(agent, dataset, store=store, graders="contains")
            print(f"{evaluation.name} #{evaluation.number}, {agent.name} version {evaluation.version}")
            for outcome in evaluation.outcomes:
                print(f"  {outcome.case}: {'passed' if outcome.passed else outcome.reason}")
            now_pass, _ = evaluation.changes()
            print(f"  score {evaluation.score}, now pass: {', '.join(now_pass) or 'none'}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(Path(folder, "facts.jsonl")))
