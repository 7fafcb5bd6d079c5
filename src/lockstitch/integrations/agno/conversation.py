"""`plan_run`: the update of a thread that records the new messages of a run of Agno.

Agno stores a run again whenever its status changes. The log gets each message once: `StoredRun.recorded` has the ids of
the messages that it contains. Messages of the history that Agno repeats in a run are left out. The messages of a member
of a team are in a separate lane, so that they are not in the context of the leader.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, cast
from uuid import UUID

from lockstitch.engine.ports.provider import Usage
from lockstitch.engine.usage import price
from lockstitch.model import Entry, Json, Run, Stitch, Thread, codec
from lockstitch.model.message import tool_result, tool_uses, user
from lockstitch.store import Fields, Store, ThreadUpdate

FRAMEWORK: Final[Json] = {"framework": "agno"}
"""`extras` of the threads and runs of Agno."""

_STATUSES: Final = {
    "PENDING": "pending",
    "RUNNING": "running",
    "PAUSED": "waiting",
    "CANCELLED": "cancelled",
    "ERROR": "failed",
}
"""Status of a run of the record, by that of Agno. `COMPLETED` and unknown ones are `completed`."""

_REASONS: Final = {"completed": "end_turn", "cancelled": "cancelled", "failed": "error"}

_NOTE: Final = "agno_message"
"""Type of the entry of a message that the context does not include."""

_SYSTEM: Final = "agno_system"
"""Key of the settings of a thread with the digest of the last system message."""

_MEDIA: Final = (("images", "image"), ("files", "document"), ("audio", "document"), ("videos", "document"))
"""Fields of a message with media, and the type of their blocks."""


class Call(NamedTuple):
    """A tool call without a result: the position of its response, its number there, and the tool."""

    position: int
    number: int
    name: str


class Plan(NamedTuple):
    """The update that records a run, the run, and the ids of the recorded messages of the run."""

    update: ThreadUpdate
    run: Run
    recorded: list[str]


def open_calls(stitches: Sequence[Stitch]) -> dict[str, Call]:
    """Return the tool calls without a result, by the id of the call."""
    calls: dict[str, Call] = {}
    for stitch in stitches:
        if stitch.type == "llm_call":
            for number, block in enumerate(tool_uses(stitch.message)):
                calls[block["id"]] = Call(stitch.position, number, block["name"])
        elif stitch.type == "tool_call" and stitch.call_id is not None:
            calls.pop(stitch.call_id, None)
    return calls


def new_messages(values: Json, recorded: Collection[str]) -> list[tuple[str, Json]]:
    """Return the messages of a run that the log does not contain, with their ids."""
    messages = [message for message in _objects(values.get("messages")) if not message.get("from_history")]
    named = [(str(message.get("id") or f"#{number}"), message) for number, message in enumerate(messages)]
    return [(message_id, message) for message_id, message in named if message_id not in recorded]


def plan_run(
    store: Store,
    head: Thread,
    values: Json,
    *,
    run: Run | None = None,
    parent: Run | None = None,
    recorded: Sequence[str] = (),
    calls: Mapping[str, Call] | None = None,
    before: str | None = None,
) -> Plan:
    """Return the update that records the new part of a run. It has at least one entry.

    Args:
        store: Store of the thread.
        head: Thread of the session.
        values: The run as JSON.
        run: The run in the thread, if it was recorded before.
        parent: Run in the thread of the team or workflow that started this one.
        recorded: Ids of the messages that the log contains.
        calls: Open tool calls of the run.
        before: Status in Agno before this write.
    """
    recorder = _Recorder(store, head, values, run, parent, calls or {})
    messages = new_messages(values, recorded)
    for _, message in messages:
        recorder.add(message)
    if not recorded and not any(message.get("role") in ("user", "assistant") for _, message in messages):
        recorder.add_without_messages()
    recorder.finish(before)
    return Plan(recorder.update, recorder.run, [*recorded, *(message_id for message_id, _ in messages)])


class _Recorder:
    """Adds the entries of one run to an update."""

    def __init__(
        self,
        store: Store,
        head: Thread,
        values: Json,
        run: Run | None,
        parent: Run | None,
        calls: Mapping[str, Call],
    ) -> None:
        self.update = ThreadUpdate(head, sum_runs=True)
        self._values = values
        self._now = store.clock.now()
        self._calls = dict(calls)
        self._model = _name(values.get("model"))
        self._provider = str(values.get("model_provider") or "").lower()
        self._answer: int | None = None
        self._is_new = run is None
        self.run = run or self._new_run(store, head, parent)
        is_member = values.get("parent_run_id") is not None
        self._lane: UUID | None = self.run.id if is_member and parent is None else self.run.lane

    def _new_run(self, store: Store, head: Thread, parent: Run | None) -> Run:
        values = self._values
        role = "agent" if values.get("agent_id") or values.get("agent_name") else "workflow"
        if role != "agent" and (values.get("team_id") or values.get("team_name")):
            role = "team"
        return store.new_run(
            head,
            parent_run_id=None if parent is None else parent.id,
            agent=_name(values.get(f"{role}_id") or values.get(f"{role}_name")),
            role=role,
            model=self._model and self._model[:100],
            provider=(self._provider or None) and self._provider[:100],
            metadata={"run_id": str(values.get("run_id"))},
            extras=FRAMEWORK,
        ).changed(started_at=_time(values.get("created_at")) or self._now)

    # Entries

    def add(self, message: Json) -> None:
        """Add the entry of a message."""
        role = message.get("role")
        if role == "user":
            self._input(_content(message), message)
        elif role == "assistant":
            self._response(message)
        elif role == "tool" and message.get("tool_call_id") in self._calls:
            self._result(message)
        elif role in ("system", "developer"):
            self._instructions(message)
        else:
            self._note(message)

    def add_without_messages(self) -> None:
        """Add the input and the answer of a run whose messages are not stored, such as that of a workflow."""
        run_input: Any = self._values.get("input")
        content: Any = cast("Json", run_input).get("input_content") if isinstance(run_input, dict) else run_input
        if content:
            self._input(_text(content), {})
        answer: Any = self._values.get("content")
        if answer and self._status == "completed":
            self._answer = self._next
            message = {"role": "assistant", "content": [{"type": "text", "text": _text(answer)}]}
            self._append(Entry(type="llm_call", name=self._model, message=message, status="end_turn"))

    @property
    def _status(self) -> str:
        return _STATUSES.get(str(self._values.get("status") or ""), "completed")

    @property
    def _next(self) -> int:
        return self.update.head.position + len(self.update.entries) + 1

    def _append(self, entry: Entry) -> None:
        self.update.entries.append(entry.changed(run_id=self.run.id, lane=self._lane))

    def _input(self, content: str | list[Json], message: Json) -> None:
        if self._is_new and self.run.input_position is None:
            self.run = self.run.changed(input_position=self._next)
        self._append(Entry(type="input", message=user(content), at=_time(message.get("created_at"))))

    def _response(self, message: Json) -> None:
        uses = [_tool_use(call) for call in _objects(message.get("tool_calls"))]
        uses = [use for use in uses if use["id"] and use["name"]]
        for number, use in enumerate(uses):
            self._calls[use["id"]] = Call(self._next, number, use["name"])
        self._answer = None if uses else self._next
        thinking = message.get("reasoning_content")
        blocks: list[Json] = [{"type": "thinking", "thinking": thinking}] if isinstance(thinking, str) else []
        content = _content(message)
        blocks += [{"type": "text", "text": content}] if isinstance(content, str) and content else []
        blocks += content if isinstance(content, list) else []
        metrics: Json = message.get("metrics") or {}
        tokens = Usage(*(_count(metrics.get(name)) for name in Usage._fields))
        at = _time(message.get("created_at"))
        data: Json = {"provider": self._provider} if self._provider else {}
        if self._model is not None and any(tokens):
            cost = price(self._provider, self._model, tokens, at or self._now)
            data |= {"cost": cost["total_cost"]} if cost else {}
        duration = metrics.get("duration")
        self._append(
            Entry(
                type="llm_call",
                name=self._model,
                message={"role": "assistant", "content": [*blocks, *uses]},
                status="tool_use" if uses else "end_turn",
                data=data,
                duration_ms=round(1000 * duration) if isinstance(duration, int | float) and duration >= 0 else None,
                at=at,
                **(tokens._asdict() if any(tokens) else {}),
            )
        )

    def _result(self, message: Json) -> None:
        call_id = str(message["tool_call_id"])
        call = self._calls.pop(call_id)
        failed = bool(message.get("tool_call_error"))
        self._append(
            Entry(
                type="tool_call",
                name=call.name,
                call_id=call_id,
                reply_to=call.position,
                call_index=call.number,
                status="error" if failed else "ok",
                message=tool_result(call_id, _content(message), is_error=failed),
                at=_time(message.get("created_at")),
            )
        )

    def _instructions(self, message: Json) -> None:
        """Add an entry if the system message differs from the last one of the thread."""
        digest = codec.digest(message.get("content"))
        settings = self.update.fields.get("settings", self.update.head.settings)
        if settings.get(_SYSTEM) != digest:
            self.update.fields["settings"] = {**settings, _SYSTEM: digest}
            self._note(message)

    def _note(self, message: Json) -> None:
        data: Json = {"role": message.get("role"), "content": message.get("content")}
        at = _time(message.get("created_at"))
        self._append(Entry(type=_NOTE, name=_name(message.get("tool_name")), data=data, at=at))

    # The run

    def finish(self, before: str | None) -> None:
        """Set the status of the run and add the entry about it."""
        status, shown = self._status, str(self._values.get("status") or "")
        if status == "failed" and before != "ERROR":
            problem = _text(self._values.get("content")).replace("\x00", "")
            self._append(Entry(type="run_failed", status="failed", data={"message": problem}))
        elif status == "waiting" and before != "PAUSED":
            waiting = [
                {"kind": "approval", "id": tool.get("tool_call_id"), "name": tool.get("tool_name")}
                for tool in _objects(self._values.get("tools"))
                if any(tool.get(name) for name in ("requires_confirmation", "requires_user_input"))
                or tool.get("external_execution_required")
            ]
            self._append(Entry(type="run_paused", status="approval", data={"waiting_for": waiting}))
        elif before == "PAUSED" and status != "waiting":
            self._append(Entry(type="run_resumed"))
        if not self.update.entries:
            # The position shows each change to other processes.
            self._append(Entry(type="agno_status", status=shown[:100] or None))
        fields = self._ending(status)
        if self._is_new:
            self.run = self.run.changed(**fields)
            self.update.new_runs.append(self.run)
        else:
            self.update.run_updates.append((self.run, fields))
            self.run = self.run.changed(**fields)

    def _ending(self, status: str) -> Fields:
        if status in ("pending", "running", "waiting"):
            return {"status": status, "stop_reason": None, "completed_at": None}
        fields: Fields = {"status": status, "stop_reason": _REASONS[status]}
        if self.run.completed_at is None:
            fields["completed_at"] = self._now
        if self._answer is not None:
            fields["output_position"] = self._answer
        if status == "failed":
            fields["error"] = _text(self._values.get("content")).replace("\x00", "")
        return fields


def _objects(value: Any) -> list[Json]:
    """Return the objects of a list. Empty if it is none."""
    items = cast("list[Any]", value) if isinstance(value, list) else []
    return [cast("Json", item) for item in items if isinstance(item, dict)]


def _tool_use(call: Json) -> Json:
    inner: Any = call.get("function")
    function = cast("Json", inner) if isinstance(inner, dict) else call
    arguments: Any = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = codec.loads(arguments) if arguments.strip() else {}
        except ValueError:
            arguments = {"arguments": arguments}
    call_id, name = str(call.get("id") or ""), str(function.get("name") or "")
    is_object = isinstance(arguments, dict)
    return {
        "type": "tool_use",
        "id": call_id if len(call_id) <= 255 else "",
        "name": name if len(name) <= 255 else "",
        "input": arguments if is_object else {"arguments": arguments},
    }


def _content(message: Json) -> str | list[Json]:
    """Return the content of a message as text, or as blocks if it has media."""
    content: Any = message.get("content")
    text = "" if content is None else _text(content)
    media = [block for field, kind in _MEDIA for item in _objects(message.get(field)) if (block := _media(item, kind))]
    if not media:
        return text
    return [*([{"type": "text", "text": text}] if text else []), *media]


def _media(item: Json, kind: str) -> Json:
    """Return the block of a file, or a text that names it."""
    data, media_type = item.get("content"), item.get("mime_type")
    if isinstance(item.get("url"), str):
        return {"type": kind, "source": {"type": "url", "url": item["url"]}}
    if isinstance(data, str) and isinstance(media_type, str):
        return {"type": kind, "source": {"type": "base64", "media_type": media_type, "data": data}}
    return {"type": "text", "text": f"[{kind} {item.get('filename') or item.get('filepath') or item.get('id')}]"}


def _text(value: Any) -> str:
    """Return a value as text. Objects become JSON."""
    return value if isinstance(value, str) else "" if value is None else codec.dumps(value).decode()


def _name(value: Any) -> str | None:
    return value if isinstance(value, str) and 0 < len(value) < 256 and value.isprintable() else None


def _count(value: Any) -> int:
    return max(0, int(value)) if isinstance(value, int | float) else 0


def _time(seconds: Any) -> datetime | None:
    try:
        return datetime.fromtimestamp(seconds, UTC) if seconds else None
    except (OSError, OverflowError, TypeError, ValueError):
        return None
