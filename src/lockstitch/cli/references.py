"""References of the command line: see `lockstitch.store.references`. `SyncStore` has no `await`."""

from lockstitch.errors import NotFound, Refused
from lockstitch.model import Run, Thread, short_id
from lockstitch.model.ids import SHORT_ID
from lockstitch.store import references
from lockstitch.sync import SyncStore


def find_thread(store: SyncStore, name: str, *, complete: bool = False) -> Thread:
    """Return the thread that `name` means. Raises `NotFound` or `Refused` if not exactly one thread matches."""
    return store.portal.call(references.find_thread(store.async_store, name, complete=complete))


def find_run(store: SyncStore, name: str) -> Run:
    """Return the run that `name` means, or the last run of the thread that it means. Raises like `find_thread`."""
    return store.portal.call(references.find_run(store.async_store, name))


def find(store: SyncStore, name: str) -> Thread | Run:
    """Return the thread or the run that `name` means. Raises like `find_thread`."""
    return store.portal.call(references.find(store.async_store, name))


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
