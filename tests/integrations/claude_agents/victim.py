"""Kill processes before and after each commit of a transcript, append it in another one, and print what is stored.

    python -m tests.integrations.claude_agents.victim URL

Each process is a fork of this one, which has imported everything. The output has one JSON line per point.
"""

import json
import sys
from datetime import UTC, datetime

from lockstitch import open_store
from lockstitch.engine.ports.provider import Usage
from lockstitch.engine.usage import price
from lockstitch.integrations.claude_agents import LockstitchSessionStore
from lockstitch.testing import KillPoints
from tests.integrations.claude_agents.transcripts import KEY, MODEL, conversation
from tests.integrations.forks import in_fork

BATCH = 5


async def append(sessions: LockstitchSessionStore, point: str) -> None:
    entries = conversation().entries
    for first in range(0, len(entries), BATCH):
        await sessions.append({**KEY, "project_key": point}, entries[first : first + BATCH])


async def die(url: str, point: str) -> None:
    async with open_store(url) as store:
        await append(LockstitchSessionStore(KillPoints(point).store(store)), point)


async def recover(url: str, points: list[str]) -> None:
    whole = [json.dumps(entry) for entry in conversation().entries]
    async with open_store(url) as store:
        sessions = LockstitchSessionStore(store)
        for point in points:
            await append(sessions, point)
            runs = await store.runs(f"claude:{point}/{KEY['session_id']}")
            loaded = await sessions.load({**KEY, "project_key": point}) or ()
            stored = {
                "point": point,
                "whole": [json.dumps(entry) for entry in loaded] == whole,
                "runs": [[run.status, run.input_tokens, run.output_tokens] for run in runs],
            }
            print(json.dumps(stored), flush=True)


def main(url: str) -> None:
    price("anthropic", MODEL, Usage(), datetime.now(UTC))  # Otherwise each fork loads the prices.
    commits = -(-len(conversation().entries) // BATCH)
    points = [f"append.{when}:{number}" for number in range(1, commits + 1) for when in ("before", "after")]
    for point in points:
        if not in_fork(lambda point=point: die(url, point)):
            sys.exit(f"{point} was not reached.")
    in_fork(lambda: recover(url, points))


if __name__ == "__main__":
    main(sys.argv[1])
