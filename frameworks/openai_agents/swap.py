"""A pytest plugin that puts `LockstitchSession` in the place of `SQLiteSession`, for the suite of the SDK.

LOCKSTITCH_BACKEND=sqlite python -m pytest -p frameworks.openai_agents.swap tests
"""

import itertools
import os
import tempfile
from pathlib import Path
from typing import Any

import agents
import agents.extensions.memory.advanced_sqlite_session  # before the swap: it is a subclass of the original
import agents.memory
import agents.memory.sqlite_session
import pytest

from lockstitch.integrations.openai_agents import LockstitchSession
from lockstitch.store import Store, open_store
from lockstitch.store.portal import Portal

_SCHEMES = {"sqlite": "sqlite:///{}", "files": "file:///{}.files"}
_URL = _SCHEMES[os.environ.get("LOCKSTITCH_BACKEND", "sqlite")]
_portal = Portal()
_stores: dict[str, Store] = {}
_numbers = itertools.count()
_folder = tempfile.TemporaryDirectory(prefix="lockstitch-openai-agents-")


class SQLiteSession(LockstitchSession):
    """Takes the arguments of the SDK's session. Sessions with the same path use one store."""

    def __init__(
        self,
        session_id: str,
        db_path: str | Path = ":memory:",
        sessions_table: str = "agent_sessions",
        messages_table: str = "agent_messages",
        session_settings: Any = None,
    ) -> None:
        async def start() -> None:
            path = str(db_path)
            if path == ":memory:":
                path = str(Path(_folder.name) / str(next(_numbers)))
            if path not in _stores:
                _stores[path] = await open_store(_URL.format(path)).__aenter__()
            namespace = f"{sessions_table}-{messages_table}"
            LockstitchSession.__init__(
                self, session_id, store=_stores[path], namespace=namespace, session_settings=session_settings
            )

        _portal.call(start())
        self.db_path = db_path
        self._closed = False

    def close(self) -> None:
        self._closed = True

    async def add_items(self, items: Any, *, wrapper: Any = None) -> None:
        if self._closed:
            raise RuntimeError("SQLiteSession is closed")
        await super().add_items(items, wrapper=wrapper)


for module in (agents, agents.memory, agents.memory.sqlite_session):
    setattr(module, "SQLiteSession", SQLiteSession)  # noqa: B010


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Close the stores of a test."""
    stores = [*_stores.values()]
    _stores.clear()
    for store in stores:
        _portal.call(store.close())
