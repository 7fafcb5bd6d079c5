"""`EventReplay`: converts the items of a thread stream to the events of its executor.

So a formatted stream is the same for each process that executes the run, and continues after a takeover. A stream on a
server and its copy in a client are converted in the same way.
"""

from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterable, Iterator
from typing import Any, Protocol
from uuid import UUID

from lockstitch.engine.decision.delegation import DELEGATE
from lockstitch.engine.events import Event, EventType
from lockstitch.engine.result import Result, result_from_store
from lockstitch.model import Json, Run, Stitch, Thread, open_calls, text_of
from lockstitch.model.message import blocks
from lockstitch.model.thread import TERMINAL_STATUSES
from lockstitch.store import Store

_SERVER_CALL = "server_tool_use"


class ReplayItem(Protocol):
    """An item of a thread stream."""

    @property
    def kind(self) -> str:
        """Kind of the item, such as `stitch` or `delta`."""
        ...

    @property
    def data(self) -> Json:
        """The item as JSON."""
        ...

    @property
    def stitch(self) -> Stitch | None:
        """The stitch of an item of the kind `stitch`."""
        ...


class EventReplay:
    """Converts the items of one thread stream to events."""

    def __init__(self, store: Store, head: Thread) -> None:
        self._store = store
        self._head = head
        self._texts: defaultdict[tuple[UUID, str], list[str]] = defaultdict(list)
        """The streamed parts of a response, by run and kind."""
        self._attempts: dict[UUID, str] = {}
        self._runs: dict[UUID, Run] = {}
        """Known runs. Their agent does not change."""

    async def events(self, stream_items: AsyncIterable[ReplayItem]) -> AsyncGenerator[Event | None]:
        """Yield events. None is a heartbeat without an event."""
        async for stream_item in stream_items:
            if stream_item.kind == "beat":
                yield None
            elif stream_item.kind == "delta":
                await self._know(UUID(stream_item.data["run_id"]))
                for event in self._delta(stream_item.data):
                    yield event
            elif stream_item.stitch is not None and stream_item.stitch.run_id is not None:
                await self._know(stream_item.stitch.run_id)
                for event in await self._stitch(stream_item.stitch, stream_item.stitch.run_id):
                    yield event

    def _delta(self, data: Json) -> Iterator[Event]:
        run_id, kind, step = UUID(data["run_id"]), data["kind"], int(data["step_number"]) - 1
        if self._attempts.get(run_id, data["attempt"]) != data["attempt"]:
            # A new attempt: the earlier parts do not belong to the response.
            self._forget(run_id)
            yield self._event("retry", run_id, step, {})
        self._attempts[run_id] = data["attempt"]
        self._texts[run_id, kind].append(data["text"])
        yield self._event("thinking" if kind == "thinking" else "text", run_id, step, {"text": data["text"]})

    async def _stitch(self, stitch: Stitch, run_id: UUID) -> list[Event]:
        step = stitch.step_number or 0
        match stitch.type:
            case "run_started" | "run_paused" if self._runs[run_id].compiles:
                return []
            case "run_started":
                return [await self._started(run_id)]
            case "llm_call" if stitch.message is not None and stitch.data.get("purpose") in (None, "final_summary"):
                return list(self._answer(stitch, run_id, step))
            case "tool_call":
                block = stitch.message or {}
                data = {"id": stitch.call_id, "name": stitch.name, "content": block.get("content")}
                return [self._event("tool_result", run_id, step, {**data, "is_error": bool(block.get("is_error"))})]
            case "run_paused" if self._runs[run_id].parent_run_id is not None:
                return []
            case "run_paused":
                waits: Any = stitch.data.get("waiting_for") or []
                return [self._event("paused", run_id, step, {"waiting_for": waits, "pending": await self.pending()})]
            case _:
                return await self._over(stitch, run_id, step)

    async def _over(self, stitch: Stitch, run_id: UUID, step: int) -> list[Event]:
        if stitch.type not in ("run_completed", "run_failed"):
            return []
        run = await self._store.run(run_id)
        if run.status not in TERMINAL_STATUSES or run.compiles:
            return []
        result = await self.result(run)
        if run.parent_run_id is not None:
            body = {"status": run.status, "output_text": result.output_text, "error": run.error}
            return [self._event("member_finished", run_id, step, {"agent": run.agent, **body})]
        events: list[Event] = []
        if await self._is_passed_on(run):
            events.append(self._event("text", run_id, step, {"text": result.output_text}))
        if result.generated_files:
            events.append(self._event("files", run_id, step, {"files": result.generated_files}))
        if run.status == "failed":
            events.append(self._event("failed", run_id, step, {"error": run.error, "type": "run_failed"}))
        return [*events, self._event("finished", run_id, step, {**result.as_json(), "title": result.title})]

    def _answer(self, stitch: Stitch, run_id: UUID, step: int) -> Iterator[Event]:
        """Yield the events of a response without the parts that were streamed."""
        message = stitch.message or {}
        # Text is part of the call that has not finished. The summary after the last step has the number of that step.
        before = step - ("purpose" not in stitch.data)
        body = {kind: "".join(self._texts[run_id, kind]) for kind in ("thinking", "text")}
        full_texts = {
            "thinking": "".join(str(block.get("thinking", "")) for block in blocks(message)),
            "text": text_of(message),
        }
        if any(not full_texts[kind].startswith(body[kind]) for kind in body):
            yield self._event("retry", run_id, before, {})
            body = dict.fromkeys(body, "")
        self._forget(run_id)
        for block in blocks(message):
            kind = str(block.get("type"))
            if kind in ("text", "thinking"):
                text = str(block.get(kind, ""))
                skipped = min(len(text), len(body[kind]))
                body[kind] = body[kind][skipped:]
                if text[skipped:]:
                    yield self._event(
                        "text" if kind == "text" else "thinking", run_id, before, {"text": text[skipped:]}
                    )
            elif kind == "tool_use":
                yield self._event(
                    "tool_call", run_id, step, {name: block.get(name) for name in ("id", "name", "input")}
                )
            elif kind == _SERVER_CALL:
                yield self._event("server_tool_call", run_id, step, block)
            elif kind.endswith("_tool_result"):
                yield self._event("server_tool_result", run_id, step, block)

    async def _started(self, run_id: UUID) -> Event:
        run = self._runs[run_id]
        stitches: list[Stitch] = []
        if run.input_position:
            stitches = await self._store.stitches(self._head, run.input_position, run.input_position)
        text = text_of(stitches[0].message) if stitches else ""
        who: Json = {"agent": run.agent, "model": run.model}
        if run.parent_run_id is not None:
            return self._event("member_started", run_id, 0, {**who, "task": text})
        return self._event("started", run_id, 0, {**who, "user_message": text})

    async def _is_passed_on(self, run: Run) -> bool:
        """True if the answer of a run is the answer of a member, which was already sent."""
        if run.role != "team" or run.output_position is None:
            return False
        stitches = await self._store.stitches(self._head, run.output_position, run.output_position)
        return bool(stitches) and stitches[0].lane is not None

    async def result(self, run: Run) -> Result:
        """Return the result of a run that has ended."""
        return await result_from_store(self._store, run)

    async def pending(self) -> list[Json]:
        """Return the open calls for the frontend, without delegations to members."""
        log = await self._store.execution.context_stitches(await self._store.thread(self._head.id))
        return [
            {"tool_use_id": call.get("id"), "name": call.get("name"), "input": call.get("input")}
            for lane in dict.fromkeys(stitch.lane for stitch in log)
            for _, call in open_calls(log, lane)
            if call.get("name") != DELEGATE
        ]

    async def _know(self, run_id: UUID) -> None:
        if run_id not in self._runs:
            self._runs[run_id] = await self._store.run(run_id)

    def _forget(self, run_id: UUID) -> None:
        for kind in ("text", "thinking"):
            self._texts.pop((run_id, kind), None)

    def _event(self, kind: EventType, run_id: UUID, step: int, data: Json) -> Event:
        run = self._runs[run_id]
        return Event(kind, self._head.id, run_id, run.agent or "", step, data, run.lane is not None)
