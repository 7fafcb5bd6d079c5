"""`Client`: the store's read calls and the engine's operations over HTTP."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from datetime import datetime
from types import TracebackType
from typing import Any, Literal, Self
from uuid import UUID

from lockstitch.client.connection import Connection, part
from lockstitch.client.models import Difference, History, Hit, RunResult, StreamEvent, ThreadRow
from lockstitch.errors import NotFound
from lockstitch.model import Feedback, File, Json, Memory, Message, Run, Stitch, Thread

Ref = Thread | UUID | str
"""A thread, its id, or its key in the project."""


class Reading:
    """What can be read. Methods that the store has too are told of there."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    # Threads

    async def thread(self, ref: Ref) -> Thread:
        return Thread.from_json(await self._get(thread_path(ref)))

    async def threads(self, *, limit: int = 50, after: Ref | None = None, **equal: Any) -> list[ThreadRow]:
        """Threads by last activity, newest first; by status, agent, kind, user_id, since or root_only."""
        marked = None if after is None else name_of(after)
        found = await self._get("/api/threads", limit=limit, after=marked, **equal)
        return [ThreadRow.from_json(row) for row in found["threads"]]

    async def tree(self, ref: Ref) -> ThreadRow:
        """The thread and all its descendants, each below its parent."""
        return ThreadRow.from_json(await self._get(f"{thread_path(ref)}/tree"))

    async def children(self, ref: Ref) -> list[ThreadRow]:
        return [ThreadRow.from_json(row) for row in await self._get(f"{thread_path(ref)}/children")]

    async def context(self, ref: Ref) -> list[Message]:
        return await self._get(f"{thread_path(ref)}/context")

    async def history(self, ref: Ref, *, limit: int = 20, offset: int = 0, before: int | None = None) -> History:
        found = await self._get(f"{thread_path(ref)}/history", limit=limit, offset=offset, before=before)
        return History(found["turns"], found["more"])

    async def stitches(self, ref: Ref, first: int = 1, last: int | None = None) -> list[Stitch]:
        found: list[Stitch] = []
        place: int | None = first
        while place is not None:
            page = await self._get(f"{thread_path(ref)}/stitches", first=place, last=last, limit=1000)
            found += [Stitch.from_json(row) for row in page["stitches"]]
            place = page["next"]
        return found

    async def files(self, ref: Ref) -> list[File]:
        return [File.from_json(row) for row in await self._get(f"{thread_path(ref)}/files")]

    async def size(self, ref: Ref) -> dict[str, int]:
        return await self._get(f"{thread_path(ref)}/size")

    # Runs and stitches

    async def runs(self, ref: Ref, *, limit: int = 1000) -> list[Run]:
        return [Run.from_json(row) for row in await self._get(f"{thread_path(ref)}/runs", limit=limit)]

    async def run(self, run_id: UUID | str) -> Run:
        return Run.from_json(await self._get(run_path(run_id)))

    async def result(self, run_id: UUID | str) -> RunResult:
        """The result of a run in its current state."""
        return RunResult.from_json(await self._get(f"{run_path(run_id)}/result"))

    async def log(self, run_id: UUID | str) -> list[Stitch]:
        return [Stitch.from_json(row) for row in await self._get(f"{run_path(run_id)}/log")]

    async def messages(self, run_id: UUID | str) -> list[Message]:
        return await self._get(f"{run_path(run_id)}/messages")

    async def trace(self, run_id: UUID | str, *, depth: int | None = None, limit: int = 500) -> Json:
        return await self._get(f"{run_path(run_id)}/trace", depth=depth, limit=limit)

    async def difference(self, a: UUID | str, b: UUID | str) -> Difference:
        return await self._get(f"{run_path(a)}/difference/{part(b)}")

    async def stitch(self, stitch_id: UUID | str) -> Stitch:
        return Stitch.from_json(await self._get(f"/api/stitches/{part(stitch_id)}"))

    async def request(self, stitch_id: UUID | str) -> Json:
        return await self._get(f"/api/stitches/{part(stitch_id)}/request")

    # Over many

    async def search(self, text: str, *, limit: int = 20) -> list[Hit]:
        found = await self._get("/api/search", q=text, limit=limit)
        return [Hit(UUID(row["thread_id"]), row["position"], row["score"], row["key"], row["title"]) for row in found]

    async def errors(self, *, limit: int = 50, since: datetime | None = None) -> list[Stitch]:
        return [Stitch.from_json(row) for row in await self._get("/api/errors", limit=limit, since=since)]

    async def statistics(self, *by: str, parts: Sequence[str] = (), **only: Any) -> Json:
        """Usage put together `by` these, and the `parts` that are wanted; without either an overview."""
        return await self._get("/api/stats", by=list(by) or None, parts=list(parts) or None, **only)

    async def agents(self) -> Json:
        return await self._get("/api/agents")

    async def memories(self, *, user_id: str | None = None, limit: int = 100) -> list[Memory]:
        found = await self._get("/api/memories", user_id=user_id, limit=limit)
        return [Memory.from_json(row) for row in found]

    async def feedback(self, ref: Ref | None = None, *, limit: int = 100) -> list[Feedback]:
        thread = None if ref is None else name_of(ref)
        return [Feedback.from_json(row) for row in await self._get("/api/feedback", thread=thread, limit=limit)]

    # Following

    def events(
        self, ref: Ref, *, after: int = 0, until: Literal["end", "idle", "now"] = "end"
    ) -> AsyncGenerator[StreamEvent]:
        """A thread as it goes on: stitches, deltas of what is being said, how it stands, and its end."""
        return self._connection.follow(f"{thread_path(ref)}/events", after, until=until)

    async def watch(self, ref: Ref, *, after: int = 0) -> AsyncGenerator[Stitch]:
        """Stitches as they come: everything after a position, each once, until the thread ends."""
        async with aclosing(self.events(ref, after=after)) as events:
            async for event in events:
                if event.stitch is not None:
                    yield event.stitch

    async def _get(self, path: str, **parameters: Any) -> Any:
        return await self._connection.get(path, **parameters)


def name_of(ref: Ref) -> str:
    return str(ref.id) if isinstance(ref, Thread) else str(ref)


def thread_path(ref: Ref) -> str:
    return f"/api/threads/{part(name_of(ref))}"


def run_path(run_id: UUID | str) -> str:
    return f"/api/runs/{part(run_id)}"


class Acting(Reading):
    """What can be done."""

    async def start(self, agent: str, goal: str, **fields: Any) -> Thread:
        """A thread with a goal for a worker: key, title, user_id, tasks, priority, at and extras may be said."""
        given = {name: _json(value) for name, value in fields.items()}
        return Thread.from_json(await self._connection.post("/api/threads", {"agent": agent, "goal": goal, **given}))

    async def begin(self, agent: str, input: str | list[Json], **fields: Any) -> RunResult:
        """Begin a run, and leave it to the server: thread, user_id, metadata, tags and extras may be said."""
        return await self._begin(agent, input, fields, wait=False)

    async def run_agent(self, agent: str, input: str | list[Json], **fields: Any) -> RunResult:
        """The same, and wait for what comes of it: until it has ended or waits for somebody."""
        return await self._begin(agent, input, fields, wait=True)

    async def stream(self, agent: str, input: str | list[Json], **fields: Any) -> AsyncGenerator[StreamEvent]:
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

    async def _begin(self, agent: str, input: str | list[Json], fields: Json, *, wait: bool) -> RunResult:
        body: Json = {
            "input": input,
            "wait": wait,
            **{name: value for name, value in fields.items() if value is not None},
        }
        if "thread" in body:
            body["thread"] = name_of(body["thread"])
        return RunResult.from_json(await self._connection.post(f"/api/agents/{part(agent)}/runs", body, patient=wait))

    async def _position(self, ref: Ref) -> int:
        try:
            return (await self.thread(ref)).position
        except NotFound:
            return 0


def _json(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


class Client(Acting):
    """A server's record, seen from one project: that of the token, or `project` where no token is needed.

    Errors are those of the store. Reading is repeated by nobody but the caller; following a thread comes back by
    itself, and neither misses nor repeats a stitch.
    """

    def __init__(
        self, url: str, *, token: str | None = None, project: str | None = None, timeout: float = 30.0
    ) -> None:
        super().__init__(Connection(url, token, project, timeout))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._connection.close()
