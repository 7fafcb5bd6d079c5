"""Writing a thread's head, and the index that finds it by its key."""

from uuid import UUID

from lockstitch.backends.files import document, layout, rules, tables
from lockstitch.backends.files.transaction import Transaction
from lockstitch.errors import KeyTaken
from lockstitch.records import Json, Thread


def write_head(transaction: Transaction, before: Thread | None, after: Thread) -> None:
    """Write a head. KeyTaken when its key names another thread; Refused when it breaks a rule of the record."""
    rules.check_head(after)
    if before is not None and before.key is not None and (before.project, before.key) != (after.project, after.key):
        transaction.remove(layout.key(before.project, before.key))
    if after.key is not None and (before is None or (before.project, before.key) != (after.project, after.key)):
        holder = tables.thread_of_key(transaction, after.project, after.key)
        if holder not in (None, after.id):
            raise KeyTaken(
                f"The key {after.key!r} names another thread of project {after.project!r} already: {holder}.",
                thread_id=holder,
            )
        _index(transaction, after.project, after.key, after.id)
    transaction.put(layout.head(after.id), document.encode_record(after))


def is_ready(values: Json, now: str) -> bool:
    """Whether nobody holds a thread and its time has come, by its document; times as text sort as they do."""
    waits = values["status"] in ("pending", "waiting") and values["worker_id"] is None
    return waits and values["wake_at"] is not None and values["wake_at"] <= now


def index(transaction: Transaction) -> None:
    """Let every key name its thread again, and no thread that is not there."""
    heads = list(tables.all_in(transaction, Thread, layout.HEADS))
    keys = {layout.key(head.project, head.key).rpartition("/")[2] for head in heads if head.key is not None}
    for name in transaction.names(layout.KEYS):
        if name not in keys:
            transaction.remove(f"{layout.KEYS}/{name}")
    for head in heads:
        if head.key is not None:
            _index(transaction, head.project, head.key, head.id)


def _index(transaction: Transaction, project: str, key: str, thread_id: UUID) -> None:
    transaction.put(layout.key(project, key), {"project": project, "key": key, "thread_id": str(thread_id)})
