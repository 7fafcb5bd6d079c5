"""Effects of a delivery on a thread: all cases."""

from datetime import UTC, datetime
from itertools import product
from typing import Any
from uuid import UUID

import pytest

from lockstitch.errors import Refused
from lockstitch.model import TERMINAL_STATUSES, Delivery, Entry, Thread, new_id
from lockstitch.model.delivery import apply_delivery, wakes_thread
from tests.waits import waiting

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = datetime(2026, 1, 2, tzinfo=UTC)
KINDS = ("children", "frontend_tools", "approval", "doubt", "input", "timer", "retry")


def head(**fields: Any) -> Thread:
    return Thread(
        **{"kind": "goal", "goal": "g", "created_at": NOW, "updated_at": NOW, "position": 4, "fence": 3, **fields}
    )


def new_delivery(thread: Thread, kind: str = "input", call_id: str = "", entry: Entry | None = None) -> Delivery:
    entry = entry or Entry(type="note", message={"role": "user", "content": "hi"})
    body = entry.as_json()
    return Delivery(thread_id=thread.id, sender="sender", kind=kind, call_id=call_id, entry=body, at=NOW)


def report(thread: Thread, child: UUID, **more: Any) -> Delivery:
    """Return a child's delivery to its parent."""
    return new_delivery(thread, "children", entry=Entry(type="thread_result", child_id=child, **more))


def after(thread: Thread, delivery: Delivery) -> Thread:
    """Return the thread after a delivery."""
    return thread.changed(**apply_delivery(thread, delivery, LATER).head)


def waits(*kinds: str, **more: Any) -> dict[str, Any]:
    return {"status": "waiting", "waiting_for": [waiting(kind, NOW, **more) for kind in kinds]}


@pytest.mark.parametrize(("status", "kind"), [*product(sorted(TERMINAL_STATUSES), KINDS)])
def test_delivery_does_not_change_ended_thread(status: str, kind: str) -> None:
    thread = head(status=status, pending_children=2)

    assert apply_delivery(thread, new_delivery(thread, kind), LATER) == (None, {}, None)


@pytest.mark.parametrize(("status", "kind"), [*product(["running", "pending", "waiting"], KINDS)])
def test_delivery_to_held_thread_waits_in_inbox(status: str, kind: str) -> None:
    thread = head(
        status=status, worker_id=new_id(), waiting_for=[waiting("input", NOW)], delivered=5, pending_children=2
    )
    delivery = new_delivery(thread, kind)

    arrival = apply_delivery(thread, delivery, LATER)

    expected = {"delivered": 6, "updated_at": LATER}
    if kind == "children":
        expected["pending_children"] = 1
    assert arrival == (delivery, expected, None)


@pytest.mark.parametrize(("status", "kind"), [*product(["running", "pending"], KINDS)])
def test_delivery_to_free_thread_becomes_stitch_at_once(status: str, kind: str) -> None:
    thread = head(status=status, delivered=5, pending_children=2, tip_id=new_id())
    delivery = new_delivery(thread, kind)

    arrival = apply_delivery(thread, delivery, LATER)

    assert arrival.stitch is not None
    assert (arrival.stitch.position, arrival.stitch.fence) == (5, 3)
    assert arrival.delivery == delivery.changed(entry=None, position=5)
    assert arrival.head["delivered"] == 6
    assert arrival.head["position"] == 5
    assert arrival.head.get("pending_children") == (1 if kind == "children" else None)
    # The thread does not wait, so nothing wakes it. An event is not part of the chain.
    assert not {"status", "waiting_for", "wake_at", "tip_id"} & arrival.head.keys()


@pytest.mark.parametrize(("kind", "awaited"), [*product(KINDS, KINDS)])
def test_only_awaited_delivery_wakes_thread(kind: str, awaited: str) -> None:
    thread = head(**waits(awaited), pending_children=1)

    arrival = apply_delivery(thread, new_delivery(thread, kind), LATER)

    woken = {"status": "pending", "waiting_for": [], "wake_at": LATER}
    assert (arrival.head.items() >= woken.items()) == (kind == awaited)
    if kind != awaited:
        assert not woken.keys() & arrival.head.keys()
    assert arrival.stitch is not None


MESSAGE = Entry(type="input", message={"role": "user", "content": "hi"})


@pytest.mark.parametrize(("status", "kind"), [*product(["running", "pending"], ["chat", "goal"])])
def test_message_to_free_thread_waits_in_inbox(status: str, kind: str) -> None:
    thread = head(status=status, kind=kind, delivered=5)
    delivery = new_delivery(thread, entry=MESSAGE)

    assert apply_delivery(thread, delivery, LATER) == (delivery, {"delivered": 6, "updated_at": LATER}, None)


def test_message_wakes_thread_that_waits_for_next_message() -> None:
    thread = head(kind="chat", **waits("input"))
    delivery = new_delivery(thread, entry=MESSAGE)

    arrival = apply_delivery(thread, delivery, LATER)

    assert (arrival.delivery, arrival.stitch) == (delivery, None)
    woken = {"status": "pending", "waiting_for": [], "awaiting_person_since": None, "wake_at": LATER}
    assert arrival.head == {"delivered": 1, "updated_at": LATER, **woken}


@pytest.mark.parametrize("awaited", [waits("approval", id="c"), waits("input", id="c"), waits("children")])
def test_message_does_not_wake_thread_with_waiting_run(awaited: dict[str, Any]) -> None:
    thread = head(kind="chat", **awaited)

    assert apply_delivery(thread, new_delivery(thread, entry=MESSAGE), LATER).head == {
        "delivered": 1,
        "updated_at": LATER,
    }


def test_one_of_several_waits_is_enough_to_wake() -> None:
    thread = head(**waits("timer", "approval", "input"))

    assert wakes_thread(thread, new_delivery(thread, "approval"))
    assert not wakes_thread(thread, new_delivery(thread, "children"))


@pytest.mark.parametrize(
    ("awaited", "given", "woken"),
    [("call-1", "call-1", True), ("call-1", "call-2", False), (None, "call-1", True), ("call-1", "", True)],
)
def test_only_own_delivery_answers_named_call(awaited: str | None, given: str, woken: bool) -> None:
    thread = head(**waits("approval", id=awaited))

    assert wakes_thread(thread, new_delivery(thread, "approval", given)) is woken


@pytest.mark.parametrize(
    ("mode", "pending", "woken"), [("all", 3, False), ("all", 1, True), ("any", 3, True), ("any", 1, True)]
)
def test_thread_waits_for_all_or_any_children(mode: str, pending: int, woken: bool) -> None:
    thread = head(**waits("children", mode=mode), pending_children=pending)

    arrival = apply_delivery(thread, new_delivery(thread, "children"), LATER)

    assert (arrival.head.get("status") == "pending") is woken
    assert arrival.head["pending_children"] == pending - 1


def test_thread_waits_for_all_children_by_default() -> None:
    waits_for_second, waits_for_first = (head(**waits("children"), pending_children=pending) for pending in (2, 1))

    assert not wakes_thread(waits_for_second, new_delivery(waits_for_second, "children"))
    assert wakes_thread(waits_for_first, new_delivery(waits_for_first, "children"))


@pytest.mark.parametrize("mode", ["all", None])
def test_thread_waits_only_for_named_children(mode: str | None) -> None:
    first, second, stranger = new_id(), new_id(), new_id()
    how = {"mode": mode} if mode else {}
    thread = head(**waits("children", ids=[str(first), str(second)], **how), pending_children=3)

    still = after(thread, report(thread, stranger))
    assert (still.status, still.waiting_for) == ("waiting", thread.waiting_for)
    assert (still.pending_children, still.position) == (2, 5)

    fewer = after(still, report(still, second))
    assert fewer.status == "waiting"
    assert fewer.waiting_for == [{**thread.waiting_for[0], "ids": [str(first)]}]

    woken = after(fewer, report(fewer, first))
    assert (woken.status, woken.waiting_for, woken.wake_at, woken.pending_children) == ("pending", [], LATER, 0)


def test_any_named_child_is_enough_in_mode_any() -> None:
    first, second, stranger = new_id(), new_id(), new_id()
    thread = head(**waits("children", ids=[str(first), str(second)], mode="any"), pending_children=3)

    assert not wakes_thread(thread, report(thread, stranger))
    assert wakes_thread(thread, report(thread, first))
    assert wakes_thread(thread, report(thread, second))


def test_child_named_twice_reports_once() -> None:
    child = new_id()
    thread = head(**waits("children", ids=[str(child), str(child)]), pending_children=1)

    assert wakes_thread(thread, report(thread, child))


def test_last_open_child_does_not_wake_thread_that_waits_for_another() -> None:
    """The count of children does not matter if the thread waits for named children."""
    thread = head(**waits("children", ids=[str(new_id())]), pending_children=1)

    assert not wakes_thread(thread, report(thread, new_id()))


def test_report_removes_only_awaited_names() -> None:
    """The other waits do not change, also if the thread has two waits at once."""
    child, other_child = new_id(), new_id()
    approval = waiting("approval", NOW, "call-1", ids=[str(child)])
    thread = head(**waits("children", ids=[str(child), str(other_child)]), pending_children=2)
    thread = thread.changed(waiting_for=[approval, *thread.waiting_for])

    remaining = after(thread, report(thread, child)).waiting_for

    assert remaining[1]["ids"] == [str(other_child)]
    assert remaining[0] == approval


def test_held_thread_keeps_names_until_holder_decides() -> None:
    child = new_id()
    thread = head(**waits("children", ids=[str(child)]), pending_children=1).changed(
        status="running", worker_id=new_id()
    )

    assert after(thread, report(thread, child)).waiting_for == thread.waiting_for


def test_other_deliveries_do_not_change_names() -> None:
    thread = head(**waits("children", ids=[str(new_id())]), pending_children=1)

    assert after(thread, new_delivery(thread, "input")).waiting_for == thread.waiting_for


def test_pending_children_never_fall_below_zero() -> None:
    thread = head(pending_children=0)

    assert apply_delivery(thread, new_delivery(thread, "children"), LATER).head["pending_children"] == 0


def test_thread_result_becomes_tip() -> None:
    tip, run = new_id(), new_id()
    thread = head(**waits("children"), pending_children=1, tip_id=tip)
    message = {"role": "user", "content": "done"}
    entry = Entry(type="thread_result", child_id=new_id(), run_id=run, message=message)

    arrival = apply_delivery(thread, new_delivery(thread, "children", entry=entry), LATER)

    assert arrival.stitch is not None
    assert arrival.stitch.previous_id == tip
    assert arrival.head["tip_id"] == arrival.stitch.id == entry.id
    assert arrival.stitch.message == entry.message
    assert arrival.stitch.run_id == run, "it belongs to the run that created the child"


def test_delivery_contains_its_entry_unchanged() -> None:
    entry = Entry(type="input", message={"z": 1, "role": "user", "content": [2**70]}, at=LATER, data={"b": 1, "a": 2})
    delivery = new_delivery(head(), entry=entry)

    assert delivery.as_entry() == entry
    assert list(delivery.as_entry().message or {}) == ["z", "role", "content"]


def test_delivery_needs_a_sender() -> None:
    with pytest.raises(Refused, match="sender"):
        Delivery(thread_id=new_id(), sender="", kind="input", at=NOW)
