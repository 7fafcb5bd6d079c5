"""`Recorder`: messages of pydantic-ai as stitches and runs of a thread.

A run has the messages that pydantic-ai gave one run id. If a run pauses for the results of tools, the run that gets the
results continues it.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from pydantic_ai.messages import (
    BinaryContent,
    CachePoint,
    DocumentUrl,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    RetryFeedbackPart,
    SpeechPart,
    SystemPromptPart,
    TextContent,
    ToolCallPart,
    ToolReturnPart,
    UploadedFile,
    UserContent,
    UserPromptPart,
)

from lockstitch.engine.ports.provider import Usage
from lockstitch.engine.usage import price
from lockstitch.model import Entry, Json, Message, Run, Thread, at_position, context, tool_result
from lockstitch.model.message import user
from lockstitch.store import Fields, Store, ThreadUpdate

_STATUSES: Final = {"success": "ok", "denied": "denied"}
"""Status of a tool call, by the outcome of its result. Other outcomes are errors."""


class _Call(NamedTuple):
    """A tool call without a result: the position of its response, its number there, and the tool."""

    position: int
    number: int
    name: str


class Recorder:
    """Collects the entries and runs of messages for one commit."""

    def __init__(self, store: Store, head: Thread, run: Run | None = None) -> None:
        """Create a recorder.

        Args:
            store: Store of the thread.
            head: Thread that gets the entries.
            run: Run of the thread that waits for the results of tools.
        """
        self.update = ThreadUpdate(head, sum_runs=True)
        """The update of the thread."""
        self._store = store
        self._run = run
        self._is_stored = run is not None
        """True if the store has the open run."""
        self._run_id: str | None = None
        """Id that pydantic-ai gave the open run."""
        self._calls: dict[str, _Call] = {}
        self._last: ModelMessage | None = None
        """The last message of the open run, of those in this commit."""
        self._answer: int | None = None
        """Position of the last response that calls no tool."""

    @property
    def open_run(self) -> Run | None:
        """The run that waits for the results of tools."""
        return self._run

    @property
    def next_position(self) -> int:
        """The position of the next entry."""
        return self.update.head.position + len(self.update.entries) + 1

    def expect(self, response: ModelResponse, position: int) -> None:
        """Let the next results answer the calls of a stored response.

        Args:
            response: The response.
            position: Its position in the thread.
        """
        for number, part in enumerate(response.tool_calls):
            self._calls[part.tool_call_id] = _Call(position, number, part.tool_name)

    def record(self, message: ModelMessage) -> tuple[int, int]:
        """Add the entries of a message. Return the first and the last position.

        Args:
            message: The message.
        """
        first = self.next_position
        if self._run is None or not self._continues(message):
            self.end()
            self._start(message)
        self._run_id = message.run_id
        if isinstance(message, ModelResponse):
            self._respond(message)
        else:
            for part in message.parts:
                self._request(part)
        self._last = message
        return first, self.next_position - 1

    def _continues(self, message: ModelMessage) -> bool:
        """True if a message belongs to the open run."""
        if isinstance(message, ModelResponse) or (message.run_id is not None and message.run_id == self._run_id):
            return True
        if any(isinstance(part, ToolReturnPart) and part.tool_call_id in self._calls for part in message.parts):
            return True
        return message.run_id is None and not any(isinstance(part, UserPromptPart) for part in message.parts)

    def _start(self, message: ModelMessage) -> None:
        started_at = _time(message.timestamp) or self._store.clock.now()
        metadata: Json = {} if message.run_id is None else {"run_id": message.run_id}
        run = self._store.new_run(self.update.head, metadata=metadata)
        self._run = run.changed(first_position=self.next_position, started_at=started_at)
        self._is_stored = False

    def end(self, *, waits: bool = False) -> None:
        """End the open run.

        Args:
            waits: The run waits for the results of tools, so it stays open.
        """
        run, last = self._run, self._last
        if run is None or (waits and self._is_stored and last is None):
            return
        fields: Fields = {"status": "waiting"}
        if not waits:
            is_cancelled = last is None or last.state == "interrupted"
            ended_at = None if last is None else _time(last.timestamp)
            fields = {
                "status": "cancelled" if is_cancelled else "completed",
                "stop_reason": "interrupted" if is_cancelled else "end_turn",
                "completed_at": ended_at or self._store.clock.now(),
                "output_position": self._answer,
            }
        if self._is_stored:
            self.update.run_updates.append((run, fields))
        else:
            self.update.new_runs.append(run.changed(**fields))
        if not waits:
            self._run = self._run_id = None
        self._last = self._answer = None

    def _respond(self, message: ModelResponse) -> None:
        calls = [part for part in message.parts if isinstance(part, ToolCallPart)]
        text = message.text
        content: list[Json] = [{"type": "text", "text": text}] if text else []
        content += [
            {"type": "tool_use", "id": part.tool_call_id, "name": part.tool_name, "input": part.args_as_dict()}
            for part in calls
        ]
        self.expect(message, self.next_position)
        self._answer = None if calls else self.next_position
        tokens = Usage(
            message.usage.input_tokens,
            message.usage.output_tokens,
            message.usage.cache_read_tokens,
            message.usage.cache_write_tokens,
        )
        model, data = message.model_name, _about(message)
        if model is not None and any(tokens):
            cost = price(message.provider_name or "", model, tokens, message.timestamp)
            data |= {"cost": cost["total_cost"]} if cost else {}
        self._append(
            Entry(
                type="llm_call",
                name=model,
                message={"role": "assistant", "content": content},
                status="tool_use" if calls else "end_turn",
                data=data,
                duration_ms=self._duration(message),
                at=_time(message.timestamp),
                **tokens._asdict(),
            )
        )

    def _duration(self, response: ModelResponse) -> int | None:
        """Return the milliseconds since the request that a response answers. None if they are unknown."""
        asked = _time(self._last.timestamp) if isinstance(self._last, ModelRequest) else None
        answered = _time(response.timestamp)
        if asked is None or answered is None or answered < asked:
            return None
        return round((answered - asked).total_seconds() * 1000)

    def _request(self, part: ModelRequestPart) -> None:
        if isinstance(part, UserPromptPart):
            self._input(_content(part.content), part.timestamp)
        elif isinstance(part, SpeechPart):
            self._input(part.content or "", None)
        elif isinstance(part, ToolReturnPart):
            self._result(part)
        elif isinstance(part, SystemPromptPart):
            self._note("system", part.content, part.timestamp)
        elif isinstance(part, RetryFeedbackPart):
            problem = part.model_response()
            self._append(
                Entry(
                    type="final_answer_validation_failed",
                    message=user(problem),
                    data={"problem": problem},
                    at=_time(part.timestamp),
                )
            )

    def _append(self, entry: Entry) -> None:
        self.update.entries.append(entry.changed(run_id=None if self._run is None else self._run.id))

    def _input(self, content: str | list[Json], at: datetime | None) -> None:
        if self._run is not None and self._run.input_position is None and not self._is_stored:
            self._run = self._run.changed(input_position=self.next_position)
        self._append(Entry(type="input", message=user(content), at=_time(at)))

    def _result(self, part: ToolReturnPart[Any]) -> None:
        call = self._calls.pop(part.tool_call_id, None)
        text = part.model_response_str(wrap_if_error=False)
        if call is None:
            self._note("tool", text, part.timestamp, name=part.tool_name)
            return
        status = _STATUSES.get(part.outcome, "error")
        self._append(
            Entry(
                type="tool_call",
                name=call.name,
                call_id=part.tool_call_id,
                reply_to=call.position,
                call_index=call.number,
                status=status,
                message=tool_result(part.tool_call_id, text, is_error=status == "error"),
                at=_time(part.timestamp),
            )
        )

    def _note(self, role: str, content: str, at: datetime | None, name: str | None = None) -> None:
        """Add an entry that the context does not include."""
        data: Json = {"role": role, "content": content}
        self._append(Entry(type="pydantic_ai_message", name=name, data=data, at=_time(at)))


def messages_of(store: Store, messages: Iterable[ModelMessage]) -> list[Message]:
    """Return messages of pydantic-ai as the messages of a context.

    Args:
        store: Any store.
        messages: Messages of pydantic-ai.
    """
    head = store.new_thread()
    recorder = Recorder(store, head)
    for message in messages:
        recorder.record(message)
    entries = recorder.update.entries
    return context(at_position(entry, head.id, number, None, 0, None) for number, entry in enumerate(entries, start=1))


def _about(message: ModelResponse) -> Json:
    names = {"model": message.model_name, "provider": message.provider_name, "finish_reason": message.finish_reason}
    return {name: value for name, value in names.items() if value is not None}


def _content(content: str | Sequence[UserContent]) -> str | list[Json]:
    """Return the content of a prompt as text or blocks."""
    if isinstance(content, str):
        return content
    blocks = [_block(item) for item in content if not isinstance(item, CachePoint)]
    return blocks[0]["text"] if len(blocks) == 1 and blocks[0]["type"] == "text" else blocks


def _block(item: UserContent) -> Json:
    """Return a part of a prompt as a block. Media that no block can have become a text that names them."""
    if isinstance(item, str):
        return {"type": "text", "text": item}
    if isinstance(item, TextContent):
        return {"type": "text", "text": item.content}
    if isinstance(item, ImageUrl | DocumentUrl):
        kind = "image" if isinstance(item, ImageUrl) else "document"
        return {"type": kind, "source": {"type": "url", "url": item.url}}
    if isinstance(item, BinaryContent):
        kind = "image" if item.is_image else "document" if item.media_type == "application/pdf" else None
        if kind is not None:
            return {"type": kind, "source": {"type": "base64", "media_type": item.media_type, "data": item.base64}}
        return {"type": "text", "text": f"[{item.media_type}, {len(item.data)} bytes]"}
    if isinstance(item, UploadedFile):
        return {"type": "text", "text": f"[file {item.file_id}]"}
    return {"type": "text", "text": f"[{item.kind}]" if isinstance(item, CachePoint) else f"[{item.url}]"}


def _time(value: datetime | None) -> datetime | None:
    """Return a time that a stitch can have. A time without a zone is unknown."""
    return None if value is None or value.tzinfo is None else value
