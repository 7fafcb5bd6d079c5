"""One line that says what is going on in a thread: the current tool and its time, the question asked, the error, or
the last result. Opening a thread is for doing, not for finding out."""

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from lockstitch.backend import Find, Where
from lockstitch.records import Json, Run, Stitch, Thread, answer_of, call_key, text_of
from lockstitch.records.message import blocks, tool_uses
from lockstitch.server.pages import waiting
from lockstitch.server.pages.code import answer_line, arguments, one_line
from lockstitch.server.pages.figures import span
from lockstitch.store import Store

Line = list[tuple[str, str]]
"""Pieces of a line: `code`, `failed` or nothing, and the text."""

_RECENT: Final = 12
"""Stitches that tell what an open run is at."""
_ASIDE: Final = 3
"""How far back a response is looked for: after it there may be calls on the side, for a memory, a title, a summary."""


class Teller:
    """Tells of threads of one list, with few questions for many."""

    def __init__(self, store: Store, tips: dict[UUID, Stitch]) -> None:
        self._store = store
        self._tips = tips

    @classmethod
    async def of(cls, store: Store, threads: Sequence[Thread]) -> "Teller":
        """With the last responses and results of these threads at hand."""
        tips: dict[UUID, Stitch] = {}
        wanted = [thread.tip_id for thread in threads if thread.tip_id is not None]
        for _ in range(_ASIDE):
            found = await store.backend.find(Find(Stitch, (Where("id", "in", wanted),))) if wanted else []
            tips |= {stitch.thread_id: stitch for stitch in found if stitch.message is not None}
            wanted = [one.previous_id for one in found if one.message is None and one.previous_id is not None]
        return cls(store, tips)

    async def line(self, thread: Thread, run: Run | None) -> Line:
        waits = waiting.person_waits_of(thread)
        if waits:
            return await self._wanted(thread, waits)
        if thread.kind == "trace":
            return self._trace(thread, run)
        match thread.status:
            case "running":
                return await self._at_work(thread)
            case "failed":
                return [("failed", one_line(str((run.error if run else None) or self._result(thread) or "failed")))]
            case "cancelled":
                return [("", "Cancelled" + (f" at step {run.steps}" if run and run.steps else ""))]
            case "completed":
                return [("", answer_line(self._result(thread) or self._said(thread)))]
            case "waiting":
                return self._parked(thread, run)
            case _:
                named = thread.goal and thread.title
                return [("", one_line(f"Goal: {thread.goal}" if named else "Waits for a worker"))]

    async def _wanted(self, thread: Thread, waits: Sequence[Json]) -> Line:
        wait = waits[0]
        name = str(wait.get("name") or "")
        more = f", and {len(waits) - 1} more" if len(waits) > 1 else ""
        match wait.get("kind"):
            case "doubt":
                return [("code", name), ("", f"was cut off after it began; nobody knows whether it happened{more}")]
            case "input":
                return [("", f"“{one_line(str(wait.get('question') or 'It asks something.'))}”{more}")]
            case "frontend_tools":
                return [("code", name), ("", f"runs in your browser{more}")]
            case _:
                call = await self._call(thread, str(wait.get("key")))
                return [("code", name), ("", arguments(call.get("input") if call else None, 120) + more)]

    async def _call(self, thread: Thread, key: str) -> Json | None:
        """Return the call with this key from the last responses of the thread, or None."""
        first = max(thread.first_position, thread.position - _RECENT)
        for stitch in reversed(await self._store.stitches(thread, first)):
            for index, block in enumerate(tool_uses(stitch.message) if stitch.type == "llm_call" else ()):
                if call_key(stitch.id, index) == key:
                    return block
        return None

    async def _at_work(self, thread: Thread) -> Line:
        first = max(thread.first_position, thread.position - _RECENT)
        recent = await self._store.stitches(thread, first)
        if not recent:
            return [("", "begins")]
        begun = running_calls(recent)
        last = begun[0] if begun else recent[-1]
        seconds = (self._store.clock.now() - last.at).total_seconds() if last.at else 0
        step = f"step {last.step_number or 1} · "
        if begun:
            more = f", and {len(begun) - 1} more" if len(begun) > 1 else ""
            return [("", step), ("code", str(last.name)), ("", f"{_short(seconds)}{more}")]
        number = (last.step_number or 0) + 1
        return [("", f"step {number} · thinking {_short(seconds)}")]

    def _parked(self, thread: Thread, run: Run | None) -> Line:
        for wait in thread.waiting_for:
            if wait.get("kind") == "retry":
                return [("", one_line(str(wait.get("reason") or "It is tried again.")))]
        if run is not None and run.status == "failed" and run.error:
            return [("failed", one_line(run.error))]
        said = self._said(thread)
        if thread.goal and thread.title and (not said or thread.pending_children):
            return [("", one_line(f"Goal: {thread.goal}"))]
        return [("", answer_line(said))] if said else [("", "Nothing was said yet")]

    def _trace(self, thread: Thread, run: Run | None) -> Line:
        if run is not None and run.error:
            return [("failed", one_line(run.error))]
        source = run.source if run is not None else "elsewhere"
        return [("", f"A trace of {source}, {thread.position:,} stitches")]

    def _result(self, thread: Thread) -> str:
        result = thread.result or {}
        return str(result.get("summary") or result.get("error") or "")

    def _said(self, thread: Thread) -> str:
        """What was said or given last."""
        tip = self._tips.get(thread.id)
        if tip is None or tip.message is None:
            return ""
        if tip.type == "llm_call":
            said = answer_of(tip.message) or text_of(tip.message)
            calls = [str(block.get("name")) for block in blocks(tip.message) if block.get("type") == "tool_use"]
            return said or ", ".join(calls)
        content: Any = tip.message.get("content")
        return content if isinstance(content, str) else text_of(tip.message)


def running_calls(recent: Sequence[Stitch]) -> list[Stitch]:
    """Return the last tool_started of each call that has no result yet. Later responses may reuse a call id."""
    begun: dict[tuple[UUID | None, int | None], Stitch] = {}
    for stitch in recent:
        call = (stitch.run_id, stitch.call_index)
        if stitch.type == "tool_started":
            begun[call] = stitch
        elif stitch.type == "tool_call":
            begun.pop(call, None)
        elif stitch.type == "llm_call":
            # All calls of the earlier response of this run have results.
            begun = {known: one for known, one in begun.items() if known[0] != stitch.run_id}
    return list(begun.values())


def _short(seconds: float) -> str:
    return f"{max(0.0, seconds):.1f} s" if seconds < 60 else span(seconds)
