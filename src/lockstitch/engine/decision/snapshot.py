"""`RunSnapshot`: the facts for a decision, including the state of each tool call.

The last entry about a call determines its state. The fence distinguishes the holders of the thread: a `tool_started`
entry of the current holder is running, an earlier one was interrupted.

    fresh      no entry yet
    allowed    a person approved the call or its repetition
    running    started by the current holder
    cut        started by an earlier holder and not finished
    answered   the log has its result
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast
from uuid import UUID

from lockstitch.model import Json, Run, Stitch, Thread, Wait, call_key, tool_uses
from lockstitch.model.message import blocks

CallState = Literal["fresh", "allowed", "running", "cut", "answered"]


# Not frozen: a frozen instance takes several times as long to create, and each decision creates the open calls.
@dataclass(slots=True)
class Call:
    """A tool call that a response requests, and its state. Nothing changes it."""

    id: str
    name: str
    input: Any
    index: int
    response: int
    """The position of the response that requests the call."""
    step: int
    state: CallState
    response_id: UUID
    earlier: bool = False
    """True if an earlier run made the call and ended while its outcome was unknown. The record answers it as in doubt;
    this run waits until a person settles it."""
    agent: str | None = None
    """The team member whose run made the call, if an earlier run made it."""

    @property
    def key(self) -> str:
        """The key of the call (`call_key`). Other calls may have the same id, but none has the same key."""
        return call_key(self.response_id, self.index)

    @property
    def question(self) -> str | None:
        """The question to a person, if the call is one."""
        value: Any = self.input
        requested = cast("Json", value).get("question") if isinstance(value, dict) else None
        return str(requested) if requested else None


class RunSnapshot:
    """A thread, its open run, the recent stitches of the run, and the size of the next request.

    `nested_runs` are the runs that a leader's run has started. `resting` has the waits of those that cannot continue. A
    nested run that is open and not in `resting` was not executed yet by this holder.

    Recent stitches start with the last response, or with a compaction after it. Earlier stitches need no action,
    because a context is reduced only right before a model call.
    """

    def __init__(
        self,
        head: Thread,
        run: Run | None,
        recent: Sequence[Stitch],
        tokens: int = 0,
        nested_runs: Sequence[Run] = (),
        resting: Mapping[UUID, Sequence[Wait]] | None = None,
    ) -> None:
        self.head = head
        self.run = run
        self.tokens = tokens
        self.nested_runs = nested_runs
        self.resting = resting or {}
        self.response = last_response(recent)
        """The last response of the loop. Side calls do not count."""
        after = self.response.position if self.response is not None else 0
        self.after_response = [stitch for stitch in recent if stitch.position > after]
        """The stitches after the last response."""
        self._types = {stitch.type for stitch in self.after_response}
        self.calls = self._calls(self.response) if self.response is not None and self.response.calls else []
        """The calls of the last response, in its order. Before the first response: the unsettled calls of the run that
        is retried."""
        if run is not None and self.response is None:
            self.calls = [self._earlier(item) for item in unsettled(run)]

    def has(self, *types: str) -> bool:
        """True if a stitch of one of these types follows the last response."""
        return not self._types.isdisjoint(types)

    def last(self, *types: str) -> Stitch | None:
        """Return the last stitch of one of these types after the last response."""
        if not self.has(*types):
            return None
        return next((stitch for stitch in reversed(self.after_response) if stitch.type in types), None)

    def fatal_error(self) -> Stitch | None:
        """Return the fatal error after the last response; None if there is none."""
        if not self.has("api_error", "error"):
            return None
        errors = (stitch for stitch in reversed(self.after_response) if stitch.type in ("api_error", "error"))
        return next((stitch for stitch in errors if stitch.data.get("fatal", True)), None)

    def requested(self, what: str) -> list[Json]:
        """Return the requests of this kind of the answered calls, in the order of the answers."""
        return [
            stitch.data[what] for stitch in self.after_response if stitch.type == "tool_call" and stitch.data.get(what)
        ]

    def reported(self) -> set[str]:
        """Return the ids of children that have reported since the last response."""
        return {str(stitch.child_id) for stitch in self.after_response if stitch.type == "thread_result"}

    def member_run(self, call: Call) -> Run | None:
        """Return the member run that a call has started; None if it has not started."""
        requested = (call.step, call.id)
        return next(
            (
                nested_run
                for nested_run in self.nested_runs
                if (nested_run.state.get("step"), nested_run.state.get("call")) == requested
            ),
            None,
        )

    def compile_run(self) -> Run | None:
        """Return the latest further run of the leader in this turn."""
        return next((nested_run for nested_run in reversed(self.nested_runs) if nested_run.compiles), None)

    def _calls(self, response: Stitch) -> list[Call]:
        return [self._call(response, index, block) for index, block in enumerate(tool_uses(response.message))]

    def _call(self, response: Stitch, index: int, block: Json) -> Call:
        return Call(
            id=str(block.get("id")),
            name=str(block.get("name")),
            input=cast("Any", block.get("input")),
            index=index,
            response=response.position,
            step=response.step_number or 0,
            state=self._state(response, index),
            response_id=response.id,
        )

    def _earlier(self, doubt: Json) -> Call:
        settled = any(
            stitch.type == "permission" and (stitch.data.get("response"), stitch.call_index) == place_of(doubt)
            for stitch in self.after_response
        )
        return Call(
            id=str(doubt["call_id"]),
            name=str(doubt["name"]),
            input=None,
            index=int(doubt["index"]),
            response=int(doubt["response"]),
            step=int(doubt["step"]),
            state="answered" if settled else "cut",
            response_id=UUID(doubt["response_id"]),
            earlier=True,
            agent=doubt.get("agent"),
        )

    def _state(self, response: Stitch, index: int) -> CallState:
        state: CallState = "fresh"
        for stitch in self.after_response:
            if stitch.call_index != index:
                continue
            if stitch.type == "tool_call":
                if stitch.reply_to in (None, response.position):
                    return "answered"
                continue
            if stitch.type == "permission":
                state = "allowed"
            elif stitch.type == "tool_started":
                state = "running" if stitch.fence == self.head.fence else "cut"
        return state


def unsettled(run: Run) -> list[Json]:
    """Return the calls in doubt that a person must settle before a model is called: those that the retried run left, or
    those that this run leaves to its own retry."""
    return list(run.state.get("unsettled") or ())


def place_of(doubt: Json) -> tuple[Any, Any]:
    """Return the identity of an unsettled call in its thread: the position of its response and its index there."""
    return doubt["response"], doubt["index"]


def starts_recent(stitch: Stitch) -> bool:
    """True if no stitch before this one needs an action."""
    return is_response(stitch) or (stitch.type == "compaction" and bool(stitch.data.get("applied")))


def last_response(recent: Sequence[Stitch]) -> Stitch | None:
    """Return the last response of the loop; None if there is none."""
    for stitch in reversed(recent):
        if is_response(stitch):
            return stitch
    return None


def is_response(stitch: Stitch) -> bool:
    """True if a stitch is a step of the loop, or the final summary."""
    return stitch.type == "llm_call" and stitch.data.get("purpose") in (None, FINAL_SUMMARY)


FINAL_SUMMARY = "final_summary"
"""The purpose of the model call at the step limit. It is not a step, but its message is the answer."""


def new_files(snapshot: RunSnapshot, response: Stitch) -> list[str]:
    """Return the ids of files that the response names and that were not fetched yet."""
    matches: list[str] = []
    for block in blocks(response.message) if response.message else []:
        if str(block.get("type", "")).endswith("code_execution_tool_result"):
            _collect_files(block.get("content"), matches)
    if not matches:
        return []
    seen = {stitch.data.get("file_id") for stitch in snapshot.after_response if stitch.type.startswith("file_")}
    return [file_id for file_id in dict.fromkeys(matches) if file_id not in seen]


def _collect_files(value: Any, matches: list[str]) -> None:
    if isinstance(value, list):
        for item in value:  # pyright: ignore[reportUnknownVariableType]
            _collect_files(item, matches)
    elif isinstance(value, dict):
        if isinstance(value.get("file_id"), str):  # pyright: ignore[reportUnknownMemberType]
            matches.append(value["file_id"])  # pyright: ignore[reportUnknownArgumentType]
        _collect_files(value.get("content"), matches)  # pyright: ignore[reportUnknownMemberType]
