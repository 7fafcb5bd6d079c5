"""append: a stale or invalid commit is rejected, and nothing is written."""

import asyncio
import sqlite3
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from lockstitch.backend import FullBackend, ThreadChange, ThreadEdit
from lockstitch.errors import Conflict, KeyTaken, LockstitchError, NotFound, Refused, ThreadBusy, ThreadEnded
from lockstitch.model import Entry, Run, Stitch, Thread, new_id
from lockstitch.store import Store
from tests.conformance.contract import (
    NOW,
    a_delivery,
    a_goal,
    a_run,
    a_thread,
    a_webhook_event,
    an_unknown_thread,
    change,
    commit,
    created,
    everything,
    grown,
    head_of,
    held,
    refused,
    stitched,
)
from tests.samples import answered, said

pytestmark = pytest.mark.anyio

STALE: dict[str, Callable[[Thread], ThreadChange]] = {
    "fence": lambda head: change(head, said("x"), fence=head.fence + 1),
    "an older fence": lambda head: change(head, said("x"), fence=head.fence - 1),
    "position": lambda head: change(head, said("x"), position=head.position - 1),
    "a position to come": lambda head: change(head, said("x"), position=head.position + 1),
    "another holder": lambda head: change(head, said("x"), worker_id=new_id()),
    "no holder": lambda head: change(head, said("x"), worker_id=None),
    "unseen deliveries": lambda head: change(head, said("x"), delivered=head.delivered - 1),
    "deliveries that never arrived": lambda head: change(head, delivered=head.delivered + 1),
    "fence, without a stitch": lambda head: change(head, fence=head.fence + 1, head={"title": "x"}),
}


@pytest.mark.req("S3-026")
async def test_rejects_append_when_position_is_stale(full_backend: FullBackend) -> None:
    """The thread is held, has stitches and deliveries. Other parts of the commit are not written either."""
    thread = await created(full_backend)
    head = await held(full_backend, await grown(full_backend, thread, said("a"), said("b")))
    await commit(full_backend, a_delivery(head))
    head = await head_of(full_backend, thread)
    other_thread = await created(full_backend)
    before = await everything(full_backend)
    for name, stale in STALE.items():
        run = a_run(other_thread)
        writing = commit(
            full_backend,
            change(other_thread, said("y", run_id=run.id), new_runs=[run]),
            a_delivery(other_thread, sender="bob"),
            ThreadEdit(other_thread.id, {"title": "t"}),
            stale(head),
            threads=[a_thread()],
            webhook_events=[a_webhook_event(other_thread)],
        )
        assert (await refused(Conflict, writing, name)).thread_id == thread.id
        assert await everything(full_backend) == before, name


async def test_stale_first_step_rejects_later_steps(full_backend: FullBackend) -> None:
    first, second = await created(full_backend), await created(full_backend)
    before = await everything(full_backend)
    with pytest.raises(Conflict):
        await commit(full_backend, change(first, said("x"), position=5), change(second, said("y")))
    assert await everything(full_backend) == before


async def test_rejects_new_children_when_cancel_is_requested(store: Store) -> None:
    """A cancel walks down the tree. A child that is added later would not be cancelled."""
    held_thread = await store.claim(await store.create(kind="goal", goal="g"))
    await store.edit(held_thread, cancel_requested=True)
    before = await everything(store._backend)
    child = store.new_thread(kind="task", goal="g", parent_id=held_thread.id)
    with pytest.raises(Conflict, match="cancel is requested") as conflict:
        await store.append(held_thread, [said("go")], new_threads=[child])
    assert (conflict.value.reason, conflict.value.thread_id) == ("cancelled", held_thread.id)
    assert await everything(store._backend) == before
    assert (await store.append(held_thread, [said("I see")])).cancel_requested, "a change without children is accepted"
    await store.edit(held_thread, cancel_requested=False)
    await store.append(await store.thread(held_thread), [said("go")], new_threads=[child])
    assert (await store.thread(held_thread)).pending_children == 1


async def test_concurrent_spawn_and_cancel_are_serialised(store: Store) -> None:
    """Either the child exists when the cancel is requested, or it is never created."""
    for _ in range(10):
        held_thread = await store.claim(await store.create(kind="goal", goal="g"))
        child = store.new_thread(kind="task", goal="g", parent_id=held_thread.id)
        spawned, _ = await asyncio.gather(
            store.append(held_thread, new_threads=[child]),
            store.edit(held_thread, cancel_requested=True),
            return_exceptions=True,
        )
        number = len(await store.children(held_thread))
        assert (await store.thread(held_thread)).pending_children == number == (not isinstance(spawned, Conflict))


async def test_invalid_webhook_event_rejects_whole_commit(full_backend: FullBackend) -> None:
    thread = await created(full_backend)
    first = a_webhook_event(thread)
    await commit(full_backend, webhook_events=[first])
    before = await everything(full_backend)
    wrong = {Refused: a_webhook_event(an_unknown_thread()), Conflict: first}
    for error, event in wrong.items():
        for steps in ([], [change(thread, said("x"))], [a_delivery(thread)]):
            await refused(
                error, commit(full_backend, *steps, webhook_events=[a_webhook_event(thread), event]), error.__name__
            )
            assert await everything(full_backend) == before


async def test_delivered_is_compared_only_when_set(full_backend: FullBackend) -> None:
    head = await held(full_backend, await created(full_backend))
    await commit(full_backend, a_delivery(head))
    with pytest.raises(Conflict):
        await commit(full_backend, change(head, delivered=head.delivered, head={"status": "waiting"}))
    (receipt,) = await commit(full_backend, change(head, said("x")))
    assert receipt.delivered == 1, "the receipt reports the delivery to the holder"


@pytest.mark.req("S3-014")
async def test_change_of_missing_thread_conflicts(full_backend: FullBackend) -> None:
    with pytest.raises(Conflict):
        await commit(full_backend, change(an_unknown_thread(), said("x")))


async def test_delivery_to_missing_thread_rejects_whole_commit(full_backend: FullBackend) -> None:
    thread = await created(full_backend)
    before = await everything(full_backend)
    with pytest.raises(NotFound):
        await commit(full_backend, change(thread, said("x")), a_delivery(an_unknown_thread()), threads=[a_thread()])
    assert await everything(full_backend) == before


async def test_rejects_stitch_of_missing_run(full_backend: FullBackend) -> None:
    thread = await created(full_backend)
    before = await everything(full_backend)
    with pytest.raises(Refused):
        await commit(full_backend, change(thread, said("x"), said("y", run_id=new_id())))
    assert await everything(full_backend) == before


@pytest.mark.req("S3-023", "S3-024", "S3-025", "X3-03")
async def test_rejects_forked_chain(store: Store) -> None:
    """The backend rejects it, even if the compare-and-set fits and the writer sends a wrong chain."""
    full_backend = store._backend
    thread = await created(full_backend)
    head = await grown(full_backend, thread, answered("first"), answered("second"))
    (next_one,) = stitched(head, answered("third"))
    first = (await full_backend.read(thread.id, [(1, 1)]))[0].id
    other_head = await grown(full_backend, await created(full_backend), answered("elsewhere"))
    before = await everything(full_backend)
    for name, previous in (("none", None), ("one that is followed", first), ("itself", next_one.id)):
        forged = change(head, stitches=[next_one.changed(previous_id=previous)])
        await refused(LockstitchError, commit(full_backend, forged), name)
        assert await everything(full_backend) == before
    # The store sets it. A caller cannot refer to a stitch of another thread, and `verify` reports a forged reference.
    with pytest.raises(Refused):
        Entry(type="llm_call", previous_id=other_head.tip_id)
    try:
        await commit(full_backend, change(head, stitches=[next_one.changed(previous_id=other_head.tip_id)]))
    except LockstitchError:
        assert await everything(full_backend) == before
    else:
        assert f"follows {other_head.tip_id}, not {head.tip_id}" in str((await store.verify()).problems)


@pytest.mark.req("S0-076", "X0-03")
async def test_rejects_duplicates_of_unique_values(full_backend: FullBackend) -> None:
    thread = await created(full_backend)
    run = a_run(thread)
    head = await grown(full_backend, thread, said("x"), new_runs=[run], head={"last_sequence": 1, "last_turn": 1})
    (stitch,) = await full_backend.read(thread.id, [(1, 1)])
    (fresh,) = stitched(head, said("y"))
    second = a_run(head)
    wrong: dict[str, dict[str, Any]] = {
        "id": {"stitches": [fresh.changed(id=stitch.id)]},
        "position": {"stitches": [fresh.changed(position=1)]},
        "sequence": {"new_runs": [second.changed(sequence=1)]},
        "turn": {"new_runs": [second.changed(turn=1)]},
    }
    before = await everything(full_backend)
    for twin, fields in wrong.items():
        await refused(Conflict, commit(full_backend, change(head, **fields)), f"a second {twin}")
        assert await everything(full_backend) == before


@pytest.mark.req("S0-076", "X0-23")
@pytest.mark.parametrize("name", ["id", "sequence", "turn"])
async def test_database_rejects_duplicates_of_runs(store: Store, store_url: str, backend: str, name: str) -> None:
    """Also without the store: a row that is inserted directly cannot repeat an id, a sequence or a turn."""
    thread = await store.create()
    run = store.new_run(thread, status="completed")
    await store.append(thread, [said("x", run_id=run.id)], new_runs=[run])
    values = {"id": f"'{new_id()}'", "sequence": "2", "turn": "2"}
    del values[name]
    if backend == "sqlite":
        with sqlite3.connect(store_url.removeprefix("sqlite:///")) as connection, pytest.raises(sqlite3.IntegrityError):
            connection.execute(copy_of("run_rows", connection.execute("SELECT * FROM run_rows").description, values))
    elif backend == "postgres":
        with psycopg.connect(store_url) as connection:
            columns = connection.execute("SELECT * FROM lockstitch.runs").description
            with pytest.raises(psycopg.errors.UniqueViolation):
                connection.execute(copy_of("lockstitch.runs", columns, values).encode())
    assert [stored.id for stored in await store.runs(thread)] == [run.id]


def copy_of(table: str, columns: Any, values: dict[str, str]) -> str:
    """Return a statement that inserts a copy of the row of a table, with these values changed."""
    names = [column[0] for column in columns if column[0] not in ("no", "shown_id", "elapsed")]
    return f"INSERT INTO {table} ({', '.join(names)}) SELECT {', '.join(values.get(n, n) for n in names)} FROM {table}"


async def test_key_is_unique_within_project(full_backend: FullBackend) -> None:
    first = await created(full_backend, key="k")
    await created(full_backend, key="k", project="elsewhere")
    await created(full_backend, key="K")
    thread = await created(full_backend)
    before = await everything(full_backend)
    with pytest.raises(KeyTaken):
        await commit(full_backend, change(thread, said("x")), threads=[a_thread(), a_thread(key="k")])
    with pytest.raises(Conflict):
        await commit(full_backend, threads=[a_thread(id=first.id, key="another")])
    assert await everything(full_backend) == before


WRONG_THREADS: dict[str, dict[str, Any]] = {
    "a parent that is not there": {"parent_id": new_id(), "depth": 1},
    "a goal without a goal": {"kind": "goal"},
    "a result before the end": {"kind": "goal", "goal": "g", "result": {}},
    "an end without a result": {"kind": "task", "goal": "g", "status": "completed"},
}


@pytest.mark.req("S3-003", "S3-012", "X3-13")
async def test_rejects_invalid_threads(full_backend: FullBackend, backend: str) -> None:
    before = await everything(full_backend)
    for name, fields in WRONG_THREADS.items():
        await refused(Refused, commit(full_backend, threads=[a_thread(**fields)]), name)
    for name in ("created_at", "updated_at"):
        with pytest.raises(Refused):
            a_thread(**{name: None})
        # A column of a database is NOT NULL, even if the record bypasses the validation.
        if backend != "files":
            await refused(LockstitchError, commit(full_backend, threads=[a_thread().changed(**{name: None})]), name)
    assert await everything(full_backend) == before


@pytest.mark.req("S3-013")
async def test_rejects_thread_as_its_own_ancestor(store: Store) -> None:
    """A thread cannot be its own parent, and a parent never changes."""
    own_id = new_id()
    with pytest.raises(Refused):
        await commit(store._backend, threads=[a_thread(id=own_id, parent_id=own_id)])
    root = await store.create()
    child = await store.create(parent_id=root.id)
    with pytest.raises(Refused):
        await store.append(root, [said("x")], fields={"parent_id": child.id})
    assert [thread.id for thread in await store.ancestors(child)] == [root.id]
    assert await store.ancestors(root) == []


@pytest.mark.req("S3-003", "S3-005", "S3-012")
async def test_store_rejects_invalid_threads_and_updates(store: Store) -> None:
    with pytest.raises(Refused):
        await store.create(kind="goal", goal="")
    with pytest.raises(Refused):
        await store.create(status="sleeping")
    head = await store.create(kind="goal", goal="g")
    assert (head.status, head.result) == ("pending", None)
    with pytest.raises(Refused):
        await store.append(head, [said("x")], fields={"status": "completed"})
    head = (await store.append(head, fields={"status": "completed", "result": {"ok": True}})).head
    with pytest.raises(ThreadEnded):
        await store.append(head, [said("more")])
    assert await store.stitches(head) == []


async def test_only_the_holder_appends(store: Store, store_url: str) -> None:
    backend = store._backend
    head = await held(backend, await created(backend))
    with pytest.raises(ThreadBusy):
        await store.append(head, [said("x")])
    assert (await head_of(backend, head)).position == 0


WRONG_ENTRIES: list[dict[str, Any]] = [
    {"type": "llm_call", "reply_to": 1},
    {"type": "llm_call", "child_id": new_id()},
    {"type": "tool_call", "name": "look", "call_id": "c", "child_id": new_id()},
    {"type": "thread_result", "child_id": new_id(), "reply_to": 1},
    {"type": ""},
    {},
]
FORGED_ENTRIES: list[dict[str, Any]] = [
    {"type": "tool_call", "name": "look"},
    {"type": "tool_call", "call_id": "c1"},
    {"type": "thread_result"},
]


@pytest.mark.req("S3-016", "S3-021")
async def test_stitch_has_the_fields_of_its_type(full_backend: FullBackend) -> None:
    """The model rejects it. If the record bypasses that validation, the backend rejects it."""
    for fields in (*WRONG_ENTRIES, *FORGED_ENTRIES):
        with pytest.raises(Refused):
            Entry(**fields)
    head = await created(full_backend)
    before = await everything(full_backend)
    for fields in FORGED_ENTRIES:
        with pytest.raises(Refused):
            await commit(full_backend, change(head, said("x").changed(**fields)))
    assert await everything(full_backend) == before


@pytest.mark.req("S3-072")
async def test_types_of_earlier_implementations_are_stored(store: Store) -> None:
    types = ["initial_prompt", "system_prompt", "agent_thought", "clarification_request", "error"]
    head = await store.create()
    entries = [Entry(type=type, name="helper", data={"text": type}) for type in types]
    head = (await store.append(head, [*entries, answered("Yes.")])).head
    assert [(stitch.type, stitch.data) for stitch in await store.stitches(head, 1, 5)] == [
        (type, {"text": type}) for type in types
    ]
    last = await store.last_stitch(head)
    assert last is not None
    assert (last.position, last.previous_id) == (6, None), "they are not in the list of a thread"
    assert (await store.verify()).problems == []


async def test_records_are_validated_when_created() -> None:
    with pytest.raises(Refused):
        Run(thread_id=new_id(), sequence=-1, turn=1, first_position=1, started_at=NOW)
    with pytest.raises(Refused):
        Stitch(type="input", thread_id=new_id(), position=2**63)
    with pytest.raises(Refused):
        a_goal(goal="")
