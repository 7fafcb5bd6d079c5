"""The operations of a backend as statement scripts: commit, find, put, delete, claim, release, extension queries."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

from lockstitch.backend import CHANGED_SINCE, Commit, Fields, Find, Receipt, ThreadChange, ThreadEdit, Where
from lockstitch.backends.sql.dialect import Dialect
from lockstitch.backends.sql.queries import Rows, Script, Statement
from lockstitch.backends.sql.totals import unsettle
from lockstitch.errors import Conflict, NotFound, Refused, ThreadHeld
from lockstitch.extension import Extension
from lockstitch.model import Clock, ColumnKind, DailyMetric, Delivery, Limit, Record, Stitch, Thread, Worker, codec
from lockstitch.model.delivery import apply_delivery
from lockstitch.model.worker import ClaimRequest, EndCause, free_slots, in_fair_order

R = TypeVar("R", bound=Record)

Changing = Callable[[Dialect, ThreadChange], Script[Receipt]]
"""Function of a dialect that writes one change: first the compare-and-set, then everything that depends on it."""


Removing = Callable[[Find[Any], bool], Script[int]]
"""Function of a dialect that deletes stitches, or threads with all that belongs to them. If True, also held threads."""

Restoring = Callable[[Dialect, Sequence[Stitch]], Script[None]]
"""Function of a dialect that writes archived stitches as rows again."""


class Parts(NamedTuple):
    """The parts of a commit that each dialect writes itself."""

    change: Changing
    remove: Removing
    restore: Restoring


def commit(dialect: Dialect, parts: Parts, wanted: Commit, clock: Clock) -> Script[list[Receipt]]:
    """Write all parts of a commit in the order that `Commit` documents."""
    change, remove, restore = parts
    for step in wanted.superseded:
        yield from change(dialect, step)
    # The comparison of a superseded thread includes its holder.
    for going, force in ((wanted.deleted_threads, False), ([step.thread_id for step in wanted.superseded], True)):
        if going:
            yield from remove(Find(Thread, (Where("id", "in", going),)), force)
    for thread in wanted.new_threads:
        yield dialect.insert(thread)
    receipts: list[Receipt] = []
    for step in wanted.steps:
        if isinstance(step, ThreadChange):
            receipts.append((yield from change(dialect, step)))
        elif isinstance(step, ThreadEdit):
            receipts.append((yield from _edit(dialect, step)))
        else:
            receipts.append((yield from _deliver(dialect, step, clock)))
    for webhook_event in wanted.webhook_events:
        yield dialect.insert(webhook_event)
    for find in wanted.deleted_records:
        if find.kind is Stitch:
            yield from remove(find, False)
        else:
            yield dialect.delete(find)
    for record_change in wanted.changed_records:
        if not (yield dialect.change_record(record_change)):
            raise Conflict(CHANGED_SINCE)
    for record in wanted.new_records:
        yield dialect.insert(record)
    for record in wanted.default_records:
        yield dialect.insert(record, "keep")
    for record in wanted.records:
        name = "figures_add" if isinstance(record, DailyMetric) else dialect.upsert_name(type(record))
        yield dialect.insert(record, name)
    if wanted.restored_stitches:
        yield from restore(dialect, wanted.restored_stitches)
    return receipts


def _edit(dialect: Dialect, edit: ThreadEdit) -> Script[Receipt]:
    fields = dialect.encode(Thread, edit.fields)
    parameters = {"id": dialect.encode_id(edit.thread_id), **fields}
    rows = yield dialect.statement("head_edit", parameters, changes=dialect.changes(list(fields)))
    if not rows:
        raise NotFound(f"Thread {edit.thread_id} not found. Nothing was written.")
    return Receipt(None)


def _deliver(dialect: Dialect, delivery: Delivery, clock: Clock) -> Script[Receipt]:
    """Deliver an entry.

    The receiver's row is locked first, so the decision about it is still valid when it is written.
    """
    thread_id = dialect.encode_id(delivery.thread_id)
    rows = yield dialect.statement("thread_lock", {"id": thread_id}, columns=dialect.names(Thread))
    if not rows:
        raise NotFound(f"Thread {delivery.thread_id} not found. Nothing was delivered.")
    head = dialect.decode(Thread, rows[0])
    result = yield dialect.select(same_delivery(delivery))
    if result:
        first = dialect.decode(Delivery, result[0])
        return Receipt(first.position, head.delivered, head.cancel_requested, new=False, delivery_id=first.id)
    arrival = apply_delivery(head, delivery, clock.now())
    if arrival.delivery is None:
        return Receipt(None, head.delivered, head.cancel_requested, new=False)
    yield dialect.insert(arrival.delivery)
    fields = dialect.encode(Thread, arrival.head)
    yield dialect.statement("head_update", {"id": thread_id, **fields}, changes=dialect.changes(list(fields)))
    if arrival.stitch:
        yield dialect.insert(arrival.stitch)
    return Receipt(
        arrival.delivery.position,
        arrival.head["delivered"],
        head.cancel_requested,
        woken=arrival.head.get("status") == "pending" and head.status != "pending",
        delivery_id=delivery.id,
    )


def same_delivery(delivery: Delivery) -> Find[Delivery]:
    """Select the stored delivery with the same thread, sender and call."""
    return Find(
        Delivery,
        (
            Where("thread_id", "=", delivery.thread_id),
            Where("sender", "=", delivery.sender),
            Where("call_id", "=", delivery.call_id),
        ),
    )


def find(dialect: Dialect, wanted: Find[R]) -> Script[list[R]]:
    """Return the records that `wanted` selects."""
    rows = yield dialect.select(wanted)
    return [dialect.decode(wanted.kind, row) for row in rows]


def count(dialect: Dialect, find: Find[Any]) -> Script[int]:
    """Return the number of records that `find` selects."""
    rows = yield dialect.count(find)
    return int(rows[0][0])


def read(dialect: Dialect, thread_id: UUID, ranges: Sequence[tuple[int, int | None]]) -> Script[list[Stitch]]:
    """Return the stitches in these ranges, in order."""
    stitches: list[Stitch] = []
    for first, last in disjoint(ranges):
        where = [Where("thread_id", "=", thread_id), Where("position", ">=", first)]
        if last is not None:
            where.append(Where("position", "<=", last))
        stitches += yield from find(dialect, Find(Stitch, where, order=("position",)))
    return stitches


def put(dialect: Dialect, records: Sequence[Record], *, new: bool = False) -> Script[None]:
    """Insert records, or replace those with the same key unless `new` is set."""
    for record in records:
        yield dialect.insert(record, "insert" if new else dialect.upsert_name(type(record)))
    yield from unsettle(dialect, records)


def restore(dialect: Dialect, stitches: Sequence[Stitch]) -> Script[None]:
    """Insert archived stitches with the numbers that they had in the log of the store."""
    for stitch in stitches:
        yield dialect.insert(stitch, "insert" if stitch.log_id is None else "restore")
    yield from unsettle(dialect, stitches)


def heartbeat(dialect: Dialect, worker: Worker) -> Script[bool]:
    """Register a worker or renew its lease. Return False if it was declared dead."""
    values = dialect.encode(Worker, worker.__dict__)
    expressions = {name: f":{name}" for name in values} | {"beat_at": dialect.now, "dead": "false"}
    rows = yield dialect.statement(
        "beat", values, columns=", ".join(expressions), values=", ".join(expressions.values())
    )
    return bool(rows)


def release(dialect: Dialect, worker_id: UUID, expired_only: bool, cause: EndCause) -> Script[list[UUID]]:
    """Declare a worker dead and release its threads. Return their ids.

    The worker's row is locked first, so no other transaction claims for the worker, or ends it, at the same time.
    """
    worker = {"worker_id": dialect.encode_id(worker_id)}
    condition = f" AND {dialect.expired.replace('w.', 'workers.')}" if expired_only else ""
    yield dialect.statement("worker_end", {**worker, "cause": cause}, expired_only=condition)
    held = yield dialect.statement("worker_threads", worker)
    lost = ""
    if cause != "stopped":
        lost = dialect.queries["lost"]
        if cause in ("died", "expired") and len(held) == 1:
            lost += dialect.queries["crashed"]
    rows = yield dialect.statement("give_back", worker, lost=lost)
    return [dialect.decode_id(row[0]) for row in rows]


def tree_of(dialect: Dialect, find: Find[Thread]) -> Script[tuple[int, list[UUID]]]:
    """Return the number of threads that `find` selects, and the ids of these threads and all their descendants."""
    threads = [dialect.decode(Thread, row) for row in (yield dialect.select(find))]
    if not threads:
        return 0, []
    marks, named = dialect.among([dialect.encode_id(thread.id) for thread in threads])
    rows = yield dialect.statement("descendants", named, ids=marks)
    return len(threads), [dialect.decode_id(row[0]) for row in rows]


def delete_threads(dialect: Dialect, ids: Sequence[UUID], force: bool) -> Script[int]:
    """Delete threads. Return the number of deleted threads.

    The foreign keys delete everything that belongs to a thread. Threads share blobs, so a blob is deleted with its last
    reference.
    """
    if not ids:
        return 0
    marks, named = dialect.among([dialect.encode_id(thread_id) for thread_id in ids])
    rows = yield dialect.statement("threads_lock", named, ids=marks)
    for thread_id, holder in rows:
        if holder is not None and not force:
            raise ThreadHeld(
                f"Thread {thread_id} is held by worker {holder}. Stop it first, or force the deletion.",
                thread_id=dialect.decode_id(thread_id),
            )
    hashes = yield dialect.statement("blobs_used", named, ids=marks)
    yield dialect.statement("live_delete", named, ids=marks)
    yield dialect.statement("threads_delete", named, ids=marks)
    if hashes:
        hash_marks, named_hashes = dialect.among([row[0] for row in hashes], "hash", ColumnKind.TEXT)
        yield dialect.statement("blobs_sweep", named_hashes, hashes=hash_marks)
    return len(rows)


def stitch_range(find: Find[Stitch]) -> tuple[UUID, int, int]:
    """Return the thread and the positions of a deletion of stitches. Raises `Refused` for any other condition."""
    values = {
        (condition.field, condition.operator): condition.value
        for condition in find.where
        if isinstance(condition, Where) and not condition.path
    }
    if len(find.where) != len(values) or values.keys() != {("thread_id", "="), ("position", ">="), ("position", "<=")}:
        raise Refused("Stitches can be deleted only by thread and a range of positions. Nothing was deleted.")
    return values["thread_id", "="], values["position", ">="], values["position", "<="]


def stitches_between(thread_id: UUID, first: int, last: int) -> Find[Stitch]:
    """Select the stitches of a thread from `first` to `last`."""
    return Find(
        Stitch,
        (Where("thread_id", "=", thread_id), Where("position", ">=", first), Where("position", "<=", last)),
    )


def disjoint(ranges: Sequence[tuple[int, int | None]]) -> list[tuple[int, int | None]]:
    """Return the same positions as ascending ranges that do not overlap."""
    result: list[tuple[int, int | None]] = []
    for first, last in sorted(ranges, key=lambda part: part[0]):
        if result:
            start, end = result[-1]
            if end is None:
                break
            if first <= end + 1:
                result[-1] = (start, None if last is None else max(end, last))
                continue
        result.append((first, last))
    return result


def claim_thread(dialect: Dialect, claim_request: ClaimRequest, thread_id: UUID) -> Script[list[Thread]]:
    """Claim this thread.

    Every claim locks limits first, then threads.
    """
    limits = yield from _locked(dialect, claim_request.limits)
    named = {"id": dialect.encode_id(thread_id)}
    agents = yield dialect.statement("thread_hold", named)
    if limits and agents:
        # A thread that is taken over from a dead worker is still held. It does not count against itself.
        held = yield from _held(dialect, " AND id <> :id", named)
        if free_slots(limits, held).get(agents[0][0], 1) <= 0:
            return []
    parameters = {**named, "worker_id": dialect.encode_id(claim_request.worker_id)}
    rows = yield dialect.statement("claim_thread", parameters, columns=dialect.names(Thread))
    return [dialect.decode(Thread, row) for row in rows]


def choosing(dialect: Dialect, claim_request: ClaimRequest, spare: int = 0) -> Script[Statement | None]:
    """Return the statement that selects and claims ready threads, or None if no agent has a free slot.

    `spare` is the number of additional candidates to look at.
    """
    limits = yield from _locked(dialect, claim_request.limits)
    yield dialect.statement("claim_due", {})
    if limits:
        held = yield from _held(dialect)
        ready = yield from _ready_agents(dialect, claim_request)
        claim_request = claim_request._replace(limits=limits).limited_to(held, ready)
    if claim_request.agents is not None and not claim_request.agents:
        return None
    return choice(dialect, claim_request, spare)


def choice(dialect: Dialect, claim_request: ClaimRequest, spare: int = 0) -> Statement:
    """Return the statement that selects and claims ready threads, without regard to limits."""
    if claim_request.suspects:
        return _suspect(dialect, claim_request)
    parameters: dict[str, Any] = {
        "worker_id": dialect.encode_id(claim_request.worker_id),
        "after": claim_request.after,
        "limit": claim_request.limit,
    }
    agents, lanes = "claim_any_agent", "claim_turns"
    if claim_request.agents is not None:
        agents = "claim_agents"
        parameters["agents"] = codec.dumps(sorted(set(claim_request.agents))).decode()
    if claim_request.project is not None:
        lanes = "claim_project"
        parameters["project"] = claim_request.project
    return dialect.statement(
        "claim",
        parameters,
        agents=dialect.queries[agents],
        lanes=dialect.queries[lanes],
        suspects="" if claim_request.suspects is None else "AND lost_by IS NULL",
        # As a number in the text: a planner that does not know the small number may sort all ready threads.
        most=str(claim_request.limit + spare),
        columns=dialect.names(Thread),
    )


def _suspect(dialect: Dialect, claim_request: ClaimRequest) -> Statement:
    """Return the statement that claims one suspect."""
    parameters: dict[str, Any] = {"worker_id": dialect.encode_id(claim_request.worker_id)}
    chosen = ""
    if claim_request.agents is not None:
        chosen += f" AND coalesce(agent, '') IN ({dialect.queries['claim_agents']})"
        parameters["agents"] = codec.dumps(sorted(set(claim_request.agents))).decode()
    if claim_request.project is not None:
        chosen += " AND project = :project"
        parameters["project"] = claim_request.project
    alone = "true" if claim_request.alone else "false"
    return dialect.statement("claim_suspect", parameters, chosen=chosen, alone=alone, columns=dialect.names(Thread))


def seconds_until_ready(dialect: Dialect, agents: Sequence[str], project: str | None) -> Script[float | None]:
    """Return the seconds until a thread of these agents may be ready; None if none waits for a time."""
    parameters = {"agents": codec.dumps(sorted(set(agents))).decode()}
    condition = ""
    if project is not None:
        parameters["project"] = project
        condition = f"AND t.project {dialect.words['binary']} = :project"
    rows = yield dialect.statement("until_ready", parameters, agents=dialect.queries["claim_agents"], project=condition)
    times = [dialect.decode_time(value) for value in rows[0]]
    return None if times[0] is None else (times[0] - times[1]).total_seconds()


def claimed_threads(dialect: Dialect, claim_request: ClaimRequest, rows: Rows) -> list[Thread]:
    """Return the threads of the claimed rows in claim order. Databases return changed rows in any order."""
    return in_fair_order((dialect.decode(Thread, row) for row in rows), claim_request.after)


def _locked(dialect: Dialect, limits: Sequence[Limit]) -> Script[list[Limit]]:
    """Return the limits as stored, locked until this transaction ends."""
    if not limits:
        return []
    marks, named = dialect.among(sorted(limit.name for limit in limits), "name", ColumnKind.TEXT)
    rows = yield dialect.statement("limits_lock", named, columns=dialect.names(Limit), names=marks)
    return [dialect.decode(Limit, row) for row in rows]


def _held(dialect: Dialect, others: str = "", parameters: dict[str, Any] | None = None) -> Script[dict[str, int]]:
    """Return the number of held threads of each agent."""
    rows = yield dialect.statement("held", parameters or {}, others=others)
    return {agent: int(number) for agent, number in rows}


def _ready_agents(dialect: Dialect, claim_request: ClaimRequest) -> Script[Iterable[str]]:
    """Return the agents that may have ready threads."""
    if claim_request.agents is not None:
        return claim_request.agents
    rows = yield dialect.statement("ready_agents", {}, agents=dialect.queries["claim_any_agent"])
    return [row[0] for row in rows]


_KINDS: Final[Mapping[type[Any], ColumnKind]] = {
    UUID: ColumnKind.UUID,
    bool: ColumnKind.BOOLEAN,
    int: ColumnKind.INTEGER,
    float: ColumnKind.NUMBER,
    datetime: ColumnKind.TIME,
    dict: ColumnKind.JSON,
    list: ColumnKind.JSON,
}
"""Storage types of parameters that are not fields of a record. Text and bytes are passed unchanged."""


def query_rows(
    dialect: Dialect, extension: Extension, name: str, parameters: Mapping[str, Any], into: type[Record] | None
) -> Script[list[Any]]:
    """Return the rows of an extension's query, as tuples or as records. `dialect` comes from `with_extension`."""
    if name not in dialect.queries:
        raise Refused(f"{extension.name} has no query {name}. It has {', '.join(sorted(dialect.queries)) or 'none'}.")
    values = {key: _encoded(dialect, value) for key, value in parameters.items()}
    parts = {} if into is None else {"columns": dialect.names(into)}
    rows = yield dialect.statement(name, values, **parts)
    return [tuple(row) if into is None else dialect.decode(into, row) for row in rows]


@lru_cache(maxsize=64)
def with_extension(dialect: Dialect, extension: Extension, which: str) -> Dialect:
    """Return the dialect with the queries of an extension instead of the core queries."""
    return replace(dialect, queries=extension.queries(which))


def _encoded(dialect: Dialect, value: Any) -> Any:
    kind = next((kind for known, kind in _KINDS.items() if isinstance(value, known)), None)
    convert = None if kind is None else dialect.encoders.get(kind)
    return convert(value) if convert else value


def head_columns(thread_change: ThreadChange) -> Fields:
    """Return the changed fields of the head, with the tip of the appended stitches."""
    tip_id = thread_change.tip_id
    return thread_change.head if tip_id is None else {**thread_change.head, "tip_id": tip_id}


class NewThread(NamedTuple):
    """A new thread with the state after its first change, and that change."""

    head: Thread
    change: ThreadChange

    @property
    def receipt(self) -> Receipt:
        """Return the receipt of the change."""
        return Receipt(self.head.position, self.head.delivered, self.head.cancel_requested)


def new_threads_only(commit: Commit, *, blob_refs: bool = False) -> list[NewThread] | None:
    """Return the new threads of a commit with their changes, or None if the commit contains anything else.

    With `blob_refs` the changes may contain references to blobs.
    """
    if not commit.new_threads or len(commit.new_threads) != len(commit.steps):
        return None
    if commit.webhook_events or not commit.is_record_only:
        return None
    new = {thread.id: thread for thread in commit.new_threads}
    new_threads: list[NewThread] = []
    for step in commit.steps:
        thread = new.pop(step.thread_id, None)
        if not isinstance(step, ThreadChange) or thread is None or not _simple(thread, step):
            return None
        if step.blob_refs and not blob_refs:
            return None
        fields = {**head_columns(step), "position": step.position + len(step.stitches)}
        new_threads.append(NewThread(thread.changed(**fields), step))
    return new_threads


def _simple(thread: Thread, change: ThreadChange) -> bool:
    """True if the change fits its thread, and adds stitches, runs and references to blobs. All other changes take the
    general path."""
    if change.runs or change.consumed or change.new_children or change.replaced_stitches:
        return False
    seen = (change.fence, change.position, change.worker_id)
    return seen == (thread.fence, thread.position, thread.worker_id) and change.delivered in (None, thread.delivered)
