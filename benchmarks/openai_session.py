"""`LockstitchSession` and the SDK's own `SQLiteSession`: processor time of a turn, and bytes on disk.

    python -m benchmarks.openai_session

Needs the extra `openai-agents`. A turn is what `Runner.run` calls: it reads all items, adds the message of the user,
and adds the answer. Both sessions write to files in the same folder with their own settings. Processor time is that of
the whole process, including the threads of the session.
"""

import asyncio
import gc
import json
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.prose import Prose
from lockstitch import open_store
from lockstitch.integrations.openai_agents import LockstitchSession

TURNS, LENGTH = 400, 1000
LAST = range(280, 320)
"""Turns around the 300th, whose processor time is compared."""


async def conversation(session_of: Callable[[], Any], *, reuse: bool) -> tuple[float, float, int]:
    """Write the turns. Return the milliseconds of a turn, of one of the `LAST`, and the bytes of the content."""
    prose = Prose(3)
    texts = [prose.take(LENGTH) for _ in range(2 * TURNS)]
    session = session_of()
    content = 0
    started = spent = 0.0
    begin = time.process_time()
    for turn in range(TURNS):
        if turn == LAST.start:
            gc.collect()
            started = time.process_time()
        if turn == LAST.stop:
            spent = time.process_time() - started
        if not reuse:
            session = session_of()
        items = await session.get_items()
        assert len(items) == 2 * turn
        question = {"content": texts[2 * turn], "role": "user"}
        text = {"annotations": [], "text": texts[2 * turn + 1], "type": "output_text", "logprobs": []}
        answer = {"id": f"msg_{turn}", "content": [text], "role": "assistant", "status": "completed", "type": "message"}
        await session.add_items([question])
        await session.add_items([answer])
        content += len(json.dumps(question)) + len(json.dumps(answer))
        if not reuse and hasattr(session, "_connections"):
            session.close()
    return (time.process_time() - begin) * 1000 / TURNS, spent * 1000 / len(LAST), content


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


async def main() -> None:
    sqlite_session: Any = import_module("agents").SQLiteSession
    for reuse in (True, False):
        print("one session object" if reuse else "a new session object for each turn")
        for _ in range(2):
            with tempfile.TemporaryDirectory(dir=".") as name:
                own = await conversation(lambda: sqlite_session("1", Path(name) / "own.db"), reuse=reuse)
                own_bytes = size(Path(name))
            with tempfile.TemporaryDirectory(dir=".") as name:
                async with open_store(f"sqlite:///{Path(name).resolve()}/lockstitch.db") as store:
                    ours = await conversation(lambda: LockstitchSession("1", store=store), reuse=reuse)
                our_bytes = size(Path(name))
            print(
                f"  turn around 300: {ours[1]:.2f} ms / {own[1]:.2f} ms = {ours[1] / own[1]:.2f}, "
                f"all turns: {ours[0]:.2f} / {own[0]:.2f} = {ours[0] / own[0]:.2f}, "
                f"bytes: {our_bytes / ours[2]:.2f} and {own_bytes / own[2]:.2f} times the content"
            )


if __name__ == "__main__":
    asyncio.run(main())
