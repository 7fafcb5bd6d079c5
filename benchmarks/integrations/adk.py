"""Sessions of ADK: `LockstitchSessionService` and ADK's own `SqliteSessionService`, in turn, in one run.

    python -m benchmarks.integrations.adk [TURNS]

Needs ADK: after `make frameworks`, use build/frameworks/adk-newest/bin/python. A turn reads the session, as a runner
does, and appends a message and an answer of 1 KB each.
"""

import asyncio
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from google.adk.events.event import Event
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types

from lockstitch import open_store
from lockstitch.integrations.adk import LockstitchSessionService

TURNS = 300
BLOCK = 25
"""Turns of one service before the other one continues."""

STORED = 400
LENGTH = 1024
"""Characters of a message."""

LISTED = 10_000
TEXT = "The depot in Graz has a package. " * 30
USAGE = types.GenerateContentResponseUsageMetadata(prompt_token_count=900, candidates_token_count=250)
NAME = {"app_name": "shop", "user_id": "ada"}


async def turns(service: Any, session_id: str, first: int, number: int) -> float:
    """Return the processor time of some turns of a session, in seconds."""
    started = time.process_time()
    for turn in range(first, first + number):
        session = await service.get_session(**NAME, session_id=session_id)
        about: dict[str, Any] = {"invocation_id": f"i-{turn}"}
        text = f"{turn:04} {TEXT}"[:LENGTH]
        await service.append_event(session, Event(author="user", content=types.UserContent(text), **about))
        about |= {"usage_metadata": USAGE, "model_version": "gemini-2.5-flash"}
        await service.append_event(session, Event(author="helper", content=types.ModelContent(text), **about))
    return time.process_time() - started


def size_of(path: Path) -> int:
    return sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*"))


async def listing(service: Any) -> tuple[float, float]:
    """Return the seconds and the processor time to list many sessions."""
    for number in range(LISTED):
        await service.create_session(app_name="many", user_id=f"{number % 100}", state={"n": number})
    started = time.perf_counter(), time.process_time()
    listed = await service.list_sessions(app_name="many", user_id=None)
    spent = time.perf_counter() - started[0], time.process_time() - started[1]
    if len(listed.sessions) != LISTED:
        raise RuntimeError(f"{len(listed.sessions)} sessions were listed")
    return spent


async def main(number: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        paths = {"own": Path(folder, "own.db"), "ADK": Path(folder, "adk.db")}
        async with open_store(f"sqlite:///{paths['own']}") as store:
            services = {"own": LockstitchSessionService(store), "ADK": SqliteSessionService(str(paths["ADK"]))}
            for service in services.values():
                await service.create_session(**NAME, session_id="1")
                await service.create_session(**NAME, session_id="warm")
                await turns(service, "warm", 0, 5)
            seconds = dict.fromkeys(services, 0.0)
            for first in range(0, number, BLOCK):
                for name, service in services.items():
                    seconds[name] += await turns(service, "1", first, BLOCK)
            for service in services.values():
                await turns(service, "1", number, STORED - number)
        content = STORED * 2 * LENGTH
        for name in services:
            print(
                f"{name}: {1000 * seconds[name] / number:.2f} ms of processor time per turn at {number} turns, "
                f"{size_of(paths[name]) / content:.2f} bytes per byte of content at {STORED} turns"
            )
        print(f"ratio of processor time: {seconds['own'] / seconds['ADK']:.2f}")
        async with open_store(f"sqlite:///{paths['own']}") as store:
            spent = await listing(LockstitchSessionService(store))
        print(f"own: {LISTED} sessions listed in {spent[0]:.2f} s, {spent[1]:.2f} s of processor time")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if sys.argv[1:] else TURNS))
