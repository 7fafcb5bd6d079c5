"""`Conversation`: the stitches of a thread as items of the page, with their calls, runs and children."""

from collections.abc import Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast
from uuid import UUID

from lockstitch.errors import LockstitchError
from lockstitch.model import ERROR_TYPES, Json, Run, Stitch, Thread, codec, text_of, tool_uses
from lockstitch.model.format import plural
from lockstitch.model.message import blocks
from lockstitch.server.pages.common.content import CONTENT_LIMIT, Medium, media_of, one_line
from lockstitch.server.pages.common.markdown import markdown_blocks
from lockstitch.server.pages.common.rows import ThreadListRow, rows
from lockstitch.store import Store

HIDDEN: Final = frozenset(
    {
        *("run_paused", "run_resumed", "api_call_started", "tool_started", "tool_error", "streaming_chunk"),
        *("context_transformation", "memory_before_compact", "memory_after_compact", "final_answer_validation"),
        *("final_summary_generation", "claude_entries"),
    }
)
"""Stitch types that only the log view shows."""

_SEALED: Final = "Encrypted. Only the provider can read it."

_PERMISSIONS: Final = {
    "approved": "Approved",
    "redo": "Rerun allowed",
    "settled": "Resolved",
    "in_doubt": "Outcome unknown",
}
BAD: Final = frozenset({"error", "failed", "denied", "cancelled", "in_doubt"})
"""Statuses of calls without a successful result."""


@dataclass(frozen=True, slots=True)
class ConversationItem:
    """A stitch of the conversation: its shape, its colour, and the data of its template."""

    stitch: Stitch
    shape: str
    kind: str = ""
    """The CSS class of its marker: ink, k-model, k-tool, k-child, k-fail or empty."""
    about: dict[str, Any] = field(default_factory=dict[str, Any])
    opens: Run | None = None
    """The imported run that starts here. Its question is in its state."""
    closes: Run | None = None
    """The imported run that ends here."""

    @property
    def forks(self) -> bool:
        """True if the thread can be forked here."""
        return self.shape in ("input", "model", "call", "result")

    @property
    def is_answer(self) -> bool:
        """True if this is the answer of a run: a response of its agent without tool calls."""
        return self.shape == "model" and not self.stitch.calls and self.stitch.lane is None


class Conversation:
    """Converts stitches of a thread to items, with the responses, runs and children they refer to."""

    def __init__(
        self,
        head: Thread,
        calls: dict[int, Stitch],
        errors: Set[tuple[UUID | None, str]],
        runs: dict[UUID, Run],
        children: dict[UUID, ThreadListRow],
    ) -> None:
        self._head = head
        self._responses = calls
        self._errors = errors
        self._runs = runs
        self._children = children
        self._inputs_by_response: dict[int, list[Any]] = {}
        """The inputs of the calls of a response, by the position of the response."""

    @classmethod
    async def of(cls, store: Store, head: Thread, stitches: Sequence[Stitch]) -> "Conversation":
        known = {stitch.position: stitch for stitch in stitches if stitch.type == "llm_call"}
        missing = sorted({stitch.reply_to for stitch in stitches if stitch.reply_to is not None} - known.keys())
        if missing:
            matches = await store.stitches(head, missing[0], missing[-1])
            known |= {stitch.position: stitch for stitch in matches if stitch.position in missing}
        is_trace = head.kind == "trace"
        wanted = {
            stitch.run_id
            for stitch in stitches
            if stitch.run_id and (is_trace or stitch.lane or stitch.type == "run_started")
        }
        runs = await store.runs_by_id(head.id, wanted)
        heads = await store.threads_by_id({stitch.child_id for stitch in stitches if stitch.child_id})
        children = {row.thread.id: row for row in await rows(store, list(heads.values()))}
        errors = {
            (stitch.run_id, _error_text(stitch))
            for stitch in stitches
            if stitch.type in ERROR_TYPES - HIDDEN - {"run_failed"} and stitch.data.get("fatal", True)
        }
        return cls(head, known, errors, runs, children)

    def items(self, stitches: Sequence[Stitch]) -> list[ConversationItem]:
        """Return the items of these stitches, which are in the order of the log."""
        if self._head.kind == "trace":
            return self._imported(stitches)
        return [item for stitch in stitches if (item := self.item(stitch)) is not None]

    def _imported(self, stitches: Sequence[Stitch]) -> list[ConversationItem]:
        """Return the items of imported runs. Each has its question at its first stitch and its end at its last."""
        last = {stitch.run_id: stitch.position for stitch in stitches}
        if stitches and stitches[-1].position < self._head.position:
            # The rest of this run may be on the next page.
            last.pop(stitches[-1].run_id)
        items: list[ConversationItem] = []
        for stitch in stitches:
            run = self._runs.get(stitch.run_id) if stitch.run_id else None
            opens = run if run is not None and stitch.position == run.first_position else None
            closes = run if run is not None and not run.open and stitch.position == last.get(run.id) else None
            item = None if stitch.type in ("span", "removed") else self.item(stitch)
            if opens is not None or (closes is not None and (closes.error or closes.output_position is None)):
                item = replace(item or ConversationItem(stitch, "turn"), opens=opens, closes=closes)
            if item is not None:
                items.append(item)
        return items

    def item(self, stitch: Stitch) -> ConversationItem | None:
        """Return the item of a stitch, or None if only the log shows it."""
        if stitch.type in HIDDEN:
            return None
        match stitch.type:
            case "input":
                body = {"text": text_of(stitch.message), "media": media_of(stitch), "who": self._author(stitch)}
                return ConversationItem(stitch, "input", "ink", body)
            case "run_started":
                run = self._runs.get(stitch.run_id) if stitch.run_id else None
                return ConversationItem(stitch, "run", about={"run": run})
            case "llm_call" if stitch.message is not None:
                return ConversationItem(
                    stitch, "model", "k-model", {"parts": _parts(stitch), "by": self._member(stitch)}
                )
            case "llm_call":
                purpose = stitch.data.get("purpose")
                body = f"{str(purpose).replace('_', ' ')}, side call" if purpose else f"{stitch.name or 'model'}"
                return ConversationItem(stitch, "line", "k-model", {"text": body})
            case "tool_call":
                return ConversationItem(stitch, "call", "k-tool", self._call(stitch))
            case "thread_spawned":
                return ConversationItem(
                    stitch, "child", "k-child", {"row": self._child(stitch), "goal": stitch.data.get("goal")}
                )
            case "thread_result":
                summary = str(stitch.data.get("summary") or text_of(stitch.message))
                return ConversationItem(stitch, "result", "k-child", {"row": self._child(stitch), "summary": summary})
            case _:
                return self._rest(stitch)

    def _author(self, stitch: Stitch) -> str:
        """Return the author of an input: the user, or the leader for the run of a member."""
        return str(self._head.agent if stitch.lane else self._head.user_id or "User")

    def _member(self, stitch: Stitch) -> str | None:
        """Return the agent of a member's stitch, or None."""
        run = self._runs.get(stitch.run_id) if stitch.lane and stitch.run_id else None
        return run.agent if run is not None else None

    def _rest(self, stitch: Stitch) -> ConversationItem | None:
        data = stitch.data
        match stitch.type:
            case "compaction" if not data.get("applied"):
                return None
            case "compaction":
                return ConversationItem(stitch, "seal", about={"text": _compacted(stitch)})
            case "run_completed" if stitch.status == "completed" and data.get("stop_reason") != "max_steps":
                return None
            case "run_completed":
                text = f"{stitch.status or 'ended'} after {data.get('total_steps') or 0} steps"
                return ConversationItem(stitch, "line", about={"text": text.capitalize()})
            case "api_retry":
                return ConversationItem(stitch, "line", about={"text": _retried(stitch)})
            case "permission":
                by = f" by {data['by']}" if data.get("by") else ""
                about = {"text": f"{_PERMISSIONS.get(stitch.status or '', stitch.status)}{by}", "code": stitch.name}
                if stitch.message is not None:
                    about["more"] = text_of(stitch.message)
                return ConversationItem(stitch, "line", about=about)
            case "thread_taken_over":
                return ConversationItem(
                    stitch, "line", about={"text": "Taken over by another worker", "more": stitch.name or ""}
                )
            case "fork":
                return ConversationItem(stitch, "fork", "ink", {"origin": _forked(stitch)})
            case "run_failed" if (stitch.run_id, _error_text(stitch)) in self._errors:
                # The stitch of the error is above.
                text = f"Failed after {plural(data.get('total_steps') or 0, 'step')}"
                return ConversationItem(stitch, "line", "k-fail", {"text": text})
            case _ if stitch.type in ERROR_TYPES and data.get("fatal", True):
                about = {"text": _error_text(stitch), "kind": data.get("type")}
                return ConversationItem(stitch, "failed", "k-fail", about)
            case _ if stitch.message is not None:
                text = text_of(stitch.message)
                return ConversationItem(stitch, "line", about={"text": stitch.type.replace("_", " "), "more": text})
            case _:
                kind = "k-fail" if stitch.type in ERROR_TYPES else ""
                return ConversationItem(
                    stitch, "plain", kind, {"data": {name: item for name, item in data.items() if name != "request"}}
                )

    def _call(self, stitch: Stitch) -> dict[str, Any]:
        """Return the input, result and status of a call."""
        inputs, index = self._inputs(stitch.reply_to), stitch.call_index
        requested: Any = inputs[index] if index is not None and index < len(inputs) else stitch.data.get("input")
        message = stitch.message or {}
        value: Any = message.get("content", stitch.data.get("output"))
        failed = bool(message.get("is_error")) or stitch.status in BAD
        return {
            "input": requested,
            "given": _value(value),
            "media": media_of(stitch),
            "failed": failed,
            "word": stitch.status if stitch.status not in (None, "ok") else ("failed" if failed else "completed"),
            "by": stitch.data.get("by"),
        }

    def _inputs(self, position: int | None) -> list[Any]:
        """Return the inputs of the calls that a response asks for, by the index of the call."""
        response = self._responses.get(position or -1)
        if response is None:
            return []
        if response.position not in self._inputs_by_response:
            self._inputs_by_response[response.position] = [use.get("input") for use in tool_uses(response.message)]
        return self._inputs_by_response[response.position]

    def _child(self, stitch: Stitch) -> ThreadListRow | None:
        return self._children.get(stitch.child_id) if stitch.child_id else None


def _error_text(stitch: Stitch) -> str:
    return str(stitch.data.get("message") or stitch.data.get("error") or stitch.type)


def _parts(stitch: Stitch) -> list[tuple[str, Any]]:
    """Return the blocks of a response without its calls, which have their own stitches."""
    parts: list[tuple[str, Any]] = []
    left = CONTENT_LIMIT
    media: dict[int, Medium] = {medium.block: medium for medium in media_of(stitch)}
    for number, block in enumerate(blocks(stitch.message or {})):
        match block.get("type"):
            case "text":
                text = str(block.get("text") or "")
                if text.strip():
                    parts.append(("say", (markdown_blocks(text[:left]), len(text) > left)))
                    left = max(0, left - len(text))
            case "thinking" | "redacted_thinking":
                parts.append(("think", str(block.get("thinking") or _SEALED)))
            case "tool_use":
                pass
            case _ if number in media:
                parts.append(("medium", media[number]))
            case kind:
                parts.append(("block", (str(kind), block)))
    return parts


def _value(value: Any) -> tuple[str, Any]:
    """Return the result of a call as text or JSON."""
    if isinstance(value, list):
        parts = cast("list[Any]", value)
        kinds = {cast("Json", part).get("type") if isinstance(part, dict) else None for part in parts}
        if kinds <= {"text", "image", "document"}:
            return "text", text_of({"role": "user", "content": parts})
        return "json", parts
    if isinstance(value, str):
        return _parsed(value)
    return ("text", "") if value is None else ("json", value)


def _parsed(text: str) -> tuple[str, Any]:
    if text[:1] in "{[" and len(text) < 200_000:
        try:
            return "json", codec.loads(text)
        except (ValueError, LockstitchError):
            return "text", text
    return "text", text


def _compacted(stitch: Stitch) -> str:
    data: Json = stitch.data
    removed, modified = data.get("messages_removed") or data.get("removed"), data.get("modified")
    value = "Compacted"
    if removed:
        value += f": {removed} messages removed from the context"
    elif modified:
        value += f": {modified} messages shortened in the context"
    return value + ". The history keeps all messages."


def _retried(stitch: Stitch) -> str:
    data = stitch.data
    what = one_line(str(data.get("message") or data.get("error") or "The model was not reachable"), 200)
    delay: Any = data.get("delay") or data.get("delay_seconds") or data.get("retry_after")
    after = f", retried after {float(delay):.1f} s" if isinstance(delay, int | float) else ", retried"
    return what.rstrip(".") + after


def _forked(stitch: Stitch) -> Json:
    """Return the origin of a fork, or an empty object."""
    origin: Any = stitch.data.get("forked_from")
    return cast("Json", origin) if isinstance(origin, dict) else {}
