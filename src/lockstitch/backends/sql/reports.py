"""The read-only contract's questions as scripts."""

from datetime import datetime
from uuid import UUID

from lockstitch.backend import Sizes, Usage
from lockstitch.backends.sql.dialect import Dialect
from lockstitch.backends.sql.script import Script
from lockstitch.records import ColumnKind, Record, Run, Stitch, Thread, columns


def average_tokens(dialect: Dialect, project: str, since: datetime) -> Script[list[Usage]]:
    encode = dialect.encoders.get(ColumnKind.TIME)
    rows = yield dialect.statement("average_tokens", {"project": project, "since": encode(since) if encode else since})
    return [Usage(dialect.decode_id(thread_id), int(runs), float(average)) for thread_id, runs, average in rows]


def size(dialect: Dialect, thread_id: UUID | None, length: str) -> Script[Sizes]:
    """Bytes of content. `length` is the dialect's expression for the bytes of a column's text."""
    parts = {
        "head_bytes": _bytes(Thread, length),
        "run_bytes": _bytes(Run, length),
        "stitch_bytes": _bytes(Stitch, length),
    }
    if thread_id is None:
        rows = yield dialect.statement("size_of_store", {}, **parts)
    else:
        rows = yield dialect.statement("size_of_thread", {"thread_id": dialect.encode_id(thread_id)}, **parts)
    names = ("heads", "runs", "stitches", "blobs", "archives")
    return {name: int(value) for name, value in zip(names, rows[0], strict=True)}


def _bytes(kind: type[Record], length: str) -> str:
    texts = [name for name, column in columns(kind) if column in (ColumnKind.TEXT, ColumnKind.JSON)]
    return " + ".join(f"coalesce({length.format(name)}, 0)" for name in texts)
