"""The conformance suite of the Claude Agent SDK on three backends, its helpers, and Claude Code itself.

    python -m frameworks.claude_agents.suite [files] [sqlite] [postgres]

Needs `claude-agent-sdk`. `test_suite.py` creates environments that have it. The last line is the number of contracts
that hold. The exit code is 1 if one of them does not hold, or if a part was not checked.
"""

import asyncio
import sys
import tempfile
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import claude_agent_sdk as sdk
from claude_agent_sdk.testing import run_session_store_conformance

from frameworks.claude_agents.program import program
from lockstitch import open_store
from lockstitch.integrations.claude_agents import LockstitchSessionStore
from lockstitch.store import Store
from tests.integrations.claude_agents.transcripts import KEY, SUB, Transcript, conversation
from tests.servers import PostgresServer

CONTRACTS = 14
BACKENDS = ("files", "sqlite", "postgres")
FOLDER = "/home/ada/shop"


class Counting:
    """Counts the contracts that start: each of them asks for a new store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._numbers = count()
        self.started = -1  # The first store is only examined.

    def __call__(self) -> Any:
        self.started += 1
        return LockstitchSessionStore(self._store.in_project(f"contract-{next(self._numbers)}"))


async def conformance(store: Store) -> int:
    """Return the number of contracts, if all of them hold."""
    stores = Counting(store)
    await run_session_store_conformance(stores)
    return stores.started


async def helpers(store: Store) -> int:
    """Compare the answers of the helpers of the SDK with those for its own store. Return 0 contracts."""
    own, ours = sdk.InMemorySessionStore(), LockstitchSessionStore(store.in_project("helpers"))
    below = Transcript("sub", sidechain=True)
    below.plain("agent_metadata", agentType="Explore", description="Read", toolUseId="toolu_1")
    below.prompt("Read the shop")
    below.answer("msg_s", "It is small.")
    answers: list[list[Any]] = []
    key = {**KEY, "project_key": sdk.project_key_for_directory(FOLDER)}
    for sessions in (own, ours):
        for entry in conversation().entries:
            await sessions.append(key, [entry])
        await sessions.append({**SUB, **key}, below.entries)
        await sdk.rename_session_via_store(sessions, KEY["session_id"], "Shop", directory=FOLDER)
        await sdk.tag_session_via_store(sessions, KEY["session_id"], "sums", directory=FOLDER)
        forked = await sdk.fork_session_via_store(sessions, KEY["session_id"], directory=FOLDER)
        answers.append(
            [
                *[_plain(item) for item in await sdk.list_sessions_from_store(sessions, directory=FOLDER)],
                _plain(await sdk.get_session_info_from_store(sessions, KEY["session_id"], directory=FOLDER)),
                *await sdk.get_session_messages_from_store(sessions, KEY["session_id"], directory=FOLDER),
                *await sdk.list_subagents_from_store(sessions, KEY["session_id"], directory=FOLDER),
                *await sdk.get_subagent_messages_from_store(sessions, KEY["session_id"], "a1", directory=FOLDER),
                len(await sessions.load({**key, "session_id": forked.session_id}) or ()),
            ]
        )
        await sdk.delete_session_via_store(sessions, KEY["session_id"], directory=FOLDER)
        assert await sessions.load(key) is None
    assert answers[0] == answers[1], answers
    return 0


def _plain(info: Any) -> Any:
    """Return what is known about a session, without times and new ids."""
    return {
        name: value for name, value in vars(info).items() if name not in ("session_id", "last_modified", "created_at")
    }


@asynccontextmanager
async def stores(backends: Sequence[str], folder: Path) -> AsyncIterator[dict[str, str]]:
    """Yield the URL of an empty store of each backend."""
    urls = {"files": f"file://{folder}/files", "sqlite": f"sqlite:///{folder}/claude.db"}
    found = {backend: urls[backend] for backend in backends if backend in urls}
    server = PostgresServer() if "postgres" in backends else None
    try:
        yield {**found, "postgres": server.create_database()} if server else found
    finally:
        if server:
            server.close()


async def main(backends: Sequence[str]) -> int:
    checks: tuple[Callable[[Store], Awaitable[int]], ...] = (conformance, helpers, program)
    passed, failed = 0, False
    with tempfile.TemporaryDirectory() as folder:
        async with stores(backends, Path(folder)) as urls:
            for backend, url in urls.items():
                async with open_store(url) as store:
                    for check in checks:
                        try:
                            passed += await check(store)
                        except Exception:
                            failed = True
                            print(f"{backend} {check.__name__}:")
                            traceback.print_exc(file=sys.stdout)
    expected = CONTRACTS * len(backends)
    print(f"claude-agents: passed {passed} of {expected}")
    return int(failed or passed != expected)


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:] or BACKENDS)))
