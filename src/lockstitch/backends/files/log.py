"""The JSONL log of a thread: read, append, and unique ids.

Within a file positions and log_ids both rise, so its first and last line give its extent.
"""

import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from uuid import UUID

from lockstitch.backends.files import disk
from lockstitch.backends.files import format as line
from lockstitch.backends.files.transaction import (
    UNREADABLE,
    Extent,
    Folder,
    FolderState,
    Identities,
    Signature,
    TornRead,
    Transaction,
)
from lockstitch.errors import Conflict, StoreDamaged
from lockstitch.model import Json, Stitch, answer_of, as_id, codec, text_of, tool_uses

_CHUNK = 1 << 16


def extent_of(folder: Folder, path: str) -> Extent | None:
    """Return the extent of a log file, or None if it is missing or contains no complete line."""
    if path in folder.extents:
        return folder.extents[path]
    try:
        signature = _signature(folder.root, path)
    except FileNotFoundError:
        return None
    known = folder.memory.extents.get(path)
    if known and known[0] == signature:
        return known[1]
    try:
        extent = _from_ends(folder, path, signature[1])
    except UNREADABLE:
        extent = _from_lines(folder, path)
    if extent is not None:
        folder.memory.extents.keep(path, (signature, extent))
    return extent


def remember_extent(memory: FolderState, root: Path, path: str, extent: Extent) -> None:
    """Cache the extent of a file after a commit."""
    signature = _signature(root, path)
    if signature[1] == extent.size:
        memory.extents.keep(path, (signature, extent))


def _signature(root: Path, path: str) -> Signature:
    status = os.stat(f"{root}/{path}")
    return status.st_ino, status.st_size, status.st_mtime_ns


def _from_ends(folder: Folder, path: str, size: int) -> Extent:
    with disk.opened(folder.root / path, os.O_RDONLY) as file:
        first = _first_line(file)
        last = _last_line(file, size)
    return _extent(first, last, size)


def _from_lines(folder: Folder, path: str) -> Extent | None:
    """Return the extent by reading all lines. Needed if the last line is incomplete; it does not count."""
    lines = folder.lines(path)
    for complete_lines in (lines, lines[:-1]):
        if not complete_lines:
            return None
        try:
            return _extent(
                complete_lines[0].lstrip(b"\0"),
                complete_lines[-1].lstrip(b"\0"),
                sum(len(line) + 1 for line in complete_lines),
            )
        except UNREADABLE as exc:
            if not folder.tolerant:
                raise TornRead(path) from exc
    return folder.damaged(path, "more than its last line cannot be read")


def _extent(first: bytes, last: bytes, size: int) -> Extent:
    begin, end = codec.loads(first), codec.loads(last)
    return Extent(begin["position"], end["position"], end["store_log_id"], end["log_id"], size)


def _first_line(file: int) -> bytes:
    text = b""
    while b"\n" not in text:
        part = os.pread(file, _CHUNK, len(text))
        if not part:
            raise ValueError("no whole line")
        text += part
    return text[: text.index(b"\n")].lstrip(b"\0")


def _last_line(file: int, size: int) -> bytes:
    text = b""
    while True:
        start = max(0, size - len(text) - _CHUNK)
        text = os.pread(file, size - len(text) - start, start) + text
        if not text.endswith(b"\n"):
            raise ValueError("the last line is torn")
        cut = text.rfind(b"\n", 0, -1)
        if cut >= 0 or start == 0:
            return text[cut + 1 : -1].lstrip(b"\0")


Ranges = Sequence[tuple[int, int | None]]


def files(folder: Folder, thread_id: UUID) -> list[str]:
    """Return the log files of a thread."""
    directory = disk.logs(thread_id)
    return [f"{directory}/{name}" for name in folder.names(directory) if name.endswith(".jsonl")]


def stitches(folder: Folder, path: str) -> list[Stitch]:
    """Return all stitches of a file, in the order in which they were written."""
    return list(each(folder, path))


def each(folder: Folder, path: str, ranges: Ranges = ((0, None),)) -> Iterator[Stitch]:
    """Yield the stitches of a file that are in ranges of positions, without decoding the other ones."""
    lines = folder.lines(path)
    for index in _indexes(lines, ranges):
        # The file has a hole of NUL bytes if lines before the oldest entry of the journal were lost.
        text = lines[index].lstrip(b"\0")
        try:
            yield line.decode_stitch(text)
        except UNREADABLE as exc:
            if not (folder.tolerant and index == len(lines) - 1):
                folder.damaged(path, f"line {index + 1} cannot be read", exc)


def _indexes(lines: Sequence[bytes], ranges: Ranges) -> Sequence[int]:
    """Return the indexes of the lines in these ranges. All lines, if a line that the search reads is damaged."""
    if (0, None) in ranges:
        return range(len(lines))
    try:
        parts = [
            range(
                bisect_left(lines, first, key=_position),
                len(lines) if last is None else bisect_right(lines, last, key=_position),
            )
            for first, last in ranges
        ]
    except UNREADABLE:
        return range(len(lines))
    return sorted({index for part in parts for index in part})


def _position(text: bytes) -> int:
    return codec.loads(text.lstrip(b"\0"))["position"]


def read(folder: Folder, thread_id: UUID, ranges: Ranges) -> list[Stitch]:
    """Return the stitches in these ranges of positions, in order, without duplicates.

    Files without such stitches are not opened.
    """
    matches: list[Stitch] = []
    for path in files(folder, thread_id):
        extent = extent_of(folder, path)
        if extent is None or not any(_meets(extent, first, last) for first, last in ranges):
            continue
        matches += [stitch for stitch in each(folder, path, ranges) if _within(stitch.position, ranges)]
    return sorted(matches, key=lambda stitch: stitch.position)


def last_log_id(folder: Folder) -> int:
    """Return the last assigned log_id. If the counter is lost, return the highest one in the logs."""
    with suppress(StoreDamaged, KeyError):
        document = folder.document(disk.COUNTERS)
        if document is not None:
            return document["log_id"]
    threads = (thread_id for name in folder.names(disk.LOGS) if (thread_id := as_id(name)))
    paths = (path for thread_id in threads for path in files(folder, thread_id))
    return max((extent.log_id for path in paths if (extent := extent_of(folder, path))), default=0)


def _meets(extent: Extent, first: int, last: int | None) -> bool:
    return extent.last >= first and (last is None or extent.first <= last)


def _within(position: int, ranges: Ranges) -> bool:
    return any(first <= position and (last is None or position <= last) for first, last in ranges)


def admit(transaction: Transaction, new: Sequence[Stitch]) -> None:
    """Check that these stitches can follow a thread's log. Raises `Conflict` if one is already in it."""
    thread_id = new[0].thread_id
    pending = transaction.appended.setdefault(thread_id, [])
    base = (pending or new)[0].position - 1
    identities = _identities(transaction, thread_id, base)
    ids = {stitch.id for stitch in pending}
    followed = {stitch.previous_id for stitch in pending if stitch.in_chain}
    for stitch in new:
        _check(
            stitch,
            stitch.id in identities.ids or stitch.id in ids,
            stitch.in_chain and (stitch.previous_id in identities.followed or stitch.previous_id in followed),
        )
        ids.add(stitch.id)
        if stitch.in_chain:
            followed.add(stitch.previous_id)
    pending.extend(new)


def admit_all(transaction: Transaction, thread_id: UUID, log: Iterable[Stitch]) -> None:
    """Check the stitches of a whole log that is rewritten."""
    identities = Identities(0, set(), set())
    for stitch in log:
        _check(stitch, stitch.id in identities.ids, stitch.in_chain and stitch.previous_id in identities.followed)
        _add(identities, stitch)
    transaction.memory.identities.pop(thread_id, None)


def remember(memory: FolderState, appended: dict[UUID, list[Stitch]]) -> None:
    """Cache the ids and the responses with calls that a commit has appended, so that the next one need not read the
    log."""
    for thread_id, stitches in appended.items():
        for stitch in stitches:
            if stitch.calls and stitch.message is not None and stitch.in_chain:
                memory.responses.keep((thread_id, stitch.position), stitch.message)
        identities = memory.identities.get(thread_id)
        if identities is not None and stitches and identities.position == stitches[0].position - 1:
            for stitch in stitches:
                _add(identities, stitch)


def _identities(folder: Folder, thread_id: UUID, position: int) -> Identities:
    """Return the unique values of the log up to a position. Logs only grow, so a cached result stays valid."""
    identities = folder.memory.identities.get(thread_id)
    if identities is None or identities.position != position:
        identities = Identities(0, set(), set())
        for stitch in read(folder, thread_id, [(1, position)]):
            _add(identities, stitch)
        identities.position = position
        folder.memory.identities.keep(thread_id, identities)
    return identities


def _add(identities: Identities, stitch: Stitch) -> None:
    identities.ids.add(stitch.id)
    if stitch.in_chain:
        identities.followed.add(stitch.previous_id)
    identities.position = stitch.position


def _check(stitch: Stitch, known: bool, forks: bool) -> None:
    if known:
        raise Conflict(
            f"Stitch {stitch.id} is already in the log of this thread. Nothing was written.", thread_id=stitch.thread_id
        )
    if forks:
        raise Conflict(
            f"Another stitch already follows {stitch.previous_id or 'the start'} in this log. Nothing was written.",
            thread_id=stitch.thread_id,
        )


def append(transaction: Transaction, new: Sequence[Stitch]) -> None:
    """Append stitches to a thread's log, each to the file of its run, with the next log_ids of the store."""
    if not new:
        return
    admit(transaction, new)
    log_id = last_log_id(transaction)
    known = {stitch.position: stitch for stitch in transaction.appended[new[0].thread_id]}
    for stitch in new:
        log_id += 1
        path = disk.log(stitch.thread_id, stitch.run_id)
        before = extent_of(transaction, path) or Extent(stitch.position, 0, 0, 0, 0)
        repeated = _repeated(transaction, stitch, known)
        text = line.encode_stitch(stitch.changed(log_id=log_id), before.lines + 1, repeated)
        transaction.extend(path, before.size, [text])
        transaction.extents[path] = Extent(
            before.first, stitch.position, log_id, before.lines + 1, before.size + len(text) + 1
        )
    _set_log_id(transaction, log_id)


def replace(transaction: Transaction, thread_id: UUID, values: Sequence[Stitch], *, restored: bool = False) -> None:
    """Write stitches to a thread's log, replacing those with the same positions.

    If they only continue the log, they are appended. Otherwise each changed file is rewritten from the first different
    line on. A replaced stitch keeps its log_id. If a stitch is inserted, all stitches after it in the file get new
    log_ids, so that log_ids rise within a file and watchers miss nothing. With `restored`, stitches come from an
    archive and keep their log_ids.
    """
    values = sorted(values, key=lambda stitch: stitch.position)
    paths = files(transaction, thread_id)
    last = max((extent.last for path in paths if (extent := extent_of(transaction, path))), default=0)
    if values[0].position > last and len({stitch.position for stitch in values}) == len(values) and not restored:
        append(transaction, values)
        return
    old = {path: stitches(transaction, path) for path in paths}
    merged = {stitch.position: stitch for path in paths for stitch in old[path]}
    for stitch in values:
        before = merged.get(stitch.position)
        merged[stitch.position] = stitch if restored else stitch.changed(log_id=before.log_id if before else None)
    admit_all(transaction, thread_id, merged.values())
    _write(transaction, old, merged.values())


def remove(transaction: Transaction, thread_id: UUID, positions: set[int]) -> None:
    """Remove the stitches at these positions from a thread's log."""
    old = {path: stitches(transaction, path) for path in files(transaction, thread_id)}
    remaining = [stitch for path in old for stitch in old[path] if stitch.position not in positions]
    transaction.memory.identities.pop(thread_id, None)
    _write(transaction, old, remaining)


def _repeated(folder: Folder, stitch: Stitch, known: Mapping[int, Stitch]) -> Json:
    """Return the content of other stitches that the line of this one repeats.

    `known` are stitches of the thread by position. A stitch that is not among them is read.
    """
    match stitch.type:
        case "tool_call" if stitch.reply_to is not None and stitch.call_index is not None:
            calls = tool_uses(_message(folder, stitch.thread_id, stitch.reply_to, known))
            return {"input": calls[stitch.call_index].get("input")} if stitch.call_index < len(calls) else {}
        case "run_started" | "run_completed" if stitch.run_id is not None:
            run: Json = folder.document(disk.run(stitch.thread_id, stitch.run_id)) or {}
            if stitch.type == "run_started":
                return {"user_message": text_of(_message(folder, stitch.thread_id, run.get("input_position"), known))}
            answer = _message(folder, stitch.thread_id, run.get("output_position"), known)
            return {"final_response": None if answer is None else answer_of(answer)}
        case _:
            return {}


def _message(folder: Folder, thread_id: UUID, position: int | None, known: Mapping[int, Stitch]) -> Json | None:
    """Return the message at a position. Several results may answer one response, so it is cached."""
    if position is None:
        return None
    if position in known:
        return known[position].message
    cached = folder.memory.responses.get((thread_id, position))
    if cached is not None:
        return cached
    stitches = read(folder, thread_id, [(position, position)])
    return stitches[0].message if stitches else None


def _set_log_id(transaction: Transaction, log_id: int) -> None:
    transaction.write(disk.COUNTERS, {"log_id": log_id})


def _write(transaction: Transaction, old: dict[str, list[Stitch]], stitches: Iterable[Stitch]) -> None:
    """Write the files so that they contain exactly these stitches.

    Lines before the first difference are not changed.
    """
    new: dict[str, list[Stitch]] = {path: [] for path in old}
    known = {stitch.position: stitch for stitch in stitches}
    for _, stitch in sorted(known.items()):
        new.setdefault(disk.log(stitch.thread_id, stitch.run_id), []).append(stitch)
    next_log_id = last_log_id(transaction)
    for path, wanted_stitches in new.items():
        before = transaction.lines(path)
        lines: list[bytes] = []
        behind = 0
        for stitch in wanted_stitches:
            if stitch.log_id is None or stitch.log_id <= behind:
                next_log_id += 1
                stitch = stitch.changed(log_id=next_log_id)
            behind = stitch.log_id or 0
            lines.append(line.encode_stitch(stitch, len(lines) + 1, _repeated(transaction, stitch, known)))
        same = 0
        while same < min(len(before), len(lines)) and before[same] == lines[same]:
            same += 1
        if not lines:
            transaction.remove(path)
        elif same < max(len(before), len(lines)):
            transaction.extend(path, sum(len(text) + 1 for text in lines[:same]), lines[same:])
    _set_log_id(transaction, next_log_id)
