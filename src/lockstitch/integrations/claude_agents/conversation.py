"""`plan`: new entries of a transcript as the stitches of one commit.

A message of a user starts a run. A response with a final stop reason ends it, and so does an entry about the end of the
turn. The entries of one response that arrive together are one stitch, because the transcript has one entry per content
block and repeats the tokens on each. Entries that are no messages are stored together, in `claude_entries` stitches.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, cast
from uuid import UUID

from lockstitch.engine.ports.provider import Usage
from lockstitch.engine.usage import price
from lockstitch.integrations.claude_agents.transcript import (
    ABOUT,
    TOKENS,
    MessagePlace,
    Recorded,
    calls_of,
    is_note,
    response_id_of,
)
from lockstitch.model import Entry, Json, Run, Thread
from lockstitch.model.clock import parse_time
from lockstitch.model.context import position_ranges
from lockstitch.model.message import text_of, tool_uses
from lockstitch.store import Fields, Store, ThreadUpdate

ENTRIES: Final = "claude_entries"
"""Type of stitches with entries that are no messages."""

_OPEN_REASONS: Final = frozenset({"tool_use", "pause_turn"})
"""Stop reasons after which the turn continues."""

_TURN_ENDS: Final = frozenset({"turn_duration", "stop_hook_summary"})
"""Subtypes of system entries at the end of a turn. Old transcripts have no stop reasons."""

_INTERRUPTED: Final = "[Request interrupted by user"

_OUTPUT: Final = ("<local-command-", "<bash-stdout>", "<bash-stderr>")
"""The start of user messages with the output of local commands. They start no turn."""

_LONGEST_NAME: Final = 255
_LONGEST_MODEL: Final = 100
_LONGEST_REASON: Final = 50


class NewEntry(NamedTuple):
    """An entry to append, with its exact text if a store cannot keep its characters."""

    entry: Json
    exact: str | None = None


@dataclass
class _Draft:
    """A stitch before the last entry of the commit is known."""

    type: str
    parts: list[Json]
    run_id: UUID | None
    at: datetime | None
    content: Any = None
    values: Fields = field(default_factory=dict[str, Any])
    data: Json = field(default_factory=dict[str, Any])
    response_id: str | None = None
    usage: dict[str, int] | None = None


def plan(
    store: Store, head: Thread, recorded: Recorded, run: Run | None, entries: Sequence[NewEntry]
) -> tuple[ThreadUpdate, Run | None]:
    """Return the update that appends entries to a thread, and the last run of the thread after it.

    Args:
        store: The store.
        head: The thread.
        recorded: The part of the transcript that its log has.
        run: The last run of the thread.
        entries: New entries, in order.
    """
    planned = _Plan(store, head, recorded, run)
    for number, new in enumerate(entries, start=recorded.count):
        planned.add(number, new)
    return planned.result()


class _Plan:
    def __init__(self, store: Store, head: Thread, recorded: Recorded, run: Run | None) -> None:
        self._store = store
        self._head = head
        self._recorded = recorded
        self._run = run
        self._update = ThreadUpdate(head)
        self._changes: dict[UUID, tuple[Run, Fields]] = {}
        self._drafts: list[_Draft] = []
        self._calls = dict(recorded.calls)
        self._messages: list[MessagePlace] | None = None
        self._numbers: dict[str, int] = {}
        self._responses: dict[str, int] = {}
        self._answer = recorded.answer
        """Position of the last message if it is a response without calls."""
        self._stop: str | None = None
        """Stop reason of the last response. Further entries of this response may follow."""
        self._at: datetime | None = None
        self._model = recorded.model

    def add(self, number: int, new: NewEntry) -> None:
        """Add the next entry."""
        entry = new.entry
        self._at = _time_of(entry) or self._at
        part: Json = {"number": number, "entry": entry} if new.exact is None else {"number": number, "json": new.exact}
        content = _content_of(entry)
        role = entry.get("type")
        if self._stop is not None and (role != "assistant" or response_id_of(entry) not in self._responses):
            self._end_run("completed", self._stop)
        if content is None or (entry.get("isSidechain") is True and self._head.parent_id is None):
            self._add_other(entry, part)
        elif role == "assistant" and isinstance(content, list):
            self._add_response(entry, part, content)
        elif role == "user" and isinstance(content, list) and any(block["type"] == "tool_result" for block in content):
            self._add_results(part, content)
        elif role == "user":
            self._add_input(entry, part, content)
        else:
            self._add_other(entry, part)
        uuid = entry.get("uuid")
        if isinstance(uuid, str):
            self._numbers[uuid] = number

    def result(self) -> tuple[ThreadUpdate, Run | None]:
        """Return the update, and the last run of the thread."""
        if self._stop is not None:
            self._end_run("completed", self._stop)
        self._update.entries = [self._entry(draft) for draft in self._drafts]
        self._update.run_updates = [*self._changes.values()]
        return self._update, self._run

    # Messages

    def _add_response(self, entry: Json, part: Json, content: list[Json]) -> None:
        message: Json = entry["message"]
        response_id = response_id_of(entry)
        _take_content(part, len(content))
        place = self._responses.get(response_id) if response_id is not None else None
        if place is None:
            continues = response_id is not None and response_id == self._recorded.response_id
            if self._open_run is None and not (continues and self._run is not None):
                self._start_run()
            draft = _Draft("llm_call", [part], self._last_run_id, self._at, content=[], response_id=response_id)
            place = self._append(draft)
            if response_id is not None:
                self._responses[response_id] = place
        else:
            self._drafts[place].parts.append(part)
        draft = self._drafts[place]
        draft.content = [*draft.content, *content]
        draft.usage = _usage_of(message) or draft.usage
        position = self._position_of(place)
        response: Json = {"content": draft.content}
        self._calls |= {id: call for id, call in calls_of(position, response).items() if id in _ids(content)}
        model = message.get("model")
        if isinstance(model, str):
            draft.values["name"] = self._model = model[:_LONGEST_MODEL]
        self._answer = None if tool_uses(response) else position
        if self._open_run is None:
            self._change_run({"output_position": self._answer})
        reason = message.get("stop_reason")
        if isinstance(reason, str):
            draft.values["status"] = reason[:_LONGEST_REASON]
            self._stop = None if reason in _OPEN_REASONS else reason[:_LONGEST_REASON]

    def _add_results(self, part: Json, content: list[Json]) -> None:
        results = [block for block in content if block["type"] == "tool_result"]
        ids = {block["tool_use_id"] for block in results}
        if len(ids) < len(results) or not ids <= self._calls.keys():
            self._append_other(part)
            return
        _take_content(part, 1)
        self._answer = None
        for block in content:
            if block["type"] != "tool_result":
                self._append(_Draft("input", [part], self._last_run_id, self._at, content=[block]))
            else:
                call_id = block["tool_use_id"]
                call = self._calls.pop(call_id)
                values: Fields = {"name": call.name, "call_id": call_id, "reply_to": call.position}
                values |= {"call_index": call.number, "status": "error" if block.get("is_error") else "ok"}
                self._append(_Draft("tool_call", [part], self._last_run_id, self._at, content=block, values=values))
            part = {"number": part["number"], "blocks": 1}

    def _add_input(self, entry: Json, part: Json, content: str | list[Json]) -> None:
        text = text_of(entry["message"])
        interrupts = text.startswith(_INTERRUPTED)
        if not is_note(entry) and not interrupts and not text.startswith(_OUTPUT):
            self._end_run(*(("completed", "end_turn") if self._answer else ("cancelled", "interrupted")))
            self._leave_branch(entry)
            self._start_run(input_position=self._next_position)
        _take_content(part, len(content) if isinstance(content, list) else None)
        self._append(_Draft("input", [part], self._open_run_id, self._at, content=content))
        if not is_note(entry):
            self._answer = None
        if interrupts:
            self._end_run("cancelled", "interrupted")

    def _leave_branch(self, entry: Json) -> None:
        """Hide the messages after the parent of an input, if the user has gone back to an earlier message."""
        if "parentUuid" not in entry:
            return
        parent = entry["parentUuid"]
        last = -1 if parent is None else self._number_of(parent)
        messages = self._context()
        if last is not None and messages and messages[-1].number > last:
            self._compact([place for place in messages if place.number <= last], [])

    def _number_of(self, uuid: Any) -> int | None:
        """Return the number of an entry of the log or of this commit."""
        number = self._recorded.number_of(uuid)
        return self._numbers.get(uuid) if number is None and isinstance(uuid, str) else number

    # Other entries

    def _add_other(self, entry: Json, part: Json) -> None:
        subtype = entry.get("subtype") if entry.get("type") == "system" else None
        if subtype == "compact_boundary":
            numbers = {self._number_of(uuid) for uuid in _preserved(entry)}
            self._compact([place for place in self._context() if place.number in numbers], [part])
            return
        if entry.get("isApiErrorMessage") is True and self._open_run is not None:
            problem = text_of(_object(entry.get("message"))) or "The request failed."
            failure: Json = {"message": problem}
            self._append(
                _Draft("run_failed", [part], self._open_run_id, self._at, values={"status": "failed"}, data=failure)
            )
            self._end_run("failed", "error", error=problem.replace("\x00", ""))
            return
        self._append_other(part)
        if subtype in _TURN_ENDS and self._answer:
            self._end_run("completed", "end_turn")

    def _append_other(self, part: Json) -> None:
        if self._drafts and self._drafts[-1].type == ENTRIES and self._drafts[-1].run_id == self._open_run_id:
            self._drafts[-1].parts.append(part)
        else:
            self._append(_Draft(ENTRIES, [part], self._open_run_id, self._at))

    def _compact(self, kept: list[MessagePlace], parts: list[Json]) -> None:
        ranges = position_ranges(place.position for place in kept)
        data: Json = {"applied": True, "reason": ABOUT, "keep": ranges, "replace": {}}
        self._append(_Draft("compaction", parts, self._open_run_id, self._at, data=data))
        self._messages = kept

    # Drafts

    @property
    def _next_position(self) -> int:
        return self._position_of(len(self._drafts))

    def _position_of(self, place: int) -> int:
        return self._head.position + 1 + place

    def _append(self, draft: _Draft) -> int:
        """Add a draft, and return its place."""
        self._drafts.append(draft)
        place = len(self._drafts) - 1
        if draft.content is not None and self._messages is not None:
            self._messages.append(MessagePlace(self._position_of(place), int(draft.parts[0]["number"])))
        return place

    def _context(self) -> list[MessagePlace]:
        """Return the messages that the context includes."""
        if self._messages is None:
            new = [
                MessagePlace(self._position_of(place), int(draft.parts[0]["number"]))
                for place, draft in enumerate(self._drafts)
                if draft.content is not None
            ]
            self._messages = [*self._recorded.messages, *new]
        return self._messages

    def _entry(self, draft: _Draft) -> Entry:
        values = {**draft.values, "type": draft.type, "run_id": draft.run_id, "at": draft.at}
        values["data"] = {**draft.data, ABOUT: draft.parts} if draft.parts else draft.data
        if draft.type == "llm_call":
            values["message"] = {"role": "assistant", "content": draft.content}
            self._add_usage(draft, values)
        elif draft.type == "input":
            values["message"] = {"role": "user", "content": draft.content}
        elif draft.type == "tool_call":
            values["message"] = draft.content
        return Entry.of_engine(values)

    def _add_usage(self, draft: _Draft, values: Fields) -> None:
        """Set the tokens and the cost of a response, without the tokens that earlier stitches of it have."""
        if draft.usage is None:
            return
        continues = draft.response_id is not None and draft.response_id == self._recorded.response_id
        earlier = self._recorded.usage if continues else {}
        tokens = {name: max(0, draft.usage[name] - earlier.get(name, 0)) for name in TOKENS}
        values |= tokens
        name = values.get("name")
        if name is not None:
            cost = price("anthropic", name, Usage(**tokens), draft.at or self._store.clock.now())
            if cost:
                values["data"] = {**values["data"], "cost": cost["total_cost"]}

    # Runs

    @property
    def _open_run(self) -> Run | None:
        return self._run if self._run is not None and self._run.open else None

    @property
    def _open_run_id(self) -> UUID | None:
        return None if self._open_run is None else self._open_run.id

    @property
    def _last_run_id(self) -> UUID | None:
        return None if self._run is None else self._run.id

    def _start_run(self, input_position: int | None = None) -> None:
        run = self._store.new_run(self._head, provider="anthropic", input_position=input_position)
        run = run.changed(first_position=self._next_position, started_at=self._at or run.started_at)
        self._run, self._model = run, None
        self._update.new_runs.append(run)

    def _end_run(self, status: str, reason: str, error: str | None = None) -> None:
        """End the open run, if there is one."""
        self._stop = None
        if self._open_run is None:
            return
        fields: Fields = {"status": status, "stop_reason": reason, "error": error, "model": self._model}
        fields["completed_at"] = self._at or self._store.clock.now()
        if status == "completed":
            fields["output_position"] = self._answer
        self._change_run(fields)

    def _change_run(self, fields: Fields) -> None:
        """Change the last run. The store sets its tokens, cost and steps."""
        run = self._run
        assert run is not None
        self._run = run.changed(**fields)
        self._update.sum_runs = True
        new_runs = self._update.new_runs
        if new_runs and new_runs[-1].id == run.id:
            new_runs[-1] = self._run
        else:
            stored, earlier = self._changes.get(run.id, (run, {}))
            self._changes[run.id] = stored, {**earlier, **fields}


def _take_content(part: Json, number: int | None) -> None:
    """Let the message of the stitch have the content of an entry: `number` blocks, or all of it."""
    if number is not None:
        part["blocks"] = number
    if "entry" in part:
        entry: Json = part["entry"]
        part["entry"] = {**entry, "message": {**entry["message"], "content": ""}}


def _content_of(entry: Json) -> str | list[Json] | None:
    """Return the content of a message of the conversation. None if the entry is no such message."""
    message = _object(entry.get("message"))
    content: Any = message.get("content")
    # The program itself writes some responses, for example about errors.
    if not content or message.get("model") == "<synthetic>":
        return None
    if isinstance(content, list):
        return cast("list[Json]", content) if all(_is_block(block) for block in cast("list[Any]", content)) else None
    return content if isinstance(content, str) else None


def _is_block(value: Any) -> bool:
    block = _object(value)
    names = {"tool_use": ("id", "name"), "tool_result": ("tool_use_id",)}.get(str(block.get("type")), ())
    texts = [block.get("type"), *(block.get(name) for name in names)]
    return all(isinstance(text, str) and 0 < len(text) <= _LONGEST_NAME for text in texts)


def _ids(content: list[Json]) -> set[str]:
    return {block["id"] for block in content if block["type"] == "tool_use"}


def _preserved(boundary: Json) -> list[Any]:
    """Return the uuids of the entries that a compaction preserves."""
    found: Any = _object(boundary.get("compactMetadata")).get("preservedMessages")
    uuids: Any = _object(found).get("allUuids") or _object(found).get("uuids") or found
    return cast("list[Any]", uuids) if isinstance(uuids, list) else []


def _usage_of(message: Json) -> dict[str, int] | None:
    """Return the tokens that an entry reports."""
    usage = _object(message.get("usage"))

    def count(name: str) -> int:
        value: Any = usage.get(name)
        return value if isinstance(value, int) and 0 <= value < 2**53 else 0

    read, write = count("cache_read_input_tokens"), count("cache_creation_input_tokens")
    tokens = (count("input_tokens") + read + write, count("output_tokens"), read, write)
    return dict(zip(TOKENS, tokens, strict=True)) if usage else None


def _object(value: Any) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {}


def _time_of(entry: Json) -> datetime | None:
    """Return the time of an entry in UTC, or None if it has none."""
    timestamp = entry.get("timestamp")
    if not isinstance(timestamp, str):
        return None
    try:
        return parse_time(timestamp).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
