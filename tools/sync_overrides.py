"""Bodies for the files that tools/generate_sync.py writes. Nothing imports this module.

Each function replaces the body of the generated function of the same name. Signature and docstring come from the async
source. Functions that have no source, such as `close`, are copied. Bodies may use the names that this module imports.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from copy import copy
from typing import Any, Never

from lockstitch.agents import Agent, App, Event, Result
from lockstitch.agents.agent import Prompt
from lockstitch.engine.config import OnBusy
from lockstitch.engine.events import Listener
from lockstitch.engine.executor import OnWaiting
from lockstitch.model import Clock, Json, Message
from lockstitch.store import CopyReport
from lockstitch.store import open_store as open_async_store
from lockstitch.store.maintenance.copy import Progress
from lockstitch.store.portal import CLOSE_TIMEOUT, PortalTask
from lockstitch.store.store import open_lens
from lockstitch.store.threads import ThreadRef
from lockstitch.sync.core import SyncStoreCore
from lockstitch.sync.store import SyncStore


class SyncStoreCoreOverrides(SyncStoreCore):
    def close(self) -> None:
        self._close(CLOSE_TIMEOUT)


class SyncStoreOverrides(SyncStore):
    def in_project(self, project: str) -> SyncStore:
        view = copy(self)
        view._store = self._store.in_project(project)
        return view

    def in_namespace(self, namespace: str) -> SyncStore:
        view = copy(self)
        view._store = self._store.in_namespace(namespace)
        return view

    @contextmanager
    def lens(self, name: str) -> Generator[Any, None, None]:
        opened = open_lens(self._store, name, blocking=True)
        connection = self._portal.call(opened.__aenter__())
        try:
            yield connection
        finally:
            self._portal.call(opened.__aexit__(None, None, None))

    def copy_to(
        self, target: SyncStore, *, tree: ThreadRef | None = None, progress: Progress | None = None
    ) -> CopyReport:
        return self._portal.call(self._store.copy_to(target._on_own_loop(), tree=tree, progress=progress))


def open_store(
    url: str = "sqlite:///lockstitch.db",
    *,
    project: str = "default",
    clock: Clock | None = None,
    migrate: bool = True,
    create: bool = True,
) -> SyncStore:
    return SyncStore(lambda: open_async_store(url, project=project, clock=clock, migrate=migrate, create=create))


def run(
    agent: Agent,
    prompt: Prompt,
    *,
    store: SyncStore | None = None,
    thread: ThreadRef | None = None,
    user_id: str | None = None,
    deps: Any = None,
    extras: Json | None = None,
    metadata: Json | None = None,
    tags: Sequence[str] = (),
    kind: str = "chat",
    on_busy: OnBusy | None = None,
    on_waiting: OnWaiting = "refuse",
    take_over: bool = False,
    detach: bool = False,
    first: bool = False,
    message_id: str | None = None,
    **unknown: Never,
) -> Result:
    options: dict[str, Any] = {
        "user_id": user_id,
        "deps": deps,
        "extras": extras,
        "metadata": metadata,
        "tags": tags,
        "kind": kind,
        "on_busy": on_busy,
        "on_waiting": on_waiting,
        "take_over": take_over,
        "detach": detach,
        "first": first,
        "message_id": message_id,
        **unknown,
    }
    if store is None:
        with open_store("sqlite:///:memory:") as memory:
            return memory.portal.run(lambda: agent.run(prompt, store=memory.async_store, thread=thread, **options))
    return store.portal.run(lambda: agent.run(prompt, store=store.async_store, thread=thread, **options))


def stream(
    agent: Agent,
    prompt: Prompt,
    *,
    store: SyncStore,
    thread: ThreadRef | None = None,
    user_id: str | None = None,
    deps: Any = None,
    extras: Json | None = None,
    metadata: Json | None = None,
    tags: Sequence[str] = (),
    kind: str = "chat",
    on_busy: OnBusy | None = None,
    on_waiting: OnWaiting = "refuse",
    take_over: bool = False,
    detach: bool = False,
    first: bool = False,
    message_id: str | None = None,
    **unknown: Never,
) -> Generator[Event, None, None]:
    options: dict[str, Any] = {
        "user_id": user_id,
        "deps": deps,
        "extras": extras,
        "metadata": metadata,
        "tags": tags,
        "kind": kind,
        "on_busy": on_busy,
        "on_waiting": on_waiting,
        "take_over": take_over,
        "detach": detach,
        "first": first,
        "message_id": message_id,
        **unknown,
    }
    events = agent.stream(prompt, store=store.async_store, thread=thread, **options)

    async def send(listener: Listener) -> None:
        async for event in events:
            listener(event)

    task: PortalTask[Event, None] = store.portal.begin(send)
    try:
        yield from task
        task.result()
    finally:
        task.end()


def close(agent: Agent | App, *, store: SyncStore) -> None:
    """Close the connections that an agent, or all agents of an app, opened on the loop of this store.

    Args:
        agent: Agent or app.
        store: Store with the loop.
    """
    store.portal.call(agent.close())


def messages(result: Result, *, store: SyncStore) -> list[Message]:
    """Return all messages of the run of a result, also those that were compacted since.

    Args:
        result: Result of the run. Its method `messages` is for the async API.
        store: Store of the run.

    Raises:
        NotFound: If the run was deleted.
    """
    return store.messages(result.run_id)
