"""`unpack`: the stitches of archives, also of those in lakes. `stitches` and `synced_lake` read a lake."""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from lockstitch.errors import Refused, StoreError, missing_extra
from lockstitch.model import Archive, ColumnKind, Stitch, codec, columns
from lockstitch.model import archives as packed
from lockstitch.model.archives import damaged

if TYPE_CHECKING:
    from lockstitch.lake.target import Lake


class Span(NamedTuple):
    """Consecutive positions of a thread."""

    thread_id: UUID
    first: int
    last: int


def unpack(archives: Sequence[Archive]) -> list[Stitch]:
    """Return the stitches of archives, in the order of the archives. Blocks while it reads lakes.

    Raises `StoreDamaged` if an archive does not have the stitches that were archived, and `StoreError` if a lake cannot
    be read.
    """
    stored: dict[tuple[UUID, int], list[Stitch]] = {}
    for target in {archive.lake for archive in archives if archive.lake}:
        spans = [span_of(archive) for archive in archives if archive.lake == target]
        for span, rows in zip(spans, stitches(target, spans), strict=True):
            stored[span.thread_id, span.first] = rows
    result: list[Stitch] = []
    for archive in archives:
        if archive.lake is None:
            result += packed.unpack(archive)
            continue
        rows = stored[archive.thread_id, archive.first_position]
        if digest(rows) != archive.sha256:
            if not rows and open_lake(archive.lake).open(Stitch.table) is None:
                raise StoreError(
                    f"The lake {archive.lake} was not found. It has stitches of thread {archive.thread_id}. If you "
                    "moved it, run `lockstitch archive --to` with the new place."
                )
            raise damaged(archive)
        result += rows
    return result


def span_of(archive: Archive) -> Span:
    """Return the positions of an archive."""
    return Span(archive.thread_id, archive.first_position, archive.last_position)


def digest(stitches: Sequence[Stitch]) -> str:
    """Return the SHA-256 of stitches in a lake, in hex.

    Fields without a value do not count, so that it does not change when a record gets a new field.
    """
    defaults = _defaults()
    result = sha256()
    for stitch in stitches:
        values = {name: value for name, value in stitch.as_json().items() if value != defaults.get(name)}
        result.update(codec.dumps(dict(sorted(values.items()))) + b"\n")
    return result.hexdigest()


class SyncedLake(NamedTuple):
    """A lake with a complete sync."""

    target: str
    """The absolute folder, or the URL."""
    watermark: int
    """The `log_id` up to which it has all stitches."""


def synced_lake(target: str) -> SyncedLake:
    """Return the state of a lake. Raises `Refused` if the target has no complete sync."""
    lake = open_lake(target)
    if lake.last_sync() is None:
        raise Refused(f"{target} is not a lake, or its first sync is not complete. Run: lockstitch lake sync {target}")
    return SyncedLake(lake.target, lake.watermark(Stitch.table))


def stitches(target: str, spans: Sequence[Span]) -> list[list[Stitch]]:
    """Return the stitches of each span, ordered by position, as far as a lake has them."""
    # pyarrow has no types.
    field: Any = import_module("pyarrow.compute").field
    result: list[list[Stitch]] = [[] for _ in spans]
    if not spans:
        return result
    ids = sorted({str(span.thread_id) for span in spans})
    # Files and parts of files are skipped by the bounds of their columns.
    condition = (
        (field("thread_id") >= ids[0])
        & (field("thread_id") <= ids[-1])
        & (field("position") >= min(span.first for span in spans))
        & (field("position") <= max(span.last for span in spans))
    )
    if len(ids) > 2:
        condition = condition & field("thread_id").isin(ids)
    rows = open_lake(target).select(Stitch.table, condition, [name for name, _ in columns(Stitch)])
    if rows is None:
        return result
    logs: dict[UUID, dict[int, Stitch]] = {}
    for stitch in _stitches(rows):
        logs.setdefault(stitch.thread_id, {})[stitch.position] = stitch
    for span, span_stitches in zip(spans, result, strict=True):
        log = logs.get(span.thread_id, {})
        span_stitches += [log[place] for place in range(span.first, span.last + 1) if place in log]
    return result


def open_lake(target: str) -> "Lake":
    """Return a lake. Raises `ModuleNotFoundError` with a hint if the extra is not installed."""
    try:
        from lockstitch.lake.target import Lake
    except ModuleNotFoundError as exc:
        raise missing_extra(exc, "An archive in a lake", "lake") from exc
    return Lake(target)


def _utc(time: datetime) -> datetime:
    return time.astimezone(UTC)


_CONVERSIONS: Final[dict[ColumnKind, Any]] = {
    ColumnKind.UUID: UUID,
    ColumnKind.JSON: codec.loads,
    ColumnKind.TIME: _utc,
}


def _stitches(rows: Any) -> list[Stitch]:
    """Return the rows of a lake as stitches. A column that the lake does not have yet has its default."""
    kinds = dict(columns(Stitch))
    defaults = _defaults()
    names: list[str] = rows.column_names
    values: list[list[Any]] = []
    for name in names:
        convert = _CONVERSIONS.get(kinds[name])
        column = rows.column(name).to_pylist()
        values.append(column if convert is None else [None if value is None else convert(value) for value in column])
    return [Stitch.unchecked({**defaults, **dict(zip(names, row, strict=True))}) for row in zip(*values, strict=True)]


@cache
def _defaults() -> dict[str, Any]:
    return {name: field.get_default(call_default_factory=True) for name, field in Stitch.model_fields.items()}
