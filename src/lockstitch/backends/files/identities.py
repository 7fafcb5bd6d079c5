"""What a database guards by unique indexes: each stitch of a thread has its own id, and one at most follows another."""

from collections.abc import Iterable, Sequence
from uuid import UUID

from lockstitch.backends.files import log
from lockstitch.backends.files.folder import Folder
from lockstitch.backends.files.memory import Identities, Memory
from lockstitch.backends.files.transaction import Transaction
from lockstitch.errors import Conflict
from lockstitch.records import Stitch


def admit(transaction: Transaction, new: Sequence[Stitch]) -> None:
    """Let these go on behind a thread's log, or raise Conflict when one of them is there already."""
    thread_id = new[0].thread_id
    pending = transaction.appended.setdefault(thread_id, [])
    base = (pending or new)[0].position - 1
    known = _identities(transaction, thread_id, base)
    ids = {stitch.id for stitch in pending}
    followed = {stitch.previous_id for stitch in pending if stitch.linked}
    for stitch in new:
        _check(
            stitch,
            stitch.id in known.ids or stitch.id in ids,
            stitch.linked and (stitch.previous_id in known.followed or stitch.previous_id in followed),
        )
        ids.add(stitch.id)
        if stitch.linked:
            followed.add(stitch.previous_id)
    pending.extend(new)


def admit_all(transaction: Transaction, thread_id: UUID, log: Iterable[Stitch]) -> None:
    """The same for a log that is written anew."""
    known = Identities(0, set(), set())
    for stitch in log:
        _check(stitch, stitch.id in known.ids, stitch.linked and stitch.previous_id in known.followed)
        _add(known, stitch)
    transaction.memory.identities.pop(thread_id, None)


def remember(memory: Memory, appended: dict[UUID, list[Stitch]]) -> None:
    """Keep what a commit has appended, so that the next one need not read the log."""
    for thread_id, stitches in appended.items():
        known = memory.identities.get(thread_id)
        if known is not None and stitches and known.position == stitches[0].position - 1:
            for stitch in stitches:
                _add(known, stitch)


def _identities(folder: Folder, thread_id: UUID, position: int) -> Identities:
    """What is unique in the log up to a position. Logs only grow, so what was known up to there still holds."""
    known = folder.memory.identities.get(thread_id)
    if known is None or known.position != position:
        known = Identities(0, set(), set())
        for stitch in log.read(folder, thread_id, [(1, position)]):
            _add(known, stitch)
        known.position = position
        folder.memory.identities.keep(thread_id, known)
    return known


def _add(known: Identities, stitch: Stitch) -> None:
    known.ids.add(stitch.id)
    if stitch.linked:
        known.followed.add(stitch.previous_id)
    known.position = stitch.position


def _check(stitch: Stitch, known: bool, forks: bool) -> None:
    if known:
        raise Conflict(
            f"Stitch {stitch.id} is in this thread's log already; nothing was written.", thread_id=stitch.thread_id
        )
    if forks:
        raise Conflict(
            f"Another stitch follows {stitch.previous_id or 'the beginning'} in this log already; nothing was written.",
            thread_id=stitch.thread_id,
        )
