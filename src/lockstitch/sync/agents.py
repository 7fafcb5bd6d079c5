"""Agents without await: every function is the twin of a method of `Agent`, or of the function of the same name."""

from collections.abc import Callable, Coroutine, Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from lockstitch import agents as runtime
from lockstitch.agents import Agent, App, Event, Result
from lockstitch.agents.agent import Prompt, RunOptions
from lockstitch.agents.evals.grader import Case, Grader
from lockstitch.agents.evals.results import Evaluation
from lockstitch.agents.evals.runner import Progress
from lockstitch.engine.events import Listener
from lockstitch.model import Json, Thread
from lockstitch.store.threads import ThreadRef
from lockstitch.sync.portal import PortalTask
from lockstitch.sync.store import SyncStore, open_store

if TYPE_CHECKING:
    from lockstitch.integrations.importer import Report

T = TypeVar("T")


def run(
    agent: Agent,
    prompt: Prompt,
    *,
    store: SyncStore | None = None,
    thread: ThreadRef | None = None,
    **call: Unpack[RunOptions],
) -> Result:
    if store is None:
        with open_store("sqlite:///:memory:") as memory:
            return run(agent, prompt, store=memory, thread=thread, **call)
    return _outcome(store, lambda: agent.run(prompt, store=store.async_store, thread=thread, **call))


def stream(
    agent: Agent, prompt: Prompt, *, store: SyncStore, thread: ThreadRef | None = None, **call: Unpack[RunOptions]
) -> Generator[Event, None, None]:
    events = agent.stream(prompt, store=store.async_store, thread=thread, **call)

    async def tell(listener: Listener) -> None:
        async for event in events:
            listener(event)

    work: PortalTask[Event, None] = store.portal.begin(tell)
    try:
        yield from work
        work.result()
    finally:
        work.end()


def start(
    agent: Agent, *, store: SyncStore, goal: str, key: str | None = None, kind: str = "goal", **fields: Any
) -> Thread:
    return store.portal.call(agent.start(store=store.async_store, goal=goal, key=key, kind=kind, **fields))


def resume(
    agent: Agent,
    thread: ThreadRef,
    *,
    store: SyncStore,
    deps: Any = None,
    listener: Listener | None = None,
    take_over: bool = False,
    detach: bool = False,
) -> Result | None:
    options: dict[str, Any] = {"deps": deps, "listener": listener, "take_over": take_over, "detach": detach}
    return _outcome(store, lambda: agent.resume(thread, store=store.async_store, **options))


def submit(
    agent: Agent, thread: ThreadRef, results: Sequence[Json], *, store: SyncStore, **options: Any
) -> Result | None:
    return _outcome(store, lambda: agent.submit(thread, results, store=store.async_store, **options))


def retry(
    agent: Agent,
    thread: ThreadRef,
    *,
    store: SyncStore,
    deps: Any = None,
    listener: Listener | None = None,
    detach: bool = False,
) -> Result | None:
    options: dict[str, Any] = {"deps": deps, "listener": listener, "detach": detach}
    return _outcome(store, lambda: agent.retry(thread, store=store.async_store, **options))


def close(agent: Agent | App, *, store: SyncStore) -> None:
    """Let go of what an agent, or all of an app, has opened on this store's loop."""
    store.portal.call(agent.close())


def approve(store: SyncStore, ref: ThreadRef, call_id: str, *, by: str | None = None) -> None:
    store.portal.call(runtime.approve(store.async_store, ref, call_id, by=by))


def deny(store: SyncStore, ref: ThreadRef, call_id: str, *, reason: str | None = None, by: str | None = None) -> None:
    store.portal.call(runtime.deny(store.async_store, ref, call_id, reason=reason, by=by))


def settle(
    store: SyncStore,
    ref: ThreadRef,
    call_id: str,
    *,
    done: str | None = None,
    redo: bool = False,
    unknown: bool = False,
    by: str | None = None,
) -> None:
    store.portal.call(runtime.settle(store.async_store, ref, call_id, done=done, redo=redo, unknown=unknown, by=by))


def submit_results(store: SyncStore, ref: ThreadRef, results: Sequence[Json]) -> None:
    store.portal.call(runtime.submit_results(store.async_store, ref, results))


def answer(store: SyncStore, ref: ThreadRef, text: str, *, call_id: str | None = None, by: str | None = None) -> None:
    store.portal.call(runtime.answer(store.async_store, ref, text, call_id=call_id, by=by))


def cancel(store: SyncStore, ref: ThreadRef) -> Thread:
    return _outcome(store, lambda: runtime.cancel(store.async_store, ref))


def evaluate(
    agent: Agent,
    dataset: str | Path | Sequence[Case],
    *,
    store: SyncStore,
    graders: str | Grader | Sequence[str | Grader],
    name: str | None = None,
    version: int | None = None,
    concurrency: int = 4,
    deps: Any = None,
    progress: Progress | None = None,
    dataset_name: str = "cases",
) -> Evaluation:
    options: dict[str, Any] = {"name": name, "version": version, "concurrency": concurrency, "deps": deps}
    options |= {"progress": progress, "dataset_name": dataset_name}
    return _outcome(
        store, lambda: runtime.evaluate(agent, dataset, store=store.async_store, graders=graders, **options)
    )


def _outcome(store: SyncStore, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """What came of it. Whoever is interrupted leaves when the thread was given back, not before."""
    under_way: PortalTask[None, T] = store.portal.begin(lambda _: work())
    try:
        for _ in under_way:
            pass
        return under_way.result()
    finally:
        under_way.end()


def import_traces(store: SyncStore, source: str, path: str, **options: Any) -> "Report":
    from lockstitch.integrations.importer import import_traces as awaited

    return store.portal.call(awaited(store.async_store, source, path, **options))
