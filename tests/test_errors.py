"""Errors: the words and names of conflicts on the wire, and the class that a client rebuilds."""

import pytest

from lockstitch import errors
from lockstitch.client.connection import error_from_response
from lockstitch.errors import Conflict, LockstitchError, ThreadBusy, ThreadHeld, ThreadWaiting
from lockstitch.model import codec
from lockstitch.server.problems import as_json, problem_of

CONFLICTS = {
    errors.StalePosition: ("Conflict", "position"),
    errors.StaleFence: ("Conflict", "fence"),
    errors.UnseenDeliveries: ("Conflict", "delivered"),
    errors.CancelRequested: ("Conflict", "cancelled"),
    errors.ThreadDeleted: ("Conflict", "gone"),
    errors.AlreadyStarted: ("Conflict", "begun"),
    errors.AlreadyAnswered: ("Conflict", "answered"),
    errors.RunInterrupted: ("Conflict", "cut_off"),
    errors.MessageIdReused: ("Conflict", "message_id"),
    errors.ThreadBusy: ("ThreadBusy", None),
    errors.ThreadHeld: ("ThreadBusy", "holder"),
    errors.LimitReached: ("ThreadBusy", "limit"),
    errors.WorkerDeclaredDead: ("ThreadBusy", "dead"),
    errors.TakenOver: ("ThreadBusy", "taken_over"),
    errors.ThreadWaiting: ("ThreadWaiting", "waiting"),
    errors.NoOpenRun: ("ThreadWaiting", "idle"),
    errors.ThreadEnded: ("ThreadEnded", None),
    errors.KeyTaken: ("KeyTaken", None),
    errors.Conflict: ("Conflict", None),
}


def test_pins_wire_name_and_reason_of_every_conflict() -> None:
    error_classes = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Conflict)]

    assert {kind: (kind.wire_name, kind.reason) for kind in error_classes} == CONFLICTS
    reasons = [reason for _, reason in CONFLICTS.values() if reason]
    assert len(reasons) == len(set(reasons))
    for kind in error_classes:
        documented = getattr(errors, kind.wire_name)
        assert issubclass(kind, documented)
        assert kind.exit_code == 4


@pytest.mark.parametrize("kind", CONFLICTS)
def test_client_rebuilds_the_class_from_problem_json(kind: type[Conflict]) -> None:
    title, reason = CONFLICTS[kind]
    problem = as_json(problem_of(kind("No.")))

    more = {"reason": reason} if reason else {}
    assert problem == {"type": "about:blank", "title": title, "status": 409, "detail": "No.", **more}
    rebuilt = error_from_response(409, codec.dumps(problem))
    assert (type(rebuilt), str(rebuilt)) == (kind, "No.")


def test_client_reads_problems_without_or_with_unknown_reason() -> None:
    for more in ({}, {"reason": None}, {"reason": "later"}, {"reason": ["x"]}, {"reason": "idle"}):
        body = codec.dumps({"title": "ThreadBusy", "detail": "No.", **more})
        assert type(error_from_response(409, body)) is ThreadBusy
    assert type(error_from_response(404, codec.dumps({"title": "NotFound", "reason": "holder"}))) is errors.NotFound


def test_subclasses_of_applications_keep_their_names() -> None:
    class SessionBusy(Conflict):
        """The session is busy."""

    assert (SessionBusy.wire_name, SessionBusy.reason, str(SessionBusy())) == (
        "SessionBusy",
        None,
        "The session is busy.",
    )
    assert errors.wire_name_of(SessionBusy()) == "SessionBusy"
    assert errors.wire_name_of(ValueError("x")) == "ValueError"
    assert errors.wire_name_of(ThreadHeld()) == "ThreadBusy"


def test_thread_held_says_who_holds_the_thread() -> None:
    error = ThreadHeld("Held.", pid=7, host="h", lease_remaining=3.5)

    assert (error.pid, error.host, error.lease_remaining, error.thread_id) == (7, "h", 3.5, None)
    assert isinstance(error, ThreadBusy)
    assert not isinstance(error, ThreadWaiting)


def test_every_error_has_a_default_message() -> None:
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, LockstitchError) and kind is not errors.Unreadable:
            assert str(kind()).endswith(".")
