"""References of the command line: a text that a user types, and the thread or run that it means.

A thread is named by its key, its id, or a part of its id: the short id that tables show, the start of one of them, or
the end of the id. A run is named in the same way by its id, or by its thread: then its last run is meant. Exact names
come first, so a part of an id never hides a key.
"""

from collections.abc import Sequence
from typing import Final, NoReturn

from lockstitch.cli.render.output import one_line
from lockstitch.cli.render.threads import name_of
from lockstitch.errors import NotFound, Refused
from lockstitch.model import Run, Thread, short_id
from lockstitch.model.ids import SHORT_ID
from lockstitch.sync import SyncStore

SHOWN: Final = 10
"""Maximum number of candidates that an error lists."""


def find_thread(store: SyncStore, name: str, *, complete: bool = False) -> Thread:
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
        return store.thread(name)
    except NotFound:
        matches = [] if complete and len(name) < SHORT_ID else store.match_threads(name, limit=SHOWN + 1)
        if not matches:
            raise
    return matches[0] if len(matches) == 1 else _ambiguous(name, threads=matches)


def find_run(store: SyncStore, name: str) -> Run:
    """Return the run that `name` means, or the last run of the thread that it means.

    Args:
        store: Open store.
        name: Id of a run, also in another system, a part of its id, or the name of a thread.

    Raises:
        NotFound: If no run matches, or if the thread has no run.
        Refused: If several threads or runs match.
    """
    match = find(store, name)
    return match if isinstance(match, Run) else last_run(store, match)


def find(store: SyncStore, name: str) -> Thread | Run:
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
            return exact(name)
        except NotFound:
            pass
    threads, runs = store.match_threads(name, limit=SHOWN + 1), store.match_runs(name, limit=SHOWN + 1)
    if len(threads) + len(runs) > 1:
        _ambiguous(name, threads=threads, runs=runs)
    if not threads and not runs:
        raise NotFound(f"No thread or run {name} found in project {store.project}.")
    return threads[0] if threads else runs[0]


def last_run(store: SyncStore, thread: Thread) -> Run:
    """Return the last run of a thread, without runs of team members. Raises `NotFound` if it has none."""
    run = store.portal.call(store.async_store.execution.last_run(thread))
    if run is None:
        raise NotFound(f"Thread {thread.key or thread.id} has no run.")
    return run


def new_or_known(store: SyncStore, name: str) -> str:
    """Return the name for a command that creates the thread if there is none.

    A new key that looks like a part of an id could continue the conversation of another user. So a part of an id is
    refused here, and the error has the whole id.
    """
    try:
        store.thread(name)
    except NotFound:
        matches = store.match_threads(name, limit=1) if len(name) == SHORT_ID else []
        if matches:
            raise Refused(
                f"{name} is the short id of thread {matches[0].id}. This command creates a thread for a new key. Pass "
                "the whole id, or choose another key."
            ) from None
    return name


def command_name(thread: Thread) -> str:
    """Return the name of a thread for a command that the user types: its key, or its short id."""
    return thread.key or short_id(thread.id)


def _ambiguous(name: str, *, threads: Sequence[Thread] = (), runs: Sequence[Run] = ()) -> NoReturn:
    named = [f"thread {thread.id}{f' ({name_of(thread)})' if name_of(thread) else ''}" for thread in threads]
    named += [f"run {run.id}{f' ({one_line(run.agent)})' if run.agent else ''}" for run in runs]
    more = ", and more" if len(named) > SHOWN else ""
    raise Refused(f"{name} is ambiguous: {', '.join(named[:SHOWN])}{more}. Type more characters.")
