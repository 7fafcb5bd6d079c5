"""Where records that a question asks for can be: no more files are opened than its conditions leave."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast
from uuid import UUID

from lockstitch.backend import Find, Where
from lockstitch.backends.files import layout, log, selection, tables
from lockstitch.backends.files.extent import extent_of
from lockstitch.backends.files.folder import Folder
from lockstitch.backends.files.names import name_of
from lockstitch.records import Letter, Record, Run, Stitch, Thread

R = TypeVar("R", bound=Record)


def find(folder: Folder, wanted: Find[R]) -> list[R]:
    """The records that `wanted` describes."""
    return selection.select(candidates(folder, wanted), wanted)


def get(folder: Folder, kind: type[R], key: list[Any]) -> R | None:
    """The record with this primary key."""
    where = [Where(field, "=", value) for field, value in zip(kind.primary_key, key, strict=True)]
    found = find(folder, Find(kind, where, limit=1))
    return found[0] if found else None


def count(folder: Folder, wanted: Find[Any]) -> int:
    """How many records `wanted` describes."""
    folder.with_contents = False
    return len(selection.matching(candidates(folder, wanted), wanted))


def candidates(folder: Folder, wanted: Find[R]) -> Iterable[R]:
    """Records among which all are that `wanted` describes."""
    found: Iterable[Record]
    if wanted.kind is Thread:
        found = _threads(folder, wanted)
    elif wanted.kind is Run:
        found = _runs(folder, wanted)
    elif wanted.kind is Stitch:
        found = _stitches(folder, wanted)
    elif wanted.kind is Letter:
        found = _letters(folder, wanted)
    else:
        found = _shelf(folder, wanted)
    return cast("Iterable[R]", found)


def _threads(folder: Folder, wanted: Find[Any]) -> Iterator[Thread]:
    ids: Iterable[UUID] | None = selection.wanted_values(wanted, "id")
    projects, keys = selection.wanted_values(wanted, "project"), selection.wanted_values(wanted, "key")
    if ids is None and projects is not None and keys is not None:
        named = (tables.thread_of_key(folder, project, key) for project in projects for key in keys)
        ids = [thread_id for thread_id in named if thread_id is not None]
    if ids is None:
        ids = tables.ids_in(folder, layout.HEADS)
    for thread_id in ids:
        head = tables.head(folder, thread_id)
        if head is not None:
            yield head


def _runs(folder: Folder, wanted: Find[Any]) -> Iterator[Run]:
    threads, ids = selection.wanted_values(wanted, "thread_id"), selection.wanted_values(wanted, "id")
    if ids is None:
        for thread_id in tables.ids_in(folder, layout.RUNS) if threads is None else threads:
            yield from tables.runs(folder, thread_id)
        return
    for run_id in ids:
        owners = [tables.thread_of_run(folder, run_id)] if threads is None else threads
        for thread_id in owners:
            run = tables.run(folder, thread_id, run_id) if thread_id else None
            if run is not None:
                yield run


def _stitches(folder: Folder, wanted: Find[Any]) -> Iterator[Stitch]:
    lowest, highest = _bounds(wanted, "position")
    after, _ = _bounds(wanted, "log_id")
    files: list[tuple[int, str]] = []
    for path in _log_files(folder, wanted):
        extent = extent_of(folder, path)
        if extent and extent.last >= lowest and extent.first <= highest and extent.log_id >= after:
            files.append((extent.log_id, path))
    if tuple(wanted.order) != ("-log_id",) or wanted.limit is None:
        for _, path in files:
            yield from log.stitches(folder, path)
    else:
        yield from _newest(folder, wanted, sorted(files, reverse=True))


def _newest(folder: Folder, wanted: Find[Any], files: Sequence[tuple[int, str]]) -> list[Stitch]:
    """The newest that fit, reading the file with the newest first; once there are enough, the rest stay shut."""
    found: list[Stitch] = []
    number = (wanted.limit or 0) + wanted.offset
    for last, path in files:
        newer = [stitch for stitch in found if (stitch.log_id or 0) > last]
        if len(newer) >= number:
            return newer
        found = selection.select([*found, *log.stitches(folder, path)], replace(wanted, offset=0, limit=number))
    return found


def _log_files(folder: Folder, wanted: Find[Any]) -> Iterator[str]:
    threads: Iterable[UUID] | None = selection.wanted_values(wanted, "thread_id")
    runs = selection.wanted_values(wanted, "run_id")
    if runs is None:
        for thread_id in tables.ids_in(folder, layout.LOGS) if threads is None else threads:
            yield from log.files(folder, thread_id)
        return
    for run_id in runs:
        owners = [tables.thread_of_run(folder, run_id)] if threads is None else threads
        yield from (layout.log(thread_id, run_id) for thread_id in owners if thread_id)


def _bounds(wanted: Find[Any], field: str) -> tuple[int, float]:
    """The lowest and the highest value of a number that the conditions leave."""
    lowest, highest = 0, float("inf")
    for condition in wanted.where:
        if condition.field == field and condition.value is not None:
            if condition.operator in ("=", ">", ">="):
                lowest = max(lowest, condition.value + (condition.operator == ">"))
            if condition.operator in ("=", "<", "<="):
                highest = min(highest, condition.value)
    return lowest, highest


def _letters(folder: Folder, wanted: Find[Any]) -> Iterator[Letter]:
    threads, ids = selection.wanted_values(wanted, "thread_id"), selection.wanted_values(wanted, "id")
    for thread_id in tables.ids_in(folder, layout.INBOX) if threads is None else threads:
        if ids is None:
            yield from tables.letters(folder, thread_id)
            continue
        for letter_id in ids:
            letter = tables.letter(folder, thread_id, letter_id)
            if letter is not None:
                yield letter


def _shelf(folder: Folder, wanted: Find[R]) -> Iterator[R]:
    """By its name when the conditions give the whole key, else by how the name begins."""
    key: list[Any] = []
    for field in wanted.kind.primary_key:
        values = selection.wanted_values(wanted, field)
        if values is None or len(values) != 1:
            return tables.shelf(folder, wanted.kind, key)
        key += values
    record = tables.load(folder, wanted.kind, f"{layout.shelf(wanted.kind)}/{name_of(key)}.json")
    return iter([record] if record is not None else [])
