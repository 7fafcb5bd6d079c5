"""A stitch: one entry of a thread's append-only log."""

from datetime import datetime
from typing import Annotated, Any, ClassVar, Final
from uuid import UUID

from pydantic import Field

from lockstitch.errors import Refused
from lockstitch.model.ids import new_id
from lockstitch.model.message import tool_uses
from lockstitch.model.record import Count, Json, Record, Text, Time

CHAIN_TYPES: Final = frozenset({"llm_call", "tool_call", "thread_result"})
"""The types that previous_id links into one list per thread."""

MESSAGE_TYPES: Final = frozenset(
    {
        *("input", "llm_call", "tool_call", "thread_result"),
        *("max_steps_reached", "final_answer_validation_failed", "wait_timed_out"),
    }
)
"""The types whose messages are a run's history: what was said in it, by the user, the model, tools or the runtime."""

ERROR_TYPES: Final = frozenset({"error", "run_failed", "api_error", "tool_error", "file_error"})
"""The types that `errors` lists."""

TAKEN_OVER: Final = "thread_taken_over"
"""A worker executes a thread that another worker lost. It is no progress of the thread."""

STITCH_TYPES: Final = (
    *("input", "llm_call", "tool_call", "thread_result"),
    *("compaction", "fork"),
    *("run_started", "run_paused", "run_resumed", "run_completed", "run_failed"),
    *("max_steps_reached", "final_summary_generation"),
    *("api_call_started", "api_retry", "api_error"),
    *("permission", "tool_started", "tool_error"),
    *("memory_retrieval", "memory_update", "memory_before_compact", "memory_after_compact"),
    *("context_transformation", "final_answer_validation", "final_answer_validation_failed"),
    *("file_generated", "file_downloaded", "file_stored", "file_error"),
    *(TAKEN_OVER, "thread_spawned", "wait_timed_out", "streaming_chunk", "span", "removed", "error"),
)
"""The types Lockstitch writes. Others are kept as they come."""


class Entry(Record):
    """What a writer gives: a stitch that has no place in a log yet."""

    table: ClassVar[str] = "stitches"

    id: UUID = Field(default_factory=new_id)
    type: Annotated[Text, Field(min_length=1, max_length=100)]
    run_id: UUID | None = None
    lane: UUID | None = None
    parent_id: UUID | None = None
    child_id: UUID | None = None
    reply_to: Count | None = None
    call_index: Count | None = None
    calls: Count | None = None
    step_number: Count | None = None
    name: Annotated[Text, Field(max_length=255)] | None = None
    call_id: Annotated[Text, Field(max_length=255)] | None = None
    status: Annotated[Text, Field(max_length=100)] | None = None
    message: Json | None = None
    data: Json = Field(default_factory=dict[str, Any])
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    cache_read_tokens: Count | None = None
    cache_write_tokens: Count | None = None
    duration_ms: Count | None = None
    messages_count: Count | None = None
    estimated_tokens: Count | None = None
    at: Time | None = None

    def __init__(self, **values: Any) -> None:
        if values.get("type") == "llm_call" and values.get("calls") is None:
            values["calls"] = len(tool_uses(values.get("message"))) or None
        self._fill(values)
        problem = _inconsistency(self)
        if problem:
            raise Refused(f"A {self.type} stitch {problem}; nothing was written.")

    @property
    def in_chain(self) -> bool:
        """Whether it is part of the thread's list; those of a mirror, which hang below something, are none."""
        return self.type in CHAIN_TYPES and self.parent_id is None


def _inconsistency(entry: Entry) -> str | None:
    """What a stitch of this type must or must not have; other types are free."""
    if entry.type == "tool_call":
        if entry.name is None or entry.call_id is None:
            return "needs the name of its tool and a call_id"
    elif entry.reply_to is not None:
        return "answers no call, so it has no reply_to"
    if entry.type == "thread_result":
        if entry.child_id is None:
            return "needs the child_id of the thread it reports"
    elif entry.child_id is not None and entry.type in CHAIN_TYPES:
        return "reports no thread, so it has no child_id"
    return None


class Stitch(Entry):
    """An entry in its place. Native stitches are never updated.

    position counts the thread's stitches from 1 without a gap; parent_id is what a stitch of a mirror hangs below,
    another one or its run, and native ones have none; previous_id is the llm_call, tool_call or
    thread_result before this one, for those types; reply_to is the position of the response that a tool
    result answers and call_index its place among that response's `calls`; fence is the number under which
    it was written. log_id is given by the store and differs between stores.
    """

    primary_key: ClassVar[tuple[str, ...]] = ("thread_id", "position")

    thread_id: UUID
    position: Count
    previous_id: UUID | None = None
    fence: Count = 0
    log_id: Count | None = None


def call_key(response_id: UUID, call_index: int) -> str:
    """Return the key of a tool call: its response's stitch id, and its place among the calls of that response.

    No other call has the same key, although providers may repeat call ids. The response is committed before any of its
    tools starts, and its id never changes, so every process that executes the call sees the same key.
    """
    return f"{response_id.hex}-{call_index}"


def at_position(
    entry: Entry, thread_id: UUID, position: int, previous_id: UUID | None, fence: int, now: datetime | None
) -> Stitch:
    """Return `entry` at a position, without validation: an entry is validated when it is made. An entry without a time
    gets `now`."""
    values = dict(entry.__dict__)
    if values["at"] is None:
        values["at"] = now
    values["thread_id"] = thread_id
    values["position"] = position
    values["previous_id"] = previous_id if entry.in_chain else None
    values["fence"] = fence
    values["log_id"] = None
    return Stitch.unchecked(values)
