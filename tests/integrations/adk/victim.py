"""Kill a process after each commit of a session, let another process continue it, and print what is stored.

    python -m tests.integrations.adk.victim URL

Each process is a fork of this one, which has imported everything. The output has one JSON line per point.
"""

import asyncio
import json
import os
import signal
import sys
from contextlib import redirect_stdout
from itertools import count

from lockstitch import open_store
from lockstitch.integrations.adk.sessions import Name, SessionLog
from lockstitch.store import Store
from tests.integrations.adk.events import sum_of
from tests.integrations.forks import in_fork


async def converse(url: str, name: Name, last: int) -> None:
    """Create the session and append the events that it lacks. Kill the process after `last` commits, or print."""
    async with open_store(url) as store:
        log = SessionLog(store.in_namespace("adk"))
        commits = 0

        def committed() -> None:
            nonlocal commits
            commits += 1
            if commits == last:
                os.kill(os.getpid(), signal.SIGKILL)

        stored = await log.get(name)
        if stored is None:
            stored = (*await log.create(*name, {"user:visits": 1}), [])
            committed()
        session, _, events = stored
        position = session.position
        for event in sum_of()[len(events) :]:
            position = (await log.append(name, event, position, 0.0)).position
            committed()
        await report(store, name)


async def report(store: Store, name: Name) -> None:
    stored = await SessionLog(store.in_namespace("adk")).get(name)
    assert stored is not None
    key = f"adk:{name.key}"
    found = {
        "authors": [event["author"] for event in map(json.loads, stored[2])],
        "state": stored[1],
        "types": [stitch.type for stitch in await store.stitches(key)],
        "runs": [[run.status, run.steps, run.input_tokens] for run in await store.runs(key)],
    }
    print(json.dumps(found), flush=True)


def main(url: str) -> None:
    with redirect_stdout(None):  # a complete session, so that this process has loaded what its forks need
        asyncio.run(converse(url, Name("shop", "ada", "whole"), 0))
    for number in count(1):
        name = Name("shop", "ada", f"{number}")
        if not in_fork(lambda name=name, number=number: converse(url, name, number)):
            return
        in_fork(lambda name=name: converse(url, name, 0))


if __name__ == "__main__":
    main(sys.argv[1])
