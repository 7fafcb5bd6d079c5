"""`App`, `Plugin`, `load_app("module:name")`."""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, Protocol, TypeVar, runtime_checkable

from lockstitch.agents.agent import Agent
from lockstitch.engine.config import RunConfig
from lockstitch.engine.result import Result
from lockstitch.engine.webhooks import Webhook, WebhookDispatcher
from lockstitch.errors import LockstitchError, NotFound, Refused
from lockstitch.model import Limit, Run, Thread
from lockstitch.store import Store
from lockstitch.store.threads import ThreadRef


class Plugin(Protocol):
    """Whatever has these can be given to an App."""

    @property
    def name(self) -> str:
        """What it is called, once per app; its templates and files on a server are found by it."""
        ...

    @property
    def agents(self) -> Iterable[Agent]:
        """Its agents and teams, which become agents of the app."""
        ...

    async def setup(self, store: Store) -> None:
        """Make of a store what the application needs, its tables above all.

        Called whenever a server or a worker starts: cheap when all is there, and safe when two call it at once.
        """
        ...


@runtime_checkable
class Closeable(Protocol):
    """An application that has something to let go of when its app is closed, besides its agents."""

    async def close(self) -> None: ...


_A = TypeVar("_A")


class App:
    """Agents by name, how many of their threads may run at once, and who is told when one fails or waits for a person.

    `limits` are by agent, or by provider as "provider:anthropic"; they hold for all processes of a store together.
    `hooks` are functions that get a notice, or URLs that it is posted to. The agents of `applications` are agents of
    this app; servers show what the applications bring to be shown.

    The app changes no agent: `agents` are bound copies (`Agent.bind`). A bound agent executes children of all agents of
    the app and calls its webhooks. An agent outside of an app executes only children of its own kind.
    """

    def __init__(
        self,
        agents: Iterable[Agent] = (),
        *,
        limits: Mapping[str, int] | None = None,
        hooks: Iterable[Webhook] | Mapping[str, Webhook] = (),
        plugins: Iterable[Plugin] = (),
    ) -> None:
        self.plugins: dict[str, Plugin] = {}
        for application in plugins:
            if application.name in self.plugins:
                raise Refused(f"Two applications of this app are named {application.name}.")
            self.plugins[application.name] = application
        self.agents: dict[str, Agent] = {}
        for agent in (*agents, *(agent for plugin in self.plugins.values() for agent in plugin.agents)):
            if agent.name in self.agents:
                raise Refused(f"Two agents of this app are named {agent.name}.")
            self.agents[agent.name] = agent.bind(self)
        self._limits = dict(limits or {})
        self._telling = WebhookDispatcher(hooks)
        self._limited = [self._limit(name, at_most) for name, at_most in self._limits.items()]

    def agent(self, name: str | None) -> Agent:
        """The agent of this name. NotFound says which there are."""
        known = ", ".join(sorted(self.agents)) or "none"
        if name is None:
            raise NotFound(f"This thread belongs to no agent, so one must be named. Agents: {known}.")
        if name not in self.agents:
            raise NotFound(f"This app has no agent {name}. Agents: {known}.")
        return self.agents[name]

    @property
    def agent_names(self) -> list[str]:
        """The names of the agents, sorted."""
        return sorted(self.agents)

    @property
    def webhook_names(self) -> Sequence[str]:
        """The names of the webhooks."""
        return self._telling.names

    async def run_config(
        self, store: Store, head: Thread, run: Run | None, deps: Any = None
    ) -> tuple[RunConfig, str | None]:
        """Return the config of a run by the agent of its thread, and the instructions of a new run.

        Raises `NotFound` if this app has no such agent.
        """
        return await self.agent(head.agent).run_config(store, head, run, deps, self.agent_names)

    def on_run_end(self, store: Store, head: Thread, run: Run) -> None:
        """Send the trace of a run that has ended, if its agent exports traces."""
        self.agent(head.agent).on_run_end(store, head, run)

    def plugin(self, kind: type[_A]) -> _A:
        """The application of this kind. NotFound says which there are."""
        for application in self.plugins.values():
            if isinstance(application, kind):
                return application
        known = ", ".join(sorted(self.plugins)) or "none"
        raise NotFound(f"This app has no application {kind.__name__}. Applications: {known}.")

    async def setup(self, store: Store) -> None:
        """Have the store be as the applications need it. Cheap once that is so, and safe when two do it at once."""
        for application in self.plugins.values():
            await application.setup(store)

    async def resume(self, ref: ThreadRef, *, store: Store, **options: Any) -> Result | None:
        """Go on with a thread, by the agent that it belongs to."""
        head: Thread = await store.thread(ref)
        return await self.agent(head.agent).resume(head, store=store, **options)

    async def register(self, store: Store) -> None:
        """Have the store be ready for the applications, and keep this app's limits.

        A limit for a provider covers the agents of other apps too.
        """
        await self.setup(store)
        for limit in self._limited:
            await store.set_limit(limit)

    async def deliver_webhooks(self, store: Store) -> None:
        """Tell this app's hooks what is still to be told."""
        await self._telling.tell_due(store)

    def deliver_webhooks_soon(self, store: Store) -> None:
        """The same, without waiting for it."""
        self._telling.tell_soon(store)

    def _limit(self, name: str, at_most: int) -> Limit:
        kind, _, provider = name.partition(":")
        if kind == "provider" and provider:
            covered = [agent.name for agent in self.agents.values() if agent.provider == provider]
            return Limit(name=name, at_most=at_most, agents=covered)
        if name not in self.agents:
            known = ", ".join(sorted(self.agents)) or "none"
            raise Refused(
                f"There is no agent {name} to limit. Agents: {known}. A provider is limited as provider:NAME."
            )
        return Limit(name=f"agent:{name}", at_most=at_most, agents=[name])

    async def close(self) -> None:
        await self._telling.close()
        for application in self.plugins.values():
            if isinstance(application, Closeable):
                await application.close()
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
        text = f"{exc}" if isinstance(exc, ImportError) else f"{type(exc).__name__}: {exc}"
        raise Refused(f"The module {module_name} of --app cannot be imported: {text}.") from exc
    result = getattr(module, attribute, None)
    if not isinstance(result, App):
        raise Refused(f"{name} is no App; make one with App([agent, …]).")
    return result
