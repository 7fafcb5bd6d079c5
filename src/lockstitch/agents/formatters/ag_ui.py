"""`AGUIFormatter`: the events of AG-UI, the protocol between agents and user interfaces.

One stream is one run of AG-UI. It ends when the run of Lockstitch has ended or waits: an approval or a question is an
interrupt, and a call for the browser is a pending call.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from lockstitch.agents.formatters.ai_sdk import text_of_result
from lockstitch.agents.formatters.sent_text import SentText, TextPart
from lockstitch.engine.events import Event
from lockstitch.model import ApprovalWait, FrontendToolWait, InDoubtWait, Json, QuestionWait, Wait, codec, parse_waits

_INTERRUPTS: Final[dict[type[Wait], tuple[str, str]]] = {
    ApprovalWait: ("tool_call", "Approve the call of {name}."),
    QuestionWait: ("input_required", "Answer the question of {name}."),
    InDoubtWait: ("lockstitch:unknown_outcome", "State the outcome of the call of {name}."),
}
"""Reason and message of an interrupt, by the class of the wait."""


class AGUIFormatter:
    """Formats one run as events of AG-UI.

    Args:
        detail: True to send the results of tools.
        run_id: Id of the run that the client has chosen. None: the id of the run in Lockstitch.
        thread_id: Id of the thread at the client. None: the id in Lockstitch.
    """

    name = "ag-ui"

    def __init__(self, detail: bool = False, *, run_id: str | None = None, thread_id: str | None = None) -> None:
        self._detail = detail
        self._run_id = run_id
        self._thread_id = thread_id
        self._started = False
        self._ended = False
        self._text = SentText()
        self._waits: tuple[Wait, ...] = ()
        self._messages: list[Json] | None = None
        self._known: set[str] = set()

    def reset_messages(self, messages: list[Json]) -> None:
        """Replace the messages of the client when the stream starts, because it shows its run from the start.

        Args:
            messages: The messages before the run.
        """
        self._messages = messages

    def skip(self, ids: Iterable[str]) -> None:
        """Leave out what the client has: the results of calls, and reasoning, which a reset does not remove.

        Args:
            ids: Ids of calls and of messages.
        """
        self._known.update(ids)

    def feed(self, event: Event) -> list[str]:
        if event.member or self._ended:
            # The calls of the leader show its members.
            return []
        return [codec.dumps(sent).decode() for sent in (*self._start(event), *self._events(event))]

    def end(self) -> list[str]:
        if self._ended or not self._started:
            return []
        self._ended = True
        events = [*self._end_text(), self._finished(_outcome(self._waits))]
        return [codec.dumps(sent).decode() for sent in events]

    def _start(self, event: Event) -> Iterator[Json]:
        if not self._started:
            self._started = True
            self._run_id = self._run_id or str(event.run_id)
            self._thread_id = self._thread_id or str(event.thread_id)
            yield {"type": "RUN_STARTED", "threadId": self._thread_id, "runId": self._run_id}
            if self._messages is not None:
                yield {"type": "MESSAGES_SNAPSHOT", "messages": self._messages}

    def _events(self, event: Event) -> Iterator[Json]:
        data = event.data
        match event.type:
            case "text" | "thinking":
                yield from self._add_text(event)
            case "retry":
                self._text.retry()
            case "tool_call" | "server_tool_call":
                yield from self._end_text()
                yield from _call(event)
            case "tool_result" | "server_tool_result":
                call_id = data.get("tool_use_id" if event.type == "server_tool_result" else "id")
                if call_id in self._known:
                    return
                content = text_of_result(data.get("content")) if self._detail else ""
                ids = {"messageId": f"{event.run_id}-{call_id}-result", "toolCallId": call_id}
                yield {"type": "TOOL_CALL_RESULT", **ids, "role": "tool", "content": content}
            case "paused":
                yield from self._end_text()
                self._waits = parse_waits(data.get("waiting_for") or ())
            case "failed":
                self._ended = True
                message = str(data.get("error") or "The run failed.")
                yield {"type": "RUN_ERROR", "message": message, "code": str(data.get("type", "run_failed"))}
            case "finished" if data.get("status") != "waiting":
                yield from self._end_text()
                self._ended = True
                outcome = "cancelled" if data.get("status") == "cancelled" else "success"
                yield self._finished({"type": outcome}, {"text": data.get("output_text"), "usage": data.get("usage")})
            case _:
                return

    def _add_text(self, event: Event) -> Iterator[Json]:
        if self._text.is_next_call(event):
            yield from self._end_text()
        before = self._text.open
        for part in self._text.add(event):
            if part.first and before is not None:
                yield from self._end_part(before)
            if part.id in self._known:
                continue
            prefix = _PREFIXES[part.kind]
            if part.first:
                if part.kind == "thinking":
                    yield {"type": "REASONING_START", "messageId": part.id}
                role = "assistant" if part.kind == "text" else "reasoning"
                yield {"type": f"{prefix}_START", "messageId": part.id, "role": role}
            yield {"type": f"{prefix}_CONTENT", "messageId": part.id, "delta": part.text}

    def _end_text(self) -> Iterator[Json]:
        part = self._text.open
        self._text.end_call()
        if part is not None:
            yield from self._end_part(part)

    def _end_part(self, part: TextPart) -> Iterator[Json]:
        if part.id not in self._known:
            yield {"type": f"{_PREFIXES[part.kind]}_END", "messageId": part.id}
            if part.kind == "thinking":
                yield {"type": "REASONING_END", "messageId": part.id}

    def _finished(self, outcome: Json, result: Json | None = None) -> Json:
        ids = {"threadId": self._thread_id, "runId": self._run_id}
        return {"type": "RUN_FINISHED", **ids, "outcome": outcome, **({"result": result} if result else {})}


_PREFIXES: Final = {"text": "TEXT_MESSAGE", "thinking": "REASONING_MESSAGE"}


def _call(event: Event) -> Iterator[Json]:
    """Yield a call. All calls of one model call are in one message."""
    call_id = event.data.get("id")
    parent = f"{event.run_id}-{event.step}-calls"
    yield {
        "type": "TOOL_CALL_START",
        "toolCallId": call_id,
        "toolCallName": event.data.get("name"),
        "parentMessageId": parent,
    }
    yield {"type": "TOOL_CALL_ARGS", "toolCallId": call_id, "delta": codec.dumps(event.data.get("input")).decode()}
    yield {"type": "TOOL_CALL_END", "toolCallId": call_id}


def _outcome(waits: tuple[Wait, ...]) -> Json:
    interrupts: list[Json] = []
    for wait in waits:
        if type(wait) in _INTERRUPTS:
            reason, message = _INTERRUPTS[type(wait)]
            question = wait.question if isinstance(wait, QuestionWait) else None
            interrupts.append(
                {
                    "id": wait.key,
                    "reason": reason,
                    "message": question or message.format(name=wait.name),
                    "toolCallId": wait.call_id,
                }
            )
    if interrupts:
        return {"type": "interrupt", "interrupts": interrupts}
    pending = [wait.call_id for wait in waits if isinstance(wait, FrontendToolWait)]
    return {"type": "success", **({"pendingToolCallIds": pending} if pending else {})}
