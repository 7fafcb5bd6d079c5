"""Properties of `plan_commit`: positions, tips, run numbers and lock order of any transaction."""

from copy import deepcopy
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstitch.backend import ThreadChange
from lockstitch.errors import Refused, ThreadBusy, ThreadEnded
from lockstitch.model import Delivery, Entry, Run, Thread, new_id
from lockstitch.store import ThreadUpdate, Transaction
from lockstitch.store.transaction import head_after, plan_commit

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
WORKER = new_id()
RESULT: dict[str, Any] = {"role": "user", "content": "done"}

entries = st.builds(
    lambda make: make(),
    st.sampled_from(
        [
            lambda: Entry(type="input", message={"role": "user", "content": "go"}),
            lambda: Entry(type="llm_call", message={"role": "assistant", "content": "yes"}),
            lambda: Entry(type="thread_result", child_id=new_id(), message=RESULT),
            lambda: Entry(type="compaction", data={"applied": True}),
            lambda: Entry(type="api_retry"),
        ]
    ),
)


def delivery(thread: Thread) -> Delivery:
    entry = Entry(type="thread_result", child_id=new_id(), message=RESULT, at=NOW)
    return Delivery(thread_id=thread.id, sender=str(new_id()), kind="children", entry=entry.as_json(), at=NOW)


@st.composite
def heads(draw: st.DrawFn, depth: int, parent: Thread | None) -> Thread:
    is_held = draw(st.booleans())
    return Thread(
        kind="goal",
        goal="g",
        parent_id=parent.id if parent else None,
        depth=depth,
        status="running" if is_held else "pending",
        worker_id=WORKER if is_held else None,
        fence=draw(st.integers(0, 3)),
        position=draw(st.integers(0, 9)),
        tip_id=draw(st.none() | st.builds(new_id)),
        last_sequence=draw(st.integers(0, 5)),
        last_turn=draw(st.integers(0, 5)),
        pending_children=draw(st.integers(0, 2)),
        delivered=draw(st.integers(0, 2)),
        created_at=NOW,
        updated_at=NOW,
    )


@st.composite
def updates(draw: st.DrawFn, head: Thread) -> ThreadUpdate:
    runs = [
        Run(
            thread_id=head.id,
            sequence=draw(st.integers(0, 9)),
            turn=draw(st.integers(0, 9)),
            first_position=1,
            parent_run_id=draw(st.none() | st.builds(new_id)),
            started_at=NOW,
        )
        for _ in range(draw(st.integers(0, 3)))
    ]
    return ThreadUpdate(
        head,
        draw(st.lists(entries, max_size=4)),
        draw(st.sampled_from([{}, {"title": "t"}, {"status": "waiting"}, {"status": "cancelled"}])),
        runs,
        consumed=[delivery(head) for _ in range(draw(st.integers(0, 2)))],
    )


@st.composite
def transactions(draw: st.DrawFn) -> Transaction:
    """A tree of threads, some of them updated, with deliveries to any of them and new children below any of them."""
    tree: list[Thread] = []
    for _ in range(draw(st.integers(1, 5))):
        parent = draw(st.none() | st.sampled_from(tree)) if tree else None
        tree.append(draw(heads(parent.depth + 1 if parent else 0, parent)))
    transaction = Transaction(depths={head.id: head.depth for head in tree})
    for head in draw(st.permutations(tree)):
        if draw(st.booleans()):
            transaction.updates.append(draw(updates(head)))
    transaction.deliveries = [delivery(head) for head in draw(st.lists(st.sampled_from(tree), max_size=4))]
    parents = draw(st.lists(st.sampled_from(tree), max_size=3))
    transaction.new_threads = [
        Thread(kind="task", goal="g", parent_id=parent.id, depth=parent.depth + 1, created_at=NOW, updated_at=NOW)
        for parent in parents
    ]
    return transaction


def changes(transaction: Transaction) -> list[tuple[ThreadUpdate, ThreadChange]]:
    commit = plan_commit(transaction, WORKER, NOW + timedelta(seconds=1))
    by_thread = {step.thread_id: step for step in commit.steps if isinstance(step, ThreadChange)}
    return [(update, by_thread[update.head.id]) for update in transaction.updates]


@given(transactions())
def test_positions_are_consecutive(transaction: Transaction) -> None:
    for update, change in changes(transaction):
        first = update.head.position + 1
        assert [stitch.position for stitch in change.stitches] == list(range(first, first + len(change.stitches)))
        assert len(change.stitches) == len(update.consumed) + len(update.entries)
        assert change.consumed == [(row.id, first + number) for number, row in enumerate(update.consumed)]
        assert [stitch.id for stitch in change.stitches[len(update.consumed) :]] == [
            entry.id for entry in update.entries
        ]
        assert head_after(update, change).position == update.head.position + len(change.stitches)


@given(transactions())
def test_tips_form_a_chain(transaction: Transaction) -> None:
    for update, change in changes(transaction):
        chain = [stitch for stitch in change.stitches if stitch.in_chain]
        assert [stitch.previous_id for stitch in chain[:1]] == [update.head.tip_id][: len(chain)]
        assert all(after.previous_id == before.id for before, after in pairwise(chain))
        assert all(stitch.previous_id is None for stitch in change.stitches if not stitch.in_chain)
        assert head_after(update, change).tip_id == (chain[-1].id if chain else update.head.tip_id)


@given(transactions())
def test_steps_are_in_lock_order(transaction: Transaction) -> None:
    commit = plan_commit(transaction, WORKER, NOW)
    steps = [step for step in commit.steps if isinstance(step, ThreadChange | Delivery)]
    keys = [(-transaction.depths[step.thread_id], step.thread_id) for step in steps]
    assert keys == sorted(keys)
    assert len(steps) == len(commit.steps) == len(transaction.updates) + len(transaction.deliveries)
    for head in transaction.depths:
        planned = [step for step in steps if step.thread_id == head]
        # The change of the thread is first, and its deliveries keep their order.
        assert [step for step in planned if isinstance(step, Delivery)] == [
            row for row in transaction.deliveries if row.thread_id == head
        ]
        assert not any(isinstance(step, ThreadChange) for step in planned[1:])
    assert [thread.depth for thread in commit.new_threads] == sorted(thread.depth for thread in transaction.new_threads)


@given(transactions())
def test_run_numbers_are_consecutive(transaction: Transaction) -> None:
    for update, change in changes(transaction):
        head, runs = update.head, change.new_runs
        assert [run.sequence for run in runs] == [head.last_sequence + number for number in range(1, len(runs) + 1)]
        turns = [head.last_turn, *(run.turn for run in runs)]
        assert [after - before for before, after in pairwise(turns)] == [int(run.parent_run_id is None) for run in runs]
        after = head_after(update, change)
        assert (after.last_sequence, after.last_turn) == (head.last_sequence + len(runs), turns[-1])


@given(transactions())
def test_children_of_updated_threads_are_counted(transaction: Transaction) -> None:
    for update, change in changes(transaction):
        children = [thread for thread in transaction.new_threads if thread.parent_id == update.head.id]
        assert change.new_children == len(children)
        assert head_after(update, change).pending_children == update.head.pending_children + len(children)


@given(transactions(), st.sampled_from(["held", "ended", "fixed field", "second update"]))
@settings(max_examples=50)
def test_rejected_plan_changes_nothing(transaction: Transaction, problem: str) -> None:
    head = Thread(kind="goal", goal="g", created_at=NOW, updated_at=NOW)
    invalid_updates = {
        "held": [ThreadUpdate(head.changed(worker_id=new_id(), status="running"))],
        "ended": [ThreadUpdate(head.changed(status="cancelled"))],
        "fixed field": [ThreadUpdate(head, fields={"position": 7})],
        "second update": [ThreadUpdate(head), ThreadUpdate(head)],
    }
    transaction.updates += invalid_updates[problem]
    transaction.depths[head.id] = 0
    before = deepcopy(transaction)
    with pytest.raises((ThreadBusy, ThreadEnded, Refused)):
        plan_commit(transaction, WORKER, NOW)
    assert transaction == before


@given(transactions())
@settings(max_examples=50)
def test_plan_changes_nothing(transaction: Transaction) -> None:
    before = deepcopy(transaction)
    plan_commit(transaction, WORKER, NOW)
    assert transaction == before


def test_update_returns_the_same_object_for_a_thread() -> None:
    head = Thread(created_at=NOW, updated_at=NOW)
    transaction = Transaction()
    update = transaction.update(head)
    assert transaction.update(head.changed(title="t")) is update
    assert transaction.updates == [update]
    assert transaction.update(Thread(created_at=NOW, updated_at=NOW)) is not update
