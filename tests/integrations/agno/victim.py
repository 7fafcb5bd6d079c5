"""Kill a process after each commit of a session, let another process continue it, and print what is stored.

    python -m tests.integrations.agno.victim URL

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
from lockstitch.integrations.agno.rows import Rows
from lockstitch.integrations.agno.sessions import SessionLog
from lockstitch.store import Store
from tests.integrations.agno.runs import part_of, session, sum_of
from tests.integrations.forks import in_fork


async def converse(url: str, session_id: str, last: int) -> None:
    """Store a session and two runs, as Agno does. Kill the process after `last` commits, or print."""
    async with open_store(url) as store:
        log = SessionLog(store.in_namespace("agno"))
        commits = 0

        def committed() -> None:
            nonlocal commits
            commits += 1
            if commits == last:
                os.kill(os.getpid(), signal.SIGKILL)

        for number in "12":
            await log.put(session(session_id))
            committed()
            whole = {**sum_of(number), "run_id": f"{session_id}-run-{number}"}
            known = await log.run(whole["run_id"])
            if known is None:
                await log.put_run(part_of(whole, 4, "RUNNING"), session_id, run_type="agent")
            committed()
            await log.put_run(whole, session_id, run_type="agent")
            committed()
        await Rows(store, "trace").change(
            session_id, lambda row: ({"n": 1}, {"created_at": ""}) if row is None else None
        )
        await report(store, log, session_id)


async def report(store: Store, log: SessionLog, session_id: str) -> None:
    stored = await log.get(session_id)
    assert stored is not None
    key = f"agno:{session_id}"
    found = {
        "runs": [text.run_id.removeprefix(f"{session_id}-") for text in await log.runs(stored)],
        "types": [stitch.type for stitch in await store.stitches(key)],
        "records": [[run.status, run.steps, run.input_tokens] for run in await store.runs(key)],
        "trace": await Rows(store, "trace").get(session_id),
    }
    print(json.dumps(found), flush=True)


def main(url: str) -> None:
    with redirect_stdout(None):  # a complete session, so that this process has loaded what its forks need
        asyncio.run(converse(url, "whole", 0))
    for number in count(1):
        if not in_fork(lambda number=number: converse(url, f"{number}", number)):
            return
        in_fork(lambda number=number: converse(url, f"{number}", 0))


if __name__ == "__main__":
    main(sys.argv[1])
