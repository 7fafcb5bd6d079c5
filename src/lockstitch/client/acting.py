"""Acting over HTTP: runs are begun, people's replies given, threads changed. A worker of the server's does the work."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import Any
from uuid import UUID

from lockstitch.client.connection import part
from lockstitch.client.reading import Reading, Ref, name_of, thread_path
from lockstitch.client.rows import Followed, Outcome
from lockstitch.errors import NotFound
from lockstitch.records import Feedback, Json, Thread


class Acting(Reading):
    """What can be done."""

    async def start(self, agent: str, goal: str, **fields: Any) -> Thread:
        """A thread with a goal for a worker: key, title, user_id, tasks, priority, at and extras may be said."""
        given = {name: _json(value) for name, value in fields.items()}
        return Thread.from_json(await self._connection.post("/api/threads", {"agent": agent, "goal": goal, **given}))

    async def begin(self, agent: str, input: str | list[Json], **fields: Any) -> Outcome:
        """Begin a run, and leave it to the server: thread, user_id, metadata, tags and extras may be said."""
        return await self._begin(agent, input, fields, wait=False)

    async def run_agent(self, agent: str, input: str | list[Json], **fields: Any) -> Outcome:
        """The same, and wait for what comes of it: until it has ended or waits for somebody."""
        return await self._begin(agent, input, fields, wait=True)

    async def stream(self, agent: str, input: str | list[Json], **fields: Any) -> AsyncGenerator[Followed]:
        """The same, told as it happens. Whoever leaves early leaves the run to the server."""
        before = await self._position(fields["thread"]) if fields.get("thread") is not None else 0
        begun = await self.begin(agent, input, **fields)
        async with aclosing(self.events(begun.thread_id, after=before, until="idle")) as events:
            async for event in events:
                yield event

    async def fork(self, ref: Ref, *, at: int | None = None, **fields: Any) -> Thread:
        return Thread.from_json(await self._act(ref, "fork", at=at, **fields))

    async def edit(self, ref: Ref, **fields: Any) -> Thread:
        """Set title, extras, priority or expires_at."""
        body = {name: _json(value) for name, value in fields.items()}
        return Thread.from_json(await self._connection.ask("PATCH", thread_path(ref), body=body))

    async def delete(self, ref: Ref, *, force: bool = False) -> int:
        return (await self._connection.ask("DELETE", thread_path(ref), parameters={"force": force}))["deleted"]

    async def cancel(self, ref: Ref) -> Json:
        return await self._act(ref, "cancel")

    async def retry(self, ref: Ref) -> Json:
        return await self._act(ref, "retry")

    async def resume(self, ref: Ref) -> Json:
        return await self._act(ref, "resume")

    async def approve(self, ref: Ref, call_id: str) -> Json:
        return await self._act(ref, "approve", call_id=call_id)

    async def deny(self, ref: Ref, call_id: str, *, reason: str | None = None) -> Json:
        return await self._act(ref, "deny", call_id=call_id, reason=reason)

    async def settle(
        self, ref: Ref, call_id: str, *, done: str | None = None, redo: bool = False, unknown: bool = False
    ) -> Json:
        return await self._act(ref, "settle", call_id=call_id, done=done, redo=redo, unknown=unknown)

    async def answer(self, ref: Ref, text: str, *, call_id: str | None = None) -> Json:
        return await self._act(ref, "answer", text=text, call_id=call_id)

    async def submit_results(self, ref: Ref, results: Sequence[Json]) -> Json:
        return await self._act(ref, "tool_results", results=list(results))

    async def deliver(self, ref: Ref, input: str | list[Json], *, id: str | None = None) -> Json:
        """Leave a message for a thread whose agent runs elsewhere; the same id is delivered once."""
        return await self._act(ref, "deliver", input=input, id=id)

    async def give_feedback(self, name: str, **fields: Any) -> Feedback:
        """Say something about a `thread`, a `run` or a `stitch`: with a score, a value or a comment."""
        told = {field: str(value) if isinstance(value, UUID) else value for field, value in fields.items()}
        return Feedback.from_json(await self._connection.post("/api/feedback", {"name": name, **told}))

    async def _act(self, ref: Ref, act: str, **body: Any) -> Any:
        said = {name: value for name, value in body.items() if value is not None}
        return await self._connection.post(f"{thread_path(ref)}/{act}", said or None)

    async def _begin(self, agent: str, input: str | list[Json], fields: Json, *, wait: bool) -> Outcome:
        body: Json = {
            "input": input,
            "wait": wait,
            **{name: value for name, value in fields.items() if value is not None},
        }
        if "thread" in body:
            body["thread"] = name_of(body["thread"])
        return Outcome.from_json(await self._connection.post(f"/api/agents/{part(agent)}/runs", body, patient=wait))

    async def _position(self, ref: Ref) -> int:
        try:
            return (await self.thread(ref)).position
        except NotFound:
            return 0


def _json(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value
