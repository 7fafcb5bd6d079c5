"""`App` and `Plugin`: the agents of a process. `load_app` imports an app from `module:name` or a file."""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, TypeVar, runtime_checkable

from lockstitch.agents.agent import Agent
from lockstitch.engine.config import RunConfig, RunStart
from lockstitch.engine.events import Listener
from lockstitch.engine.result import Result
from lockstitch.engine.webhooks import Webhook, WebhookDispatcher
from lockstitch.errors import LockstitchError, NotFound, Refused
from lockstitch.model import Limit, Run, Thread
from lockstitch.store import Store
from lockstitch.store.threads import ThreadRef


class Plugin(Protocol):
    """A plugin of an app: agents, with the tables, routes, pages and commands that belong to them."""

    @property
    def name(self) -> str:
        """Name of the plugin, unique within the app. A server finds its templates and files by this name."""
        ...

    @property
    def agents(self) -> Iterable[Agent]:
        """Agents and teams that become agents of the app."""
        ...

    async def setup(self, store: Store) -> None:
        """Prepare a store for the plugin, for example create its tables.

        Servers and workers call it at each start. It must be fast if nothing is missing, and safe if two processes call
        it at once.

        Args:
            store: The store.
        """
        ...


@runtime_checkable
class Closeable(Protocol):
    """A plugin with resources to close besides its agents."""

    async def close(self) -> None: ...


@runtime_checkable
class BindablePlugin(Protocol):
    """A plugin that executes its agents itself, so that it needs agents of the app."""

    def bind(self, app: "App") -> Plugin:
        """Return a copy of the plugin with agents that belong to the app, see `Agent.bind`."""
        ...


_A = TypeVar("_A")


class App:
    """The agents, plugins, limits and webhooks of servers and workers.

    The app does not change the agents that it gets. Its `agents` are bound copies (`Agent.bind`). A bound agent
    executes children of all agents of the app and calls the app's webhooks. An agent outside of an app executes only
    its own children.

    Example:
        ```python
        app = App([helper, office], limits={"helper": 10}, hooks=["https://example.com/hook"])
        ```

    Args:
        agents: Agents and teams, with different names.
        limits: Maximum number of running threads by agent name, or by provider as `provider:anthropic`. A limit covers
            all processes that use the store.
        hooks: Webhooks to call when a thread fails or starts to wait for a person: URLs, or functions that get the
            event as JSON. A mapping gives them names.
        plugins: Plugins, with different names. Their agents become agents of this app. The app has a copy of a plugin
            with a method `bind`; see `plugin`.

    Raises:
        Refused: If two agents or two plugins have the same name, or a limit names an unknown agent.
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
        for plugin in plugins:
            if plugin.name in self.plugins:
                raise Refused(f"Two plugins of this app have the name {plugin.name}.")
            self.plugins[plugin.name] = plugin.bind(self) if isinstance(plugin, BindablePlugin) else plugin
        self.agents: dict[str, Agent] = {}
        for agent in (*agents, *(agent for plugin in self.plugins.values() for agent in plugin.agents)):
            if agent.name in self.agents:
                raise Refused(f"Two agents of this app have the name {agent.name}.")
            self.agents[agent.name] = agent.bind(self)
        self._limits = dict(limits or {})
        self._webhooks = WebhookDispatcher(hooks)
        self._limit_records = [self._limit(name, at_most) for name, at_most in self._limits.items()]

    def agent(self, name: str | None) -> Agent:
        """Return the agent with this name.

        Args:
            name: Name of the agent. None: a thread without an agent.

        Returns:
            The bound agent.

        Raises:
            NotFound: If `name` is None, or the app has no such agent.
        """
        known = ", ".join(sorted(self.agents)) or "none"
        if name is None:
            raise NotFound(f"This thread has no agent. Choose one of: {known}.")
        if name not in self.agents:
            raise NotFound(f"Agent {name} not found in this app. Agents: {known}.")
        return self.agents[name]

    @property
    def agent_names(self) -> list[str]:
        """The names of the agents, sorted."""
        return sorted(self.agents)

    @property
    def webhook_names(self) -> Sequence[str]:
        """The names of the webhooks."""
        return self._webhooks.names

    async def run_config(
        self, start: RunStart, run: Run | None, resources: AsyncExitStack, deps: Any = None
    ) -> tuple[RunConfig, str | None]:
        """Return the config of a run by the agent of its thread.

        Args:
            start: The run that starts or continues.
            run: The open run, or None for a new run.
            resources: Exits the context managers of deps factories when the execution ends.
            deps: Object that tools and instructions receive. None: the `deps` of the agent.

        Returns:
            The config, and the instructions of a new run.

        Raises:
            NotFound: If the app does not have the agent.
        """
        return await self.agent(start.thread.agent).run_config(start, run, resources, deps, self.agent_names)

    def on_run_end(self, store: Store, head: Thread, run: Run) -> None:
        """Send the trace of a run that has ended, if its agent exports traces.

        Args:
            store: Store of the thread.
            head: The thread.
            run: The run with its last state.
        """
        self.agent(head.agent).on_run_end(store, head, run)

    def plugin(self, kind: type[_A]) -> _A:
        """Return the plugin of this class. Its agents call the webhooks of this app, if the plugin has `bind`.

        Args:
            kind: Class of the plugin.

        Returns:
            The plugin.

        Raises:
            NotFound: If the app has no plugin of this class.
        """
        for plugin in self.plugins.values():
            if isinstance(plugin, kind):
                return plugin
        known = ", ".join(sorted(self.plugins)) or "none"
        raise NotFound(f"Plugin {kind.__name__} not found in this app. Plugins: {known}.")

    async def setup(self, store: Store) -> None:
        """Prepare a store for all plugins. Safe if two processes call it at once.

        Args:
            store: The store.
        """
        for plugin in self.plugins.values():
            await plugin.setup(store)

    async def resume(
        self,
        ref: ThreadRef,
        *,
        store: Store,
        deps: Any = None,
        listener: Listener | None = None,
        take_over: bool = False,
        detach: bool = False,
    ) -> Result | None:
        """Continue a thread with its agent, see `Agent.resume`.

        Args:
            ref: Thread, its id or its key.
            store: Store of the thread.
            deps: Object that tools and instructions receive. None: the `deps` of the agent.
            listener: Function that receives each event of the run.
            take_over: Claim the thread even if another worker holds it.
            detach: Make the thread ready for a worker and return at once.

        Returns:
            The result of the run, or None if the thread has no run to continue. The status is `waiting` if the run
                still needs a reply.

        Raises:
            NotFound: If the thread does not exist, or the app does not have its agent.
            ThreadBusy: If another worker holds the thread.
        """
        head = await store.thread(ref)
        return await self.agent(head.agent).resume(
            head, store=store, deps=deps, listener=listener, take_over=take_over, detach=detach
        )

    async def register(self, store: Store) -> None:
        """Prepare a store for all plugins and store the limits of this app.

        A limit for a provider covers the agents of other apps too.

        Args:
            store: The store.
        """
        await self.setup(store)
        for limit in self._limit_records:
            await store.set_limit(limit)

    async def deliver_webhooks(self, store: Store) -> None:
        """Call the webhooks of all events that are due.

        Args:
            store: Store of the events.
        """
        await self._webhooks.deliver_due(store)

    def deliver_webhooks_soon(self, store: Store) -> None:
        """Call the webhooks of all events that are due, in a background task.

        Args:
            store: Store of the events.
        """
        self._webhooks.deliver_soon(store)

    def _limit(self, name: str, at_most: int) -> Limit:
        kind, _, provider = name.partition(":")
        if kind == "provider" and provider:
            covered = [agent.name for agent in self.agents.values() if agent.provider == provider]
            return Limit(name=name, at_most=at_most, agents=covered)
        if name not in self.agents:
            known = ", ".join(sorted(self.agents)) or "none"
            raise Refused(
                f"Limit {name} does not name an agent of this app. Agents: {known}. Use provider:NAME for a provider."
            )
        return Limit(name=f"agent:{name}", at_most=at_most, agents=[name])

    async def close(self) -> None:
        """Close the webhooks, the plugins and the agents."""
        await self._webhooks.close()
        for plugin in self.plugins.values():
            if isinstance(plugin, Closeable):
                await plugin.close()
        for agent in self.agents.values():
            await agent.close()


def load_app(name: str) -> App:
    """Import the app `module:name` or `path/file.py:name`. Raises `Refused` if it cannot be imported or is no app."""
    module_name, _, attribute = name.rpartition(":")
    if not module_name or not attribute:
        raise Refused(
            f"{name!r} is not an app reference. Use module:name or file:name, for example shop:app or ./shop.py:app."
        )
    is_file = module_name.endswith(".py") or "/" in module_name or os.sep in module_name
    folder = Path(module_name).resolve().parent if is_file else Path.cwd()
    if "" not in sys.path and str(folder) not in sys.path:
        # An installed command does not import from the current folder, where users have their app.
        sys.path.insert(0, str(folder))
    try:
        module = _module_at(Path(module_name)) if is_file else import_module(module_name)
    except LockstitchError:
        raise
    except Exception as exc:  # user code can raise any exception
        text = f"{exc}" if isinstance(exc, ImportError) else f"{type(exc).__name__}: {exc}"
        kind = "file" if is_file else "module"
        raise Refused(f"The {kind} {module_name} of --app cannot be imported: {text.rstrip('.')}.") from exc
    result = getattr(module, attribute, None)
    if not isinstance(result, App):
        raise Refused(f"{name} is not an App. Create one with App([agent, …]).")
    return result


def _module_at(path: Path) -> ModuleType:
    """Import a file. Its folder is on `sys.path`, so that it can import its neighbours, and they can import it."""
    if not path.is_file():
        raise Refused(f"The file {path} of --app does not exist.")
    loaded = sys.modules.get(path.stem)
    if loaded is not None and loaded.__file__ is not None and Path(loaded.__file__).resolve() == path.resolve():
        return loaded
    # A file must not replace a module of the same name, such as `json`.
    name = path.stem if loaded is None else f"{path.stem}_app"
    spec = spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None:
        raise Refused(f"The file {path} of --app is not a Python file.")
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module
