"""Writing the log of a thread: native stitches are appended and never changed; mirrored ones may be replaced."""

from collections.abc import Iterable, Sequence
from uuid import UUID

from lockstitch.backends.files import identities, layout, line, log
from lockstitch.backends.files.extent import extent_of
from lockstitch.backends.files.memory import Extent
from lockstitch.backends.files.transaction import Transaction
from lockstitch.records import Stitch


def append(transaction: Transaction, new: Sequence[Stitch]) -> None:
    """Let a thread's log go on with these, each at the end of its run's file, with the store's next log_ids."""
    if not new:
        return
    identities.admit(transaction, new)
    log_id = log.last_log_id(transaction)
    for stitch in new:
        log_id += 1
        path = layout.log(stitch.thread_id, stitch.run_id)
        before = extent_of(transaction, path) or Extent(stitch.position, 0, 0, 0, 0)
        text = line.encode_stitch(stitch.changed(log_id=log_id), before.lines + 1)
        transaction.extend(path, before.size, [text])
        transaction.extents[path] = Extent(
            before.first, stitch.position, log_id, before.lines + 1, before.size + len(text) + 1
        )
    _set_log_id(transaction, log_id)


def replace(transaction: Transaction, thread_id: UUID, given: Sequence[Stitch]) -> None:
    """Put stitches where they belong in a thread's log, in place of those with the same positions.

    What only continues the log is appended. Otherwise the files that change are written anew from the first line
    that differs. A stitch keeps its log_id; one that gets in before others makes those behind it in its file look
    new, so that log_ids rise within a file and whoever follows them misses nothing.
    """
    given = sorted(given, key=lambda stitch: stitch.position)
    paths = log.files(transaction, thread_id)
    last = max((extent.last for path in paths if (extent := extent_of(transaction, path))), default=0)
    if given[0].position > last and len({stitch.position for stitch in given}) == len(given):
        append(transaction, given)
        return
    old = {path: log.stitches(transaction, path) for path in paths}
    merged = {stitch.position: stitch for path in paths for stitch in old[path]}
    for stitch in given:
        before = merged.get(stitch.position)
        merged[stitch.position] = stitch.changed(log_id=before.log_id if before else None)
    identities.admit_all(transaction, thread_id, merged.values())
    _write(transaction, old, merged.values())


def remove(transaction: Transaction, thread_id: UUID, positions: set[int]) -> None:
    """Take the stitches at these positions out of a thread's log."""
    old = {path: log.stitches(transaction, path) for path in log.files(transaction, thread_id)}
    kept = [stitch for path in old for stitch in old[path] if stitch.position not in positions]
    transaction.memory.identities.pop(thread_id, None)
    _write(transaction, old, kept)


def _set_log_id(transaction: Transaction, log_id: int) -> None:
    transaction.write(layout.COUNTERS, {"log_id": log_id})


def _write(transaction: Transaction, old: dict[str, list[Stitch]], wanted: Iterable[Stitch]) -> None:
    """Make the files say what is wanted, changing no line before the first that must differ."""
    new: dict[str, list[Stitch]] = {path: [] for path in old}
    for stitch in sorted(wanted, key=lambda stitch: stitch.position):
        new.setdefault(layout.log(stitch.thread_id, stitch.run_id), []).append(stitch)
    next_log_id = log.last_log_id(transaction)
    for path, wanted_stitches in new.items():
        before = transaction.lines(path)
        lines: list[bytes] = []
        behind = 0
        for stitch in wanted_stitches:
            if stitch.log_id is None or stitch.log_id <= behind:
                next_log_id += 1
                stitch = stitch.changed(log_id=next_log_id)
            behind = stitch.log_id or 0
            lines.append(line.encode_stitch(stitch, len(lines) + 1))
        same = 0
        while same < min(len(before), len(lines)) and before[same] == lines[same]:
            same += 1
        if not lines:
            transaction.remove(path)
        elif same < max(len(before), len(lines)):
            transaction.extend(path, sum(len(text) + 1 for text in lines[:same]), lines[same:])
    _set_log_id(transaction, next_log_id)
