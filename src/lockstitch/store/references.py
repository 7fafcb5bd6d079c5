"""References: a text that a user or a model types, and the thread or run that it means.

A thread is named by its key, its id, or a part of its id: the short id that tables show, the start of one of them, or
the end of the id. A run is named in the same way by its id, or by its thread: then its last run is meant. Exact names
come first, so a part of an id never hides a key.
"""

from collections.abc import Sequence
from typing import Final, NoReturn

from lockstitch.errors import NotFound, Refused
from lockstitch.model import Run, Thread
from lockstitch.model.ids import SHORT_ID
from lockstitch.store.store import Store

SHOWN: Final = 10
"""Maximum number of candidates that an error lists."""

_LONGEST_NAME: Final = 100
"""Maximum characters of a name in an error."""


async def find_thread(store: Store, name: str, *, complete: bool = False) -> Thread:
    """Return the thread that `name` means.

    Args:
        store: Open store.
        name: Key, id, short id or start of an id.
        complete: Accept no part of an id that is shorter than the short id.

    Raises:
        NotFound: If no thread matches.
        Refused: If several threads match.
    """
    try:
        return await store.thread(name)
    except NotFound:
        matches = [] if complete and len(name) < SHORT_ID else await store.match_threads(name, limit=SHOWN + 1)
        if not matches:
            raise
    return matches[0] if len(matches) == 1 else _ambiguous(name, threads=matches)


async def find_run(store: Store, name: str) -> Run:
    """Return the run that `name` means, or the last run of the thread that it means.

    Args:
        store: Open store.
        name: Id of a run, also in another system, a part of its id, or the name of a thread.

    Raises:
        NotFound: If no run matches, or if the thread has no run.
        Refused: If several threads or runs match.
    """
    match = await find(store, name)
    return match if isinstance(match, Run) else await last_run(store, match)


async def find(store: Store, name: str) -> Thread | Run:
    """Return the thread or the run that `name` means.

    Args:
        store: Open store.
        name: Name of a thread or a run.

    Raises:
        NotFound: If nothing matches.
        Refused: If several threads or runs match.
    """
    for exact in (store.thread, store.run):
        try:
            return await exact(name)
        except NotFound:
            pass
    threads = await store.match_threads(name, limit=SHOWN + 1)
    runs = await store.match_runs(name, limit=SHOWN + 1)
    if len(threads) + len(runs) > 1:
        _ambiguous(name, threads=threads, runs=runs)
    if not threads and not runs:
        raise NotFound(f"No thread or run {name} found in project {store.project}.")
    return threads[0] if threads else runs[0]


async def last_run(store: Store, thread: Thread) -> Run:
    """Return the last run of a thread, without runs of team members. Raises `NotFound` if it has none."""
    run = await store.execution.last_run(thread)
    if run is None:
        raise NotFound(f"Thread {thread.key or thread.id} has no run.")
    return run


def name_of(thread: Thread) -> str:
    """Return the key of a thread, else its title, else its goal, on one line.

    The key of an imported trace is mostly the id of the trace, so its title and its agent come first.
    """
    if thread.kind == "trace":
        return _one_line(thread.title or thread.agent or thread.key)
    return _one_line(thread.key or thread.title or thread.goal)


def _ambiguous(name: str, *, threads: Sequence[Thread] = (), runs: Sequence[Run] = ()) -> NoReturn:
    named = [f"thread {thread.id}{_in_brackets(name_of(thread))}" for thread in threads]
    named += [f"run {run.id}{_in_brackets(_one_line(run.agent))}" for run in runs]
    more = ", and more" if len(named) > SHOWN else ""
    raise Refused(f"{name} is ambiguous: {', '.join(named[:SHOWN])}{more}. Type more characters.")


def _in_brackets(name: str) -> str:
    return f" ({name[:_LONGEST_NAME]})" if name else ""


def _one_line(text: str | None) -> str:
    return " ".join((text or "").split())
