"""`Conversation`: the messages of a graph as stitches of its thread.

The state of a graph has the whole list of messages. New messages are appended to the log. If messages have left the
list, because the graph removed them or continues from an earlier checkpoint, a compaction names those that stay. So the
context of the thread is the list of the graph, and its history has everything.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, cast

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from lockstitch.engine.ports.provider import Usage
from lockstitch.engine.usage import price
from lockstitch.model import Entry, Json, NextMessageWait, Run, Stitch, Thread
from lockstitch.model.context import kept_positions, position_ranges, replaces_context
from lockstitch.store import Fields, Store, ThreadUpdate, Where

_ABOUT: Final = "langgraph"
"""Key of `data` with the ids of the message and of the checkpoint."""


class _Call(NamedTuple):
    """An open tool call: the position of its response, its number there, and the tool."""

    position: int
    number: int
    name: str


class _Recorded(NamedTuple):
    """A recorded message: its position and its text. None: it is not text only."""

    position: int
    text: str | None

    def is_same(self, message: BaseMessage) -> bool:
        """True unless the graph has replaced the text of the message."""
        text = cast("str | list[Any]", message.content)
        return self.text is None or not isinstance(text, str) or self.text == text


class Step(NamedTuple):
    """The part of a checkpoint that is about the conversation."""

    checkpoint_id: str
    messages: Sequence[BaseMessage] | None
    """The list of messages, if the checkpoint changes it."""
    is_input: bool
    """True if the checkpoint stores the input of a new run."""
    is_last: bool
    """True if the graph has nothing more to do."""


@dataclass(frozen=True)
class Conversation:
    """The recorded part of a conversation."""

    messages: dict[str, _Recorded] = field(default_factory=dict[str, _Recorded])
    """Recorded messages, by their ids."""
    context: frozenset[int] = frozenset()
    """Positions of the messages that the context includes."""
    calls: dict[str, _Call] = field(default_factory=dict[str, _Call])
    """Tool calls without a result, by the id of the call."""
    run: Run | None = None
    """The open run."""

    @classmethod
    async def load(cls, store: Store, head: Thread) -> "Conversation":
        """Return what the log of a thread has recorded."""
        messages: dict[str, _Recorded] = {}
        calls: dict[str, _Call] = {}
        context: set[int] = set()
        for stitch in await store.stitches(head) if head.position else ():
            if replaces_context(stitch):
                ranges = kept_positions(stitch)
                context = {place for place in context if any(first <= place <= last for first, last in ranges)}
            message_id = _message_id(stitch)
            if message_id is None:
                continue
            messages[message_id] = _Recorded(stitch.position, _text(stitch.message))
            context.add(stitch.position)
            if stitch.type == "llm_call":
                calls |= _calls(stitch.position, stitch.message)
            elif stitch.call_id is not None:
                calls.pop(stitch.call_id, None)
        runs = await store.find_runs(head.id, Where("status", "=", "running"), order=("-sequence",), limit=1)
        return cls(messages, frozenset(context), calls, runs[0] if runs else None)

    def plan(self, store: Store, head: Thread, step: Step) -> "tuple[ThreadUpdate, Conversation]":
        """Return the update that records a checkpoint, and the conversation after its commit."""
        return _Plan(store, head, self, step).result()

    def failed(self, store: Store, head: Thread, problem: str) -> "tuple[ThreadUpdate, Conversation]":
        """Return the update that ends the open run with an error, and the conversation after its commit."""
        assert self.run is not None
        fields: Fields = {
            "status": "failed",
            "stop_reason": "error",
            "error": problem,
            "completed_at": store.clock.now(),
        }
        entry = Entry(type="run_failed", run_id=self.run.id, status="failed", data={"message": problem})
        update = ThreadUpdate(head, [entry], run_updates=[(self.run, fields)], sum_runs=True)
        return update, replace(self, run=None)


class _Plan:
    """Collects the entries of one checkpoint."""

    def __init__(self, store: Store, head: Thread, before: Conversation, step: Step) -> None:
        self._store = store
        self._head = head
        self._step = step
        self._messages = dict(before.messages)
        self._calls = dict(before.calls)
        self._run = before.run
        self._context = before.context
        self._update = ThreadUpdate(head)

    def result(self) -> tuple[ThreadUpdate, Conversation]:
        if self._step.messages is not None:
            self._record(self._step.messages)
        if self._run is not None and self._step.is_last:
            self._end_run("completed", "end_turn")
            self._update.fields = {
                "status": "waiting",
                "waiting_for": [NextMessageWait(self._store.clock.now()).as_json()],
            }
        return self._update, Conversation(self._messages, self._context, self._calls, self._run)

    @property
    def _next_position(self) -> int:
        return self._head.position + len(self._update.entries) + 1

    def _record(self, messages: Sequence[BaseMessage]) -> None:
        new: list[tuple[str, BaseMessage]] = []
        known: list[int] = []
        # A conversation may have thousands of messages, and each checkpoint has all of them.
        for number, message in enumerate(messages):
            message_id = message.id or f"#{number}"
            recorded = self._messages.get(message_id)
            if recorded is not None and recorded.is_same(message):
                known.append(recorded.position)
            else:
                new.append((message_id, message))
        if self._step.is_input and self._run is not None and any(isinstance(item, HumanMessage) for _, item in new):
            # The caller has given up the open run.
            self._end_run("cancelled", "interrupted")
        remaining = frozenset(known)
        if remaining != self._context:
            data: Json = {"applied": True, "reason": _ABOUT, "keep": position_ranges(remaining), "replace": {}}
            self._append(Entry(type="compaction", data=data))
        added: list[int] = []
        for message_id, message in new:
            added.append(self._next_position)
            self._add(message_id, message)
            self._messages[message_id] = _Recorded(added[-1], _text(self._update.entries[-1].message))
        self._context = remaining.union(added)

    def _add(self, message_id: str, message: BaseMessage) -> None:
        about: Json = {_ABOUT: {"message_id": message_id, "checkpoint_id": self._step.checkpoint_id}}
        position = self._next_position
        if isinstance(message, HumanMessage):
            if self._run is None:
                self._start_run(input_position=position)
            self._append(Entry(type="input", message={"role": "user", "content": _content(message)}, data=about))
        elif isinstance(message, AIMessage):
            if self._run is None:
                self._start_run()
            entry = _response(message, about, self._store)
            self._calls |= _calls(position, entry.message)
            self._append(entry)
        elif isinstance(message, ToolMessage) and message.tool_call_id in self._calls:
            call = self._calls.pop(message.tool_call_id)
            self._append(_result(message, call, about))
        else:
            data: Json = {**about, "role": message.type, "content": _content(message)}
            self._append(Entry(type="langgraph_message", name=message.name, data=data))

    def _append(self, entry: Entry) -> None:
        self._update.entries.append(entry.changed(run_id=None if self._run is None else self._run.id))

    def _start_run(self, input_position: int | None = None) -> None:
        self._run = self._store.new_run(self._head, input_position=input_position).changed(
            first_position=self._next_position
        )
        self._update.new_runs.append(self._run)

    def _end_run(self, status: str, reason: str) -> None:
        run, self._run = self._run, None
        assert run is not None
        fields: Fields = {"status": status, "stop_reason": reason, "completed_at": self._store.clock.now()}
        answer = self._next_position - 1
        entries = self._update.entries
        if status == "completed" and entries and entries[-1].type == "llm_call" and not entries[-1].calls:
            fields["output_position"] = answer
        self._update.sum_runs = True
        new_runs = self._update.new_runs
        if new_runs and new_runs[-1].id == run.id:
            new_runs[-1] = run.changed(**fields)
        else:
            self._update.run_updates.append((run, fields))


def _response(message: AIMessage, about: Json, store: Store) -> Entry:
    usage: Json = dict(message.usage_metadata or {})
    details = cast("Json", usage.get("input_token_details") or {})
    metadata = message.response_metadata
    model = metadata.get("model_name") or metadata.get("model")
    tokens: Json = {
        "input_tokens": usage.get("input_tokens"),
        "output_tokens": usage.get("output_tokens"),
        "cache_read_tokens": details.get("cache_read"),
        "cache_write_tokens": details.get("cache_creation"),
    }
    data = about
    if isinstance(model, str):
        data = {**data, "model": model}
        if usage:
            known = Usage(**{name: value or 0 for name, value in tokens.items()})
            cost = price(str(metadata.get("model_provider") or ""), model, known, store.clock.now())
            data |= {"cost": cost["total_cost"]} if cost else {}
    content = _text_blocks(message) + [
        {"type": "tool_use", "id": call["id"], "name": call["name"], "input": call["args"]}
        for call in message.tool_calls
    ]
    return Entry(
        type="llm_call",
        name=model if isinstance(model, str) else None,
        message={"role": "assistant", "content": content},
        status="tool_use" if message.tool_calls else "end_turn",
        data=data,
        **tokens,
    )


def _result(message: ToolMessage, call: _Call, about: Json) -> Entry:
    block: Json = {"type": "tool_result", "tool_use_id": message.tool_call_id, "content": _content(message)}
    failed = message.status == "error"
    return Entry(
        type="tool_call",
        name=call.name,
        call_id=message.tool_call_id,
        reply_to=call.position,
        call_index=call.number,
        status="error" if failed else "ok",
        message={**block, "is_error": True} if failed else block,
        data=about,
    )


def _text_blocks(message: AIMessage) -> list[Json]:
    text = str(message.text)
    return [{"type": "text", "text": text}] if text else []


def _content(message: BaseMessage) -> str | list[Json]:
    """Return the content of a message as text or blocks. Parts that are no text stay unchanged."""
    content = cast("str | list[str | Json]", message.content)
    if isinstance(content, str):
        return content
    return [{"type": "text", "text": part} if isinstance(part, str) else part for part in content]


def _text(message: Json | None) -> str | None:
    """Return the text of a recorded message, or None if it has other parts."""
    content: Any = (message or {}).get("content")
    if isinstance(content, list):
        blocks = [block for block in cast("list[Json]", content) if block["type"] != "tool_use"]
        if any(block["type"] != "text" for block in blocks):
            return None
        content = "".join(block["text"] for block in blocks)
    return content if isinstance(content, str) else None


def _calls(position: int, message: Json | None) -> dict[str, _Call]:
    blocks = cast("list[Json]", (message or {}).get("content") or [])
    calls = [block for block in blocks if block["type"] == "tool_use"]
    return {str(call["id"]): _Call(position, index, call["name"]) for index, call in enumerate(calls)}


def _message_id(stitch: Stitch) -> str | None:
    about: Any = stitch.data.get(_ABOUT)
    return cast("Json", about).get("message_id") if isinstance(about, dict) else None
