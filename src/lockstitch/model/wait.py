"""`Wait` and its nine subclasses: the entries of `Thread.waiting_for`, from and to the stored JSON.

    Wait                      an unknown kind; it is stored again unchanged
    ├── CallWait              a person or a browser replies to a tool call
    │   ├── ApprovalWait      approval
    │   ├── InDoubtWait       doubt
    │   ├── QuestionWait      input, with the id of a call
    │   └── FrontendToolWait  frontend_tools
    ├── NextMessageWait       input, without an id
    ├── ChildrenWait          children
    ├── TimerWait             timer
    ├── RetryWait             retry
    └── DepsWait              deps

A wait is a view of its stored JSON: each property reads one key, and `as_json` returns the JSON unchanged.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, ClassVar, Literal, Self
from uuid import UUID

from lockstitch.model.clock import format_time, parse_time
from lockstitch.model.ids import as_id
from lockstitch.model.record import Json


class Wait:
    """One entry of `Thread.waiting_for`. Immutable."""

    __slots__ = ("_json",)

    KIND: ClassVar[str] = ""
    """The stored kind of the instances of a subclass."""
    needs_person: ClassVar[bool] = False
    """True if only a reply from outside ends the wait."""

    _json: Json

    def __init__(
        self, since: datetime, *, call_id: str | None = None, until: datetime | None = None, **fields: Any
    ) -> None:
        self._json = {
            "kind": self.KIND,
            "id": call_id,
            "since": format_time(since),
            "until": format_time(until) if until else None,
            **fields,
        }

    @classmethod
    def of_json(cls, stored: Json) -> Self:
        """Return an instance of this class. `parse_wait` chooses the class.

        Args:
            stored: An entry of `Thread.waiting_for`.
        """
        wait = cls.__new__(cls)
        wait._json = stored
        return wait

    @property
    def kind(self) -> str:
        """Kind of the wait, as it is stored."""
        return str(self._json.get("kind"))

    @property
    def since(self) -> datetime | None:
        """The time at which the thread started to wait; None if the entry has no valid time."""
        return _time(self._json.get("since"))

    @property
    def until(self) -> datetime | None:
        """The time at which the wait ends at the latest; None if there is no limit."""
        return _time(self._json.get("until"))

    @property
    def call_id(self) -> str | None:
        """The id of the call that the thread waits for, if it waits for a call. Ids may repeat within a thread."""
        return self._json.get("id")

    @property
    def key(self) -> str | None:
        """The key of the call (`call_key`), which is unique."""
        return self._json.get("key")

    @property
    def name(self) -> str | None:
        """The name of the tool or team member."""
        return self._json.get("name")

    @property
    def run_id(self) -> UUID | None:
        """The run of the team member that waits; None if the run of the thread itself waits."""
        run_id = self._json.get("run")
        return as_id(str(run_id)) if run_id else None

    @property
    def agent(self) -> str | None:
        """The agent of the team member that made the call."""
        return self._json.get("agent")

    @property
    def reason(self) -> str | None:
        """Reason why the thread cannot continue: an error, or the code or the `deps` that are missing."""
        return self._json.get("reason")

    @property
    def is_rest(self) -> bool:
        """True if no open run waits: the thread rests until its next message or its next attempt."""
        return False

    def names(self, call: str) -> bool:
        """Return True if a text is the id or the key of the call that the thread waits for.

        Args:
            call: Id or key of a call.
        """
        return call in (self._json.get("id"), self._json.get("key"))

    def of_member(self, run_id: UUID, agent: str | None) -> "Wait":
        """Return this wait as one of a team member's run. A wait that has a run or an agent keeps it.

        Args:
            run_id: Id of the member's run.
            agent: Name of the member.
        """
        run = self._json.get("run") or str(run_id)
        return self.of_json({**self._json, "run": run, "agent": self.agent or agent})

    def as_json(self) -> Json:
        """Return the stored form. Callers do not change it."""
        return self._json

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Wait) and self._json == other._json

    def __hash__(self) -> int:
        return hash((self.kind, self.call_id, self.key))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._json!r})"


class CallWait(Wait):
    """A person or a browser replies to a tool call."""

    __slots__ = ()

    needs_person = True

    def __init__(self, since: datetime, *, call_id: str, key: str, name: str, **fields: Any) -> None:
        super().__init__(since, call_id=call_id, key=key, name=name, **fields)


class ApprovalWait(CallWait):
    """A person approves or denies a call before it starts."""

    __slots__ = ()

    KIND = "approval"


class InDoubtWait(CallWait):
    """A person states the outcome of a call that was interrupted. `agent` is the member that made the call."""

    __slots__ = ()

    KIND = "doubt"

    def __init__(self, since: datetime, *, call_id: str, key: str, name: str, agent: str | None = None) -> None:
        super().__init__(since, call_id=call_id, key=key, name=name, **({"agent": agent} if agent else {}))

    def as_doubt(self) -> Json:
        """Return the call as `Result.in_doubt` lists it."""
        member = {name: self._json[name] for name in ("run", "agent") if name in self._json}
        return {"call_id": self.call_id, "name": self.name, **member}


class QuestionWait(CallWait):
    """A person answers a question that the model asked in a call."""

    __slots__ = ()

    KIND = "input"

    def __init__(self, since: datetime, *, call_id: str, key: str, name: str, question: str | None) -> None:
        super().__init__(since, call_id=call_id, key=key, name=name, question=question)

    @property
    def question(self) -> str | None:
        """Text of the question."""
        return self._json.get("question")


class FrontendToolWait(CallWait):
    """A browser executes a call and submits its result."""

    __slots__ = ()

    KIND = "frontend_tools"


class NextMessageWait(Wait):
    """A chat rests between two runs, until its next message."""

    __slots__ = ()

    KIND = "input"

    def __init__(self, since: datetime) -> None:
        super().__init__(since)

    @property
    def is_rest(self) -> bool:
        """True: the thread rests until its next message."""
        return True


class ChildrenWait(Wait):
    """The open run waits for child threads: for all of them, or for any."""

    __slots__ = ()

    KIND = "children"

    def __init__(
        self,
        since: datetime,
        *,
        child_ids: Sequence[str],
        mode: Literal["all", "any"] = "all",
        until: datetime | None = None,
    ) -> None:
        super().__init__(since, until=until, ids=list(child_ids), mode=mode)

    @property
    def child_ids(self) -> list[str] | None:
        """The ids of the children that have not reported yet; None: all open children."""
        return self._json.get("ids")

    @property
    def any_child(self) -> bool:
        """True if the report of one child ends the wait."""
        return self._json.get("mode") == "any"

    def without(self, child_id: str) -> "ChildrenWait":
        """Return the wait after a child has reported.

        Args:
            child_id: Id of the child.
        """
        if not self.child_ids:
            return self
        return self.of_json({**self._json, "ids": [kept_id for kept_id in self.child_ids if kept_id != child_id]})


class TimerWait(Wait):
    """The thread starts at a given time."""

    __slots__ = ()

    KIND = "timer"

    def __init__(self, since: datetime, *, until: datetime) -> None:
        super().__init__(since, until=until)


class RetryWait(Wait):
    """A worker tries again: at `until` if the execution failed, else when a worker has the code of the call."""

    __slots__ = ()

    KIND = "retry"

    def __init__(
        self,
        since: datetime,
        *,
        reason: str,
        call_id: str | None = None,
        name: str | None = None,
        until: datetime | None = None,
    ) -> None:
        super().__init__(
            since, call_id=call_id, until=until, **({"name": name} if name is not None else {}), reason=reason
        )

    @property
    def is_rest(self) -> bool:
        """True if the wait has an end, so that the thread rests until its next attempt."""
        return self._json.get("until") is not None


class DepsWait(Wait):
    """The run needs the `deps` that its caller passed. `Agent.resume` with `deps` continues it; workers do not try."""

    __slots__ = ()

    KIND = "deps"

    def __init__(self, since: datetime) -> None:
        super().__init__(
            since,
            reason="This run was started with deps that only its process has. Resume it with "
            "`agent.resume(thread, deps=…)` or give the agent a deps factory.",
        )


_CLASSES: dict[Any, type[Wait]] = {
    subclass.KIND: subclass
    for subclass in (
        *(ApprovalWait, InDoubtWait, QuestionWait, FrontendToolWait),
        *(ChildrenWait, TimerWait, RetryWait, DepsWait),
    )
}

PERSON_WAIT_KINDS: frozenset[str] = frozenset(kind for kind, subclass in _CLASSES.items() if subclass.needs_person)
"""The stored kinds of waits that need a person. `input` is one of them if the entry has the id of a call."""


def parse_wait(stored: Json) -> Wait:
    """Return the wait of one entry of `waiting_for`. An unknown kind is a plain `Wait`."""
    kind = stored.get("kind")
    if kind == "input" and stored.get("id") is None:
        return NextMessageWait.of_json(stored)
    return _CLASSES.get(kind, Wait).of_json(stored)


def parse_waits(waiting_for: Iterable[Json]) -> tuple[Wait, ...]:
    return tuple(map(parse_wait, waiting_for))


def waits_json(waits: Iterable[Wait]) -> list[Json]:
    """Return the waits as `waiting_for` stores them."""
    return [wait.as_json() for wait in waits]


def without_next_message(waits: Iterable[Wait]) -> list[Wait]:
    """Return the waits that a reader is shown. An idle chat has none."""
    return [wait for wait in waits if not isinstance(wait, NextMessageWait)]


def person_waits(waits: Iterable[Wait]) -> list[Wait]:
    """Return the waits that need a person, longest first."""
    return sorted((wait for wait in waits if wait.needs_person), key=lambda wait: str(wait.as_json().get("since")))


def awaiting_person_since(waits: Iterable[Wait]) -> datetime | None:
    """Return the time since which a thread waits for a person; None if it does not."""
    return min((wait.since for wait in waits if wait.needs_person and wait.since), default=None)


def _time(value: Any) -> datetime | None:
    if not value:
        return None
    try:
        return parse_time(str(value))
    except ValueError:
        return None
