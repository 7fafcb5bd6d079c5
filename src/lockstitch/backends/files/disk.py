"""Paths and file names, fsync and atomic replace, and translation of OS errors.

A key of lower-case letters, digits and `_.-` is used as the file name. Any other key becomes a readable name with a
hash, so that neither `../..`, a slash, a very long text nor two keys that differ only in case can address another file.

    store.json                                   format and version of this folder
    agent_runs/{thread}/{run}.jsonl              the log, one stitch per line: the source of truth
    agent_runs/{thread}/thread.jsonl             stitches that belong to no run
    agent_runs/{thread}/{run}.jsonl.gz           an archived log
    heads/{thread}.json  runs/{thread}/{run}.json
    inbox/{thread}/{delivery}.{sender and call}.json
    workers/{worker}.json
    keys/{project and key}.json                  the thread that has the key
    blobs/{sha256}  blobs/{sha256}.json          content and its record
    shelves/{table}/{key}.json                   all other side records
    counters.json                                the last assigned log_id
    agent_config/{thread}.json                   projections for people, rewritten when a run pauses or ends
    conversation_history/{thread}/{turn}.json
    journal.jsonl  journal.applied  staging/     commits that are being applied to the files above

Paths come from this layout, and from files that another program may have written: the journal and the documents of
archives. `check` compares the text of a path with the layout. `locate` also follows the directories on disk, so that a
symbolic link cannot redirect a write to another place.
"""

import errno
import os
import re
import shutil
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Never
from uuid import UUID

from lockstitch.errors import LockstitchError, StoreDamaged, StoreError, StoreFull, StoreReadOnly, StoreUnreachable
from lockstitch.model import Blob, Delivery, Record, Thread, Worker, codec

LONGEST = 120
"""Maximum number of characters of a key in a file name.

File systems allow 255 bytes, and a hash and an extension follow.
"""

_PLAIN = re.compile(r"[a-z0-9_][a-z0-9_.-]*|")
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]")


def name_of(key: Sequence[Any]) -> str:
    """Return the file name of a key, without extension."""
    parts = [str(part) for part in key]
    readable = ",".join(_UNSAFE.sub("_", part) for part in parts)
    if readable and all(map(_PLAIN.fullmatch, parts)) and len(readable) <= LONGEST:
        return readable
    if readable.startswith("."):
        # Hidden names are reserved for temporary files.
        readable = f"_{readable}"
    return f"{readable[:LONGEST]}~{codec.digest(parts)[:32]}"


def prefix_of(key: Sequence[Any]) -> str:
    """Return the common prefix of the file names of keys that start with these parts. Empty if there is none."""
    parts = [str(part) for part in key]
    prefix = "".join(f"{part}," for part in parts)
    return prefix if all(map(_PLAIN.fullmatch, parts)) and len(prefix) <= LONGEST else ""


STORE: Final = "store.json"
LOCK: Final = ".lock"
JOURNAL: Final = "journal.jsonl"
APPLIED: Final = "journal.applied"
STAGING: Final = "staging"
COUNTERS: Final = "counters.json"

HEADS: Final = "heads"
RUNS: Final = "runs"
LOGS: Final = "agent_runs"
INBOX: Final = "inbox"
WORKERS: Final = "workers"
BLOBS: Final = "blobs"
KEYS: Final = "keys"
SIDE_RECORDS: Final = "shelves"
CONFIGS: Final = "agent_config"
HISTORIES: Final = "conversation_history"

OUTSIDE_RUNS: Final = "thread"
"""Name of the log of stitches that belong to no run. It cannot be the id of a run."""


def head(thread_id: UUID) -> str:
    return f"{HEADS}/{thread_id}.json"


def runs(thread_id: UUID) -> str:
    return f"{RUNS}/{thread_id}"


def run(thread_id: UUID, run_id: UUID) -> str:
    return f"{RUNS}/{thread_id}/{run_id}.json"


def logs(thread_id: UUID) -> str:
    return f"{LOGS}/{thread_id}"


def log(thread_id: UUID, run_id: UUID | None) -> str:
    return f"{LOGS}/{thread_id}/{run_id or OUTSIDE_RUNS}.jsonl"


def inbox(thread_id: UUID) -> str:
    return f"{INBOX}/{thread_id}"


def sender(name: str, call_id: str) -> str:
    """Return the part of a delivery's file name that identifies its sender and call."""
    return codec.digest([name, call_id])[:32]


def delivery(delivery: Delivery) -> str:
    return f"{INBOX}/{delivery.thread_id}/{delivery.id}.{sender(delivery.sender, delivery.call_id)}.json"


def key(project: str, key: str) -> str:
    return f"{KEYS}/{name_of((project, key))}.json"


def blob(sha256: str) -> str:
    return f"{BLOBS}/{name_of((sha256,))}"


def archive(thread_id: UUID, name: str) -> str:
    return f"{LOGS}/{thread_id}/{name}.jsonl.gz"


def record_directory(kind: type[Record]) -> str:
    """Return the directory of a record class with one document per record, named after its key."""
    if kind is Worker:
        return WORKERS
    if kind is Thread:
        return HEADS
    return BLOBS if kind is Blob else f"{SIDE_RECORDS}/{kind.table}"


def record(kind: type[Record], key: Sequence[Any]) -> str:
    """Return the path of such a record."""
    return f"{record_directory(kind)}/{name_of(key)}.json"


def config(thread_id: UUID) -> str:
    return f"{CONFIGS}/{thread_id}.json"


def histories(thread_id: UUID) -> str:
    return f"{HISTORIES}/{thread_id}"


def history(thread_id: UUID, turn: int) -> str:
    return f"{HISTORIES}/{thread_id}/{turn:03d}.json"


# A commit waits for the data and the size, not the times. Not every system has fdatasync.
sync_data = getattr(os, "fdatasync", os.fsync)

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


@contextmanager
def opened(path: Path, flags: int) -> Generator[int]:
    """Open a file and yield its descriptor. Missing folders of a new file are created.

    A file that is opened for writing must not be a symbolic link: the link could lead out of the store.
    """
    if flags & _WRITING:
        flags |= os.O_NOFOLLOW
    try:
        file = os.open(path, flags | os.O_CLOEXEC, 0o666)
    except FileNotFoundError:
        if not flags & os.O_CREAT:
            raise
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, flags | os.O_CLOEXEC, 0o666)
    try:
        yield file
    finally:
        os.close(file)


def write(file: int, content: bytes, offset: int) -> None:
    """Write all of `content`. The system may accept only parts of it at a time."""
    remaining = memoryview(content)
    while remaining:
        written = os.pwrite(file, remaining, offset)
        remaining, offset = remaining[written:], offset + written


def temporary(path: Path) -> Path:
    """Return the path of the temporary file that will replace `path`.

    The name is always the same, so a leftover is overwritten.
    """
    return path.with_name(f".{path.name}.tmp")


def replace(path: Path, content: bytes, *, durably: bool = False) -> None:
    """Replace a file atomically: a reader gets the old or the new content."""
    beside = temporary(path)
    with opened(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as file:
        write(file, content, 0)
        if durably:
            os.fsync(file)
    beside.replace(path)
    if durably:
        sync(path.parent)


def copy(source: Path, target: Path) -> None:
    """Write the content of one file into another. Neither may be a symbolic link."""
    with (
        opened(source, os.O_RDONLY | os.O_NOFOLLOW) as reading,
        opened(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as writing,
        os.fdopen(reading, "rb", closefd=False) as content,
        os.fdopen(writing, "wb", closefd=False) as file,
    ):
        shutil.copyfileobj(content, file, 1 << 20)


def sync(path: Path) -> None:
    """Wait until a file or directory is on the disk. Ignore a missing one."""
    with suppress(FileNotFoundError, NotADirectoryError), opened(path, os.O_RDONLY) as file:
        os.fsync(file)


_FOLDERS: Final = frozenset(
    {
        HEADS,
        RUNS,
        LOGS,
        INBOX,
        WORKERS,
        BLOBS,
        KEYS,
        CONFIGS,
        HISTORIES,
        SIDE_RECORDS,
        STAGING,
    }
)
_DEEPEST: Final = 3
"""Number of parts of the longest path of the layout: folder, thread, file."""


def check(path: Any) -> str:
    """Return `path` if the layout can contain it. Raises StoreDamaged for every other value."""
    if not isinstance(path, str) or "\0" in path or "\\" in path:
        refuse(path)
    folder, *names = path.split("/")
    if path == COUNTERS:
        return path
    if folder not in _FOLDERS or not 1 <= len(names) < _DEEPEST:
        refuse(path)
    if any(not name or name.startswith(".") for name in names):
        refuse(path)
    return path


def locate(root: Path, path: str) -> Path:
    """Return the place of a path on disk. Raises StoreDamaged if a symbolic link in the path leaves the store."""
    place = os.fspath(root)
    for name in check(path).split("/"):
        place = f"{place}/{name}"
        if os.path.islink(place) and not Path(place).resolve().is_relative_to(root.resolve()):
            raise StoreDamaged(
                f"{place} is a symbolic link that leads out of the store. Nothing was written there. "
                "Replace the link by its target."
            )
    return Path(place)


def refuse(path: Any) -> Never:
    """Raise the error for a path that the layout cannot contain."""
    shown = repr(path)
    raise StoreDamaged(
        f"A file of this store names the path {shown[:200]}, which is not a path of a store. Nothing was written or "
        "deleted there. Restore a backup; do not open a store that you do not trust."
    )


_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_FORBIDDEN = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_MISSING = frozenset({errno.ENOENT, errno.ENOTDIR})
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOLCK})


def translate(exc: OSError, root: Path) -> LockstitchError:
    """Return the error as a `LockstitchError`. Its message states the remedy.

    Nothing was written, unless the commit had already happened.
    """
    if isinstance(exc, LockstitchError):
        return exc
    what = exc.strerror or str(exc)
    where = exc.filename or root
    if exc.errno in _FULL:
        return StoreFull(f"No space is left for {root} ({what}). Nothing was written. Free disk space and try again.")
    if exc.errno in _FORBIDDEN:
        return StoreReadOnly(f"{where} is not accessible ({what}). Check the permissions of {root} and its content.")
    if exc.errno in _MISSING:
        return StoreUnreachable(
            f"No store found in {root} ({where}: {what}). Check the URL or run `lockstitch migrate`."
        )
    if exc.errno in _EXHAUSTED:
        return StoreUnreachable(f"The system cannot open {where} now ({what}). Close other files and try again.")
    if exc.errno == errno.ELOOP:
        return StoreDamaged(
            f"{where} is a symbolic link where a store has a file. Nothing was written there. "
            "Replace the link by its target."
        )
    if exc.errno == errno.EIO:
        return StoreDamaged(
            f"The disk under {root} failed ({where}: {what}). Commits that were not acknowledged were not written. "
            "Check the disk, and restore a backup if files are lost."
        )
    return StoreError(f"The operation on {where} failed: {what}.")
