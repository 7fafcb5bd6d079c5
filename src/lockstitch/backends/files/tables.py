"""Read records from the folder by key or by owner."""

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar
from uuid import UUID

from lockstitch.backends.files import disk, format, log
from lockstitch.backends.files.disk import check, prefix_of
from lockstitch.backends.files.transaction import UNREADABLE, Facts, Folder
from lockstitch.model import TERMINAL_STATUSES, Archive, Blob, Delivery, File, Json, Record, Run, Stitch, Thread, as_id

R = TypeVar("R", bound=Record)


def load(folder: Folder, kind: type[R], path: str) -> R | None:
    """Return the record of a document, or None if there is no such file."""
    values = folder.document(path)
    if values is None:
        return None
    try:
        return format.decode_record(kind, values, **_beside(folder, kind, values))
    except UNREADABLE as exc:
        folder.damaged(path, f"it is not a {kind.__name__}", exc)


def all_in(folder: Folder, kind: type[R], directory: str, prefix: str = "") -> Iterator[R]:
    """Yield the records of a directory's documents, in the order of their file names."""
    for name in folder.names(directory):
        if name.startswith(prefix) and name.endswith(".json"):
            record = load(folder, kind, f"{directory}/{name}")
            if record is not None:
                yield record


def records(folder: Folder, kind: type[R], key: Sequence[Any] = ()) -> Iterator[R]:
    """Yield the records of a class.

    With `key`, yield at least those with keys that start with these parts.
    """
    return all_in(folder, kind, disk.record_directory(kind), prefix_of(key))


def head(folder: Folder, thread_id: UUID) -> Thread | None:
    """Return the head of a thread, or None."""
    return load(folder, Thread, disk.head(thread_id))


def thread_of_key(folder: Folder, project: str, key: str) -> UUID | None:
    """Return the id of the thread with this key, or None."""
    path = disk.key(project, key)
    values = folder.document(path)
    try:
        return None if values is None else UUID(values["thread_id"])
    except UNREADABLE as exc:
        folder.damaged(path, "it names no thread", exc)


def run(folder: Folder, thread_id: UUID, run_id: UUID) -> Run | None:
    """Return a run of a thread, or None."""
    return load(folder, Run, disk.run(thread_id, run_id))


def runs(folder: Folder, thread_id: UUID) -> list[Run]:
    """Return all runs of a thread."""
    return list(all_in(folder, Run, disk.runs(thread_id)))


def facts_of_runs(folder: Folder, thread_id: UUID) -> dict[UUID, Facts]:
    """Return facts about a thread's runs that are needed often. Only runs that have not ended are read again."""
    facts: dict[UUID, Facts] = {}
    for run_id in ids_in(folder, disk.runs(thread_id)):
        known = folder.memory.runs.get(run_id)
        if known is None or folder.is_pending(disk.run(thread_id, run_id)):
            result = run(folder, thread_id, run_id)
            if result is None:
                continue
            top = result.parent_run_id is None
            known = Facts(result.sequence, result.turn if top else None, result.status in TERMINAL_STATUSES)
            if known.ended and not folder.is_pending(disk.run(thread_id, run_id)):
                folder.memory.runs.keep(run_id, known)
        facts[run_id] = known
    return facts


def thread_of_run(folder: Folder, run_id: UUID) -> UUID | None:
    """Return the thread of a run, or None.

    It is found by checking each thread. The result never changes, so it is cached.
    """
    known = folder.memory.threads_of_runs.get(run_id)
    if known is not None and folder.exists(disk.run(known, run_id)):
        return known
    for thread_id in ids_in(folder, disk.RUNS):
        if folder.exists(disk.run(thread_id, run_id)):
            return folder.memory.threads_of_runs.keep(run_id, thread_id)
    return None


def ids_in(folder: Folder, directory: str) -> list[UUID]:
    """Return the ids that are names of documents or directories in this directory."""
    names = (name.removesuffix(".json") for name in folder.names(directory))
    return [match_id for name in names if (match_id := as_id(name))]


def stitches_of_run(folder: Folder, run: Run) -> list[Stitch]:
    """Return the stitches in the log file of a run."""
    return log.stitches(folder, disk.log(run.thread_id, run.id))


def files(folder: Folder, thread_id: UUID) -> list[File]:
    """Return the files of a thread."""
    return [file for file in records(folder, File, (thread_id,)) if file.thread_id == thread_id]


def archive_files(folder: Folder, thread_id: UUID, *, except_from: int) -> list[str]:
    """Return the paths of a thread's archive contents, except the one that starts at a position."""
    directory = disk.record_directory(Archive)
    names = [name for name in folder.names(directory) if name.startswith(prefix_of((thread_id,)))]
    documents = (folder.document(f"{directory}/{name}") for name in names)
    return [values["file"] for values in documents if values and values["first_position"] != except_from]


def deliveries(folder: Folder, thread_id: UUID) -> list[Delivery]:
    """Return the inbox of a thread."""
    return list(all_in(folder, Delivery, disk.inbox(thread_id)))


def delivery(folder: Folder, thread_id: UUID, delivery_id: UUID) -> Delivery | None:
    """Return a delivery of a thread's inbox. Its file name starts with its id."""
    return next(all_in(folder, Delivery, disk.inbox(thread_id), f"{delivery_id}."), None)


def same_delivery(folder: Folder, delivery: Delivery) -> Delivery | None:
    """Return the stored delivery of the same sender and call, or None. Its file name ends with a digest of both."""
    ending = f".{disk.sender(delivery.sender, delivery.call_id)}.json"
    directory = disk.inbox(delivery.thread_id)
    for name in folder.names(directory):
        if name.endswith(ending):
            return load(folder, Delivery, f"{directory}/{name}")
    return None


def _beside(folder: Folder, kind: type[Record], values: Json) -> Json:
    if kind is Blob:
        path = disk.blob(values["sha256"])
    elif kind is Archive:
        path = check(values["file"])
    else:
        return {}
    if not folder.with_contents:
        return {"content": b""}
    content = folder.content(path)
    if content is None:
        folder.damaged(path, "it is missing")
    return {"content": content}
