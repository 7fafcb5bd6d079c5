"""`LockstitchSessionStore` compared with simple stores for sessions of the Claude Agent SDK.

    python -m benchmarks.integrations.claude_agents

After `make frameworks`, build/frameworks/claude-agents-newest/bin/python has the SDK.

The SDK has no durable store. It has one in memory, which is measured if the SDK is installed, and examples that write
one row per entry. `Rows` does that with SQLite, and with a summary of each session. Its commits are as durable as those
of Lockstitch. Each turn is one append, as with the default of the SDK. The figures are processor time per turn, and
bytes of the database.
"""

import asyncio
import json
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.prose import Prose
from lockstitch import open_store
from lockstitch.integrations.claude_agents import LockstitchSessionStore
from tests.integrations.claude_agents.transcripts import KEY, Transcript

TURNS = 300
SIZED_TURNS = 400
LENGTH = 1000
ROUNDS = 5

Append = Callable[[Any, Sequence[Any]], Awaitable[None]]


class Rows:
    """A store with one row per entry, and one per session."""

    def __init__(self, path: Path, fold: Callable[..., Any] | None) -> None:
        self._fold = fold
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.executescript(
            "CREATE TABLE entries (project TEXT, session TEXT, number INTEGER PRIMARY KEY, entry TEXT);"
            "CREATE INDEX entries_of ON entries (project, session);"
            "CREATE TABLE sessions (project TEXT, session TEXT, summary TEXT, PRIMARY KEY (project, session));"
        )

    def close(self) -> None:
        self._connection.close()

    async def append(self, key: Any, entries: Sequence[Any]) -> None:
        place = key["project_key"], key["session_id"]
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        rows = [(*place, json.dumps(entry)) for entry in entries]
        self._connection.executemany("INSERT INTO entries (project, session, entry) VALUES (?, ?, ?)", rows)
        found = execute("SELECT summary FROM sessions WHERE project = ? AND session = ?", place).fetchone()
        if self._fold is not None:
            summary = json.dumps(self._fold(json.loads(found[0]) if found else None, key, entries))
            execute("INSERT OR REPLACE INTO sessions VALUES (?, ?, ?)", (*place, summary))
        execute("COMMIT")


def turns(number: int) -> list[list[Any]]:
    """Return the entries of each turn: a question and an answer of 1 KB."""
    prose, talk, batches = Prose(3), Transcript(), list[list[Any]]()
    for turn in range(number):
        talk.prompt(prose.take(LENGTH))
        talk.answer(f"msg_{turn}", prose.take(LENGTH))
        batches.append(talk.entries[-2:])
    return batches


async def milliseconds(append: Append, batches: Sequence[Sequence[Any]]) -> float:
    """Return the processor time of a turn."""
    start = time.process_time()
    for batch in batches:
        await append(KEY, batch)
    return (time.process_time() - start) * 1000 / len(batches)


async def main() -> None:
    try:
        sdk: Any = import_module("claude_agent_sdk")
    except ModuleNotFoundError:
        sdk = None
    fold = sdk.fold_session_summary if sdk else None
    batches = turns(TURNS)
    figures: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number in range(ROUNDS):
            async with open_store(f"sqlite:///{folder}/{number}.db") as store:
                measured = {
                    "Lockstitch": LockstitchSessionStore(store).append,
                    "rows": Rows(folder / f"rows{number}.db", fold).append,
                }
                if sdk:
                    measured["memory"] = sdk.InMemorySessionStore().append
                for label, append in measured.items():
                    figures.setdefault(label, []).append(await milliseconds(append, batches))
        for label, times in figures.items():
            print(f"{label}: {statistics.median(times):.3f} ms of processor time per turn, {TURNS} turns")
        batches = turns(SIZED_TURNS)
        async with open_store(f"sqlite:///{folder}/size.db") as store:
            await milliseconds(LockstitchSessionStore(store).append, batches)
        rows = Rows(folder / "rows-size.db", fold)
        await milliseconds(rows.append, batches)
        rows.close()
        content = SIZED_TURNS * 2 * LENGTH
        written = sum(len(json.dumps(entry)) for batch in batches for entry in batch)
        print(f"content {content} bytes, transcript {written} bytes")
        for label, path in (("Lockstitch", "size.db"), ("rows", "rows-size.db")):
            files = (folder / f"{path}{end}" for end in ("", "-wal"))
            size = sum(file.stat().st_size for file in files if file.exists())
            print(f"{label}: {size} bytes, {size / content:.2f} of the content")


if __name__ == "__main__":
    asyncio.run(main())
