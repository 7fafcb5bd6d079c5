"""One change as several statements: for a database where each costs no round trip."""

from functools import lru_cache

from lockstitch.backend import Change, Fields, Receipt
from lockstitch.backends.sql.dialect import Dialect
from lockstitch.backends.sql.script import Script, Statement
from lockstitch.errors import Conflict
from lockstitch.records import CHAIN, Run, Thread


def change(dialect: Dialect, wanted: Change) -> Script[Receipt]:
    """Compare and set the head; if that fits, write what depends on it."""
    fields = head_fields(wanted)
    position = wanted.position + len(wanted.stitches)
    thread_id = dialect.encode_id(wanted.thread_id)
    parameters = dialect.encode(Thread, fields)
    parameters |= {
        "thread_id": thread_id,
        "seen_fence": wanted.fence,
        "seen_position": wanted.position,
        "seen_worker": None if wanted.worker_id is None else dialect.encode_id(wanted.worker_id),
        "seen_delivered": wanted.delivered,
        "position": position,
        "spawned": wanted.spawned,
    }
    text = change_text(dialect, tuple(fields), bool(wanted.spawned), wanted.delivered is not None)
    rows = yield dialect.bound(text, parameters)
    if not rows:
        raise Conflict(thread_id=wanted.thread_id)
    for run in wanted.new_runs:
        yield dialect.insert(run)
    for run_id, changed in wanted.runs:
        values = dialect.encode(Run, changed)
        parameters = {"id": dialect.encode_id(run_id), "thread_id": thread_id, **values}
        yield Statement(run_text(dialect, tuple(values)), parameters)
    for stitch in wanted.stitches:
        yield dialect.insert(stitch)
    for letter_id, taken_at in wanted.taken:
        parameters = {"id": dialect.encode_id(letter_id), "thread_id": thread_id, "position": taken_at}
        yield dialect.statement("letter_take", parameters)
    return Receipt(position, int(rows[0][0]), bool(rows[0][1]))


def head_fields(wanted: Change) -> Fields:
    """The head's changed fields, with the tip that the appended stitches leave."""
    tip = next((stitch.id for stitch in reversed(wanted.stitches) if stitch.type in CHAIN), None)
    return wanted.head if tip is None else {**wanted.head, "tip_id": tip}


@lru_cache(maxsize=256)
def change_text(dialect: Dialect, fields: tuple[str, ...], spawns: bool, compares_delivered: bool) -> str:
    """The compare-and-set for one shape of change. Letters lower pending_children meanwhile, so it is added to."""
    changes = "".join(f", {name} = :{name}" for name in fields)
    if spawns:
        changes += ", pending_children = pending_children + :spawned"
    delivered = " AND delivered = :seen_delivered" if compares_delivered else ""
    return dialect.text("change", changes=changes, delivered=delivered)


@lru_cache(maxsize=256)
def run_text(dialect: Dialect, fields: tuple[str, ...]) -> str:
    return dialect.text("run_update", changes=dialect.changes(fields))
