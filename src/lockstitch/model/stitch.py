"""`Entry` and `Stitch`: one entry of a thread's append-only log, before and after it has a position."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Annotated, Any, ClassVar, Final
from uuid import UUID

from pydantic import Field

from lockstitch.errors import Refused
from lockstitch.model import codec
from lockstitch.model.ids import new_id
from lockstitch.model.message import tool_uses
from lockstitch.model.record import Count, Json, Record, Text, Time

CHAIN_TYPES: Final = frozenset({"llm_call", "tool_call", "thread_result"})
"""Types that `previous_id` links into one list per thread."""

MESSAGE_TYPES: Final = frozenset(
    {
        *("input", "llm_call", "tool_call", "thread_result"),
        *("max_steps_reached", "final_answer_validation_failed", "wait_timed_out"),
    }
)
"""Types with messages that are the history of a run: those of the user, the model, tools and the engine."""

ERROR_TYPES: Final = frozenset({"error", "run_failed", "api_error", "tool_error", "file_error"})
"""Types of errors. Imported traces have failed spans instead: `status` is `error`."""

TAKEN_OVER: Final = "thread_taken_over"
"""A worker executes a thread that another worker lost. It is no progress of the thread."""

_LONGEST_NAME: Final = 255

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
"""Types that Lockstitch writes. Other types are stored unchanged."""


class Entry(Record):
    """A stitch that has no position in a log yet, as a writer creates it."""

    # A slot, since all entries of __dict__ are fields of the record.
    __slots__ = ("_texts",)

    table: ClassVar[str] = "stitches"
    json_text_fields: ClassVar[tuple[str, ...]] = ("message", "data")

    id: UUID = Field(default_factory=new_id)
    """Id of the stitch, a UUIDv7."""
    type: Annotated[Text, Field(min_length=1, max_length=100)]
    """Type, see `STITCH_TYPES`."""
    run_id: UUID | None = None
    """Id of the run."""
    lane: UUID | None = None
    """Lane of the context that the message belongs to. None is the lane of the thread."""
    parent_id: UUID | None = None
    """In imported traces only: id of the stitch or run above this one."""
    child_id: UUID | None = None
    """Id of the child thread that the stitch is about."""
    reply_to: Count | None = None
    """Position of the response that a tool result answers."""
    call_index: Count | None = None
    """Index of the answered call among the calls of that response, from 0."""
    calls: Count | None = None
    """Number of tool calls in a response."""
    step_number: Count | None = None
    """Number of the step in its run; 0 before the first model call."""
    name: Annotated[Text, Field(max_length=255)] | None = None
    """Name of the tool, model or agent, depending on the type."""
    model: Annotated[Text, Field(max_length=255)] | None = None
    """Model that answered, of a model call. The store derives it: `data.model` if it is a name, else `name`."""
    call_id: Annotated[Text, Field(max_length=255)] | None = None
    """Id that the provider gave the tool call."""
    status: Annotated[Text, Field(max_length=100)] | None = None
    """Outcome, depending on the type."""
    message: Json | None = None
    """Message or content block that the stitch adds to the context."""
    data: Json = Field(default_factory=dict[str, Any])
    """Details, depending on the type."""
    input_tokens: Count | None = None
    """Input tokens of a model call, cached tokens included."""
    output_tokens: Count | None = None
    """Output tokens of a model call."""
    cache_read_tokens: Count | None = None
    """Input tokens that the provider read from its cache."""
    cache_write_tokens: Count | None = None
    """Input tokens that the provider wrote to its cache."""
    duration_ms: Count | None = None
    """Duration in milliseconds."""
    messages_count: Count | None = None
    """Number of messages in the context."""
    estimated_tokens: Count | None = None
    """Estimated tokens of the context."""
    at: Time | None = None
    """Time of the event. If None, the store sets the time of the commit."""

    def __init__(self, **values: Any) -> None:
        _derive(values)
        self._fill(values)
        _set_texts(self, None)
        _require_consistent(self)

    @classmethod
    def of_engine(cls, values: dict[str, Any]) -> "Entry":
        """Return an entry of the engine. Only values that a model or a provider can choose are validated.

        This takes a quarter of the time of a validation of all fields.

        Args:
            values: Values of fields. The other fields have their defaults.

        Raises:
            Refused: If a value is not valid.
        """
        for name in _CHOSEN_TEXTS:
            text = values.get(name)
            if text is not None and not (type(text) is str and len(text) <= _PLAIN and text.isprintable()):
                return Entry(**values)
        for name in _CHOSEN_COUNTS:
            count = values.get(name)
            if count is not None and not (type(count) is int and 0 <= count <= _PLAIN_COUNT):
                return Entry(**values)
        _derive(values)
        fields: dict[str, Any] = {**_DEFAULTS, "id": new_id(), "data": {}, **values}
        if len(fields) > len(_DEFAULTS):
            return Entry(**values)
        if fields["message"] is not None:
            # The caller may change its own dict afterwards.
            fields["message"] = dict(fields["message"])
        entry = Entry.unchecked(fields)
        _set_texts(entry, None)
        _require_consistent(entry)
        return entry

    def json_texts(self, message: bytes | None = None) -> tuple[bytes | None, bytes]:
        """Return the JSON texts of `message` and `data`, and keep them until `drop_texts`.

        Args:
            message: JSON text of the message, if the caller has it.

        Raises:
            Refused: If JSON cannot represent a value exactly.
        """
        texts: tuple[bytes | None, bytes] | None = getattr(self, "_texts", None)
        if texts is None:
            if self.message is None:
                message = None
            elif message is None:
                message = codec.dumps(self.message)
            texts = message, codec.dumps(self.data) if self.data else b"{}"
            _set_texts(self, texts)
        return texts

    def drop_texts(self) -> None:
        """Release the memory of the JSON texts."""
        _set_texts(self, None)

    @property
    def in_chain(self) -> bool:
        """True if `previous_id` links the stitch. Stitches of imported traces have a parent instead."""
        return self.type in CHAIN_TYPES and self.parent_id is None


# `object.__setattr__` would look up the slot each time, and the class forbids to set it.
_set_texts: Final[Callable[[Entry, Any], None]] = Entry.__dict__["_texts"].__set__

_CHOSEN_TEXTS: Final = ("name", "call_id", "status")
"""Text fields with values that a model or a provider can choose."""

_CHOSEN_COUNTS: Final = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
"""Numbers that a provider chooses."""

_PLAIN: Final = 100
"""Length up to which a printable text is valid in each of these fields."""

_PLAIN_COUNT: Final = 2**62

_DEFAULTS: Final[dict[str, Any]] = dict.fromkeys(Entry.model_fields)
"""All fields of an entry without values."""


def _derive(values: dict[str, Any]) -> None:
    """Set the derived fields."""
    kind = values.get("type")
    if kind == "llm_call":
        if values.get("calls") is None:
            values["calls"] = len(tool_uses(values.get("message"))) or None
        values["model"] = answering_model(kind, values.get("name"), values.get("data"))
    else:
        values["model"] = None


def answering_model(type: str | None, name: str | None, data: Json | None) -> str | None:
    """Return the model that answered a model call; None for a stitch of another type.

    It is stored as a column, so that SQL can group calls by model without reading their data.
    """
    if type != "llm_call":
        return None
    model = data.get("model") if data else None
    # A column holds neither NUL nor lone surrogates, and not every length.
    return model if isinstance(model, str) and 0 < len(model) <= _LONGEST_NAME and model.isprintable() else name


def _require_consistent(entry: Entry) -> None:
    problem = _inconsistency(entry)
    if problem:
        raise Refused(f"A {entry.type} stitch {problem}. Nothing was written.")


def _inconsistency(entry: Entry) -> str | None:
    """Return the problem of a stitch of a known type, or None if it is valid. Other types may have any fields."""
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
    """An entry at its position in a log. Native stitches are never updated.

    Stitches of imported traces are replaced in place when more of the trace arrives.
    """

    primary_key: ClassVar[tuple[str, ...]] = ("thread_id", "position")

    thread_id: UUID
    """Id of the thread."""
    position: Count
    """Position in the thread's log, from 1 without gaps."""
    previous_id: UUID | None = None
    """Id of the previous stitch of the types in `CHAIN_TYPES`, for stitches of these types."""
    fence: Count = 0
    """Fence of the thread when the stitch was written."""
    log_id: Count | None = None
    """Number that the store assigns. It differs between stores."""


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
    values = {
        **entry.__dict__,
        "thread_id": thread_id,
        "position": position,
        "previous_id": previous_id if entry.in_chain else None,
        "fence": fence,
        "log_id": None,
    }
    if values["at"] is None:
        values["at"] = now
    stitch = Stitch.unchecked(values)
    # The content is the same, so its JSON texts are.
    _set_texts(stitch, getattr(entry, "_texts", None))
    return stitch


def passes_on_failure(span: Stitch, failed_children: Sequence[Stitch]) -> bool:
    """True if the failure of an imported span is that of a failed child, or if the span is a copy or was cancelled.

    Frameworks report one exception at each span that it leaves. A span with another error has its own failure.
    """
    if "duplicate_of" in span.data or str(span.data.get("status")).lower() == "cancelled":
        return True
    headline = _headline(span)
    # A copy of the span itself is no cause.
    causes = [child for child in failed_children if child.data.get("duplicate_of") != str(span.id)]
    return any(not headline or _headline(child) in ("", headline) for child in causes)


def _headline(span: Stitch) -> str:
    """Return the first line of the error of a span, without the stack trace, which differs from span to span."""
    error = span.data.get("error")
    text = error.partition("Traceback (most recent call last)")[0].strip() if isinstance(error, str) else ""
    return text.partition("\n")[0].strip()
