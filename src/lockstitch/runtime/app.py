"""An app: which agents' code there is. Workers and commands are told of it by `--app module:name`."""

import os
import sys
from collections.abc import Iterable
from importlib import import_module
from typing import Any

from lockstitch.errors import LockstitchError, NotFound, Refused
from lockstitch.records import Thread
from lockstitch.runtime.agent import Agent
from lockstitch.runtime.result import Result
from lockstitch.store import Store
from lockstitch.store.core import ThreadRef


class App:
    """Agents by name."""

    def __init__(self, agents: Iterable[Agent]) -> None:
        self.agents: dict[str, Agent] = {}
        for agent in agents:
            if agent.name in self.agents:
                raise Refused(f"Two agents of this app are named {agent.name}.")
            self.agents[agent.name] = agent

    def agent(self, name: str | None) -> Agent:
        """The agent of this name. NotFound says which there are."""
        known = ", ".join(sorted(self.agents)) or "none"
        if name is None:
            raise NotFound(f"This thread belongs to no agent, so one must be named. Agents: {known}.")
        if name not in self.agents:
            raise NotFound(f"This app has no agent {name}. Agents: {known}.")
        return self.agents[name]

    async def resume(self, ref: ThreadRef, *, store: Store, **options: Any) -> Result | None:
        """Go on with a thread, by the agent that it belongs to."""
        head: Thread = await store.thread(ref)
        return await self.agent(head.agent).resume(head, store=store, **options)

    async def close(self) -> None:
        for agent in self.agents.values():
            await agent.close()


def load_app(name: str) -> App:
    """The app that `module:name` names. Refused says what is wrong with it."""
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise Refused(f"{name!r} names no app; write module:name, for example examples.ledger:app.")
    if "" not in sys.path and os.getcwd() not in sys.path:
        # An installed command does not look where it is called from, and that is where people keep their app.
        sys.path.insert(0, os.getcwd())
    try:
        module = import_module(module_name)
    except LockstitchError:
        raise
    except Exception as exc:  # somebody else's code: whatever it raises is a reason
        said = f"{exc}" if isinstance(exc, ImportError) else f"{type(exc).__name__}: {exc}"
        raise Refused(f"The module {module_name} of --app cannot be imported: {said}.") from exc
    found = getattr(module, attribute, None)
    if not isinstance(found, App):
        raise Refused(f"{name} is no App; make one with App([agent, …]).")
    return found
