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
    """The read operations of `Client`. Methods that `Store` also has behave as described there."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    # Threads

    async def thread(self, ref: Ref) -> Thread:
        """Return a thread. Raises `NotFound`."""
        return Thread.from_json(await self._get(thread_path(ref)))

    async def threads(self, *, limit: int = 50, after: Ref | None = None, **equal: Any) -> list[ThreadRow]:
        """Return threads by last activity, newest first.

        `after` is the last thread of the previous page. Filters: status, agent, kind, user_id, since and root_only.
        """
        marked = None if after is None else name_of(after)
        result = await self._get("/api/threads", limit=limit, after=marked, **equal)
        return [ThreadRow.from_json(row) for row in result["threads"]]

    async def tree(self, ref: Ref) -> ThreadRow:
        """Return a thread with all its descendants, each in the `children` of its parent. Raises `NotFound`."""
        return ThreadRow.from_json(await self._get(f"{thread_path(ref)}/tree"))

    async def children(self, ref: Ref) -> list[ThreadRow]:
        """Return the children of a thread."""
        return [ThreadRow.from_json(row) for row in await self._get(f"{thread_path(ref)}/children")]

    async def context(self, ref: Ref) -> list[Message]:
        """Return the messages that the model would receive now."""
        return await self._get(f"{thread_path(ref)}/context")

    async def history(self, ref: Ref, *, limit: int = 20, offset: int = 0, before: int | None = None) -> History:
        """Return finished turns, newest first. Page with `offset`, or with `before`, a turn number."""
        result = await self._get(f"{thread_path(ref)}/history", limit=limit, offset=offset, before=before)
        return History(result["turns"], result["more"])

    async def stitches(self, ref: Ref, first: int = 1, last: int | None = None) -> list[Stitch]:
        """Return the stitches from position `first` to `last`, or to the end. Reads as many pages as needed."""
        matches: list[Stitch] = []
        place: int | None = first
        while place is not None:
            page = await self._get(f"{thread_path(ref)}/stitches", first=place, last=last, limit=1000)
            matches += [Stitch.from_json(row) for row in page["stitches"]]
            place = page["next"]
        return matches

    async def files(self, ref: Ref) -> list[File]:
        """Return the files of a thread."""
        return [File.from_json(row) for row in await self._get(f"{thread_path(ref)}/files")]

    async def size(self, ref: Ref) -> dict[str, int]:
        """Return the stored bytes of a thread by part."""
        return await self._get(f"{thread_path(ref)}/size")

    # Runs and stitches

    async def runs(self, ref: Ref, *, limit: int = 1000) -> list[Run]:
        """Return the runs of a thread in the order of their start, at most `limit`."""
        return [Run.from_json(row) for row in await self._get(f"{thread_path(ref)}/runs", limit=limit)]

    async def run(self, run_id: UUID | str) -> Run:
        """Return a run. Raises `NotFound`."""
        return Run.from_json(await self._get(run_path(run_id)))

    async def result(self, run_id: UUID | str) -> RunResult:
        """Return the result of a run in its current state. Raises `NotFound`."""
        return RunResult.from_json(await self._get(f"{run_path(run_id)}/result"))

    async def log(self, run_id: UUID | str) -> list[Stitch]:
        """Return all stitches of a run in order."""
        return [Stitch.from_json(row) for row in await self._get(f"{run_path(run_id)}/log")]

    async def messages(self, run_id: UUID | str) -> list[Message]:
        """Return all messages of a run, also those that were compacted later."""
        return await self._get(f"{run_path(run_id)}/messages")

    async def trace(self, run_id: UUID | str, *, depth: int | None = None, limit: int = 500) -> Json:
        """Return a run as a tree, as JSON. `depth` limits the levels, `limit` the nodes."""
        return await self._get(f"{run_path(run_id)}/trace", depth=depth, limit=limit)

    async def difference(self, a: UUID | str, b: UUID | str) -> Difference:
        """Return the difference of two runs: {a, b, same, changes, steps}."""
        return await self._get(f"{run_path(a)}/difference/{part(b)}")

    async def stitch(self, stitch_id: UUID | str) -> Stitch:
        """Return a stitch. Raises `NotFound`."""
        return Stitch.from_json(await self._get(f"/api/stitches/{part(stitch_id)}"))

    async def request(self, stitch_id: UUID | str) -> Json:
        """Return the exact request of a model call. Raises `NotFound`."""
        return await self._get(f"/api/stitches/{part(stitch_id)}/request")

    # Queries over many threads

    async def search(self, text: str, *, limit: int = 20) -> list[Hit]:
        """Return the places that contain every word of `text`, best first. Searches titles, inputs and answers."""
        result = await self._get("/api/search", q=text, limit=limit)
        return [Hit(UUID(row["thread_id"]), row["position"], row["score"], row["key"], row["title"]) for row in result]

    async def errors(self, *, limit: int = 50, since: datetime | None = None) -> list[Stitch]:
        """Return the latest errors of the project, newest first."""
        return [Stitch.from_json(row) for row in await self._get("/api/errors", limit=limit, since=since)]

    async def statistics(self, *by: str, parts: Sequence[str] = (), **only: Any) -> Json:
        """Return usage grouped by the names in `by`, and the named `parts`. Without both, return an overview.

        `only` are filters: since, until, agent, model and user.
        """
        return await self._get("/api/stats", by=list(by) or None, parts=list(parts) or None, **only)

    async def agents(self) -> Json:
        """Return the agents of the server and of the record as JSON."""
        return await self._get("/api/agents")

    async def memories(self, *, user_id: str | None = None, limit: int = 100) -> list[Memory]:
        """Return memories of the project, or of one user."""
        result = await self._get("/api/memories", user_id=user_id, limit=limit)
        return [Memory.from_json(row) for row in result]

    async def feedback(self, ref: Ref | None = None, *, limit: int = 100) -> list[Feedback]:
        """Return feedback of the project, or of one thread."""
        thread = None if ref is None else name_of(ref)
        return [Feedback.from_json(row) for row in await self._get("/api/feedback", thread=thread, limit=limit)]

    # Streams

    def events(
        self, ref: Ref, *, after: int = 0, until: Literal["end", "idle", "now"] = "end"
    ) -> AsyncGenerator[StreamEvent]:
        """Yield the events of a thread after a position: stitches, deltas of streamed text, status changes and the end.

        `until` is "end" (the thread has ended), "idle" (its run has ended or waits) or "now". After a broken
        connection, the stream reconnects and continues without a lost or repeated stitch. Raises `StoreUnreachable`
        if the server never answered.
        """
        return self._connection.follow(f"{thread_path(ref)}/events", after, until=until)

    async def watch(self, ref: Ref, *, after: int = 0) -> AsyncGenerator[Stitch]:
        """Yield every stitch after a position once, as it is written, until the thread ends."""
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
    """The write operations of `Client`."""

    async def start(self, agent: str, goal: str, **fields: Any) -> Thread:
        """Create a thread with a goal for a worker and return it.

        Optional fields: key, title, user_id, tasks, priority, at and extras. Raises `KeyTaken` if the key is in use.
        """
        values = {name: _json(value) for name, value in fields.items()}
        return Thread.from_json(await self._connection.post("/api/threads", {"agent": agent, "goal": goal, **values}))

    async def begin(self, agent: str, input: str | list[Json], **fields: Any) -> RunResult:
        """Start a run and return its state at once. The server executes it.

        Optional fields: thread, user_id, metadata, tags and extras. If the thread has an open run, the message is
        queued and the status is `pending`.
        """
        return await self._begin(agent, input, fields, wait=False)

    async def run_agent(self, agent: str, input: str | list[Json], **fields: Any) -> RunResult:
        """Start a run and return its result when it has ended or waits for a reply. Fields as for `begin`."""
        return await self._begin(agent, input, fields, wait=True)

    async def stream(self, agent: str, input: str | list[Json], **fields: Any) -> AsyncGenerator[StreamEvent]:
        """Start a run and yield its events. Fields as for `begin`. If the caller stops early, the run continues."""
        before = await self._position(fields["thread"]) if fields.get("thread") is not None else 0
        run_result = await self.begin(agent, input, **fields)
        async with aclosing(self.events(run_result.thread_id, after=before, until="idle")) as events:
            async for event in events:
                yield event

    async def fork(self, ref: Ref, *, at: int | None = None, **fields: Any) -> Thread:
        """Create a thread from a position of this one and return it. Calls that are open there get an error."""
        return Thread.from_json(await self._act(ref, "fork", at=at, **fields))

    async def edit(self, ref: Ref, **fields: Any) -> Thread:
        """Set title, extras, priority or expires_at, and return the thread."""
        body = {name: _json(value) for name, value in fields.items()}
        return Thread.from_json(await self._connection.ask("PATCH", thread_path(ref), body=body))

    async def delete(self, ref: Ref, *, force: bool = False) -> int:
        """Delete a thread with its descendants and return the number of deleted threads.

        Raises `ThreadBusy` if a worker holds one of them, unless `force` is set.
        """
        return (await self._connection.ask("DELETE", thread_path(ref), parameters={"force": force}))["deleted"]

    async def cancel(self, ref: Ref) -> Json:
        """Request the end of the open run and of its children. Return the status of the thread."""
        return await self._act(ref, "cancel")

    async def retry(self, ref: Ref) -> Json:
        """Start a new run for a failed or cancelled one, with the same context. Return the status and the run_id."""
        return await self._act(ref, "retry")

    async def resume(self, ref: Ref) -> Json:
        """Resume an interrupted or waiting thread. Return the status and the run_id."""
        return await self._act(ref, "resume")

    async def approve(self, ref: Ref, call_id: str) -> Json:
        """Approve a call. Return the status of the thread."""
        return await self._act(ref, "approve", call_id=call_id)

    async def deny(self, ref: Ref, call_id: str, *, reason: str | None = None) -> Json:
        """Deny a call. The model receives the reason. Return the status of the thread."""
        return await self._act(ref, "deny", call_id=call_id, reason=reason)

    async def settle(
        self, ref: Ref, call_id: str, *, done: str | None = None, redo: bool = False, unknown: bool = False
    ) -> Json:
        """Settle a call with an unknown outcome. Pass exactly one of `done`, `redo` and `unknown`.

        `done` is the result of a call that completed, `redo` runs the call again, `unknown` informs the model. Returns
        the status of the thread.
        """
        return await self._act(ref, "settle", call_id=call_id, done=done, redo=redo, unknown=unknown)

    async def answer(self, ref: Ref, text: str, *, call_id: str | None = None) -> Json:
        """Answer the first question of a thread, or the one of `call_id`. Return the status of the thread."""
        return await self._act(ref, "answer", text=text, call_id=call_id)

    async def submit_results(self, ref: Ref, results: Sequence[Json]) -> Json:
        """Submit the results of all frontend calls that the thread waits for. Return the status of the thread."""
        return await self._act(ref, "tool_results", results=list(results))

    async def deliver(self, ref: Ref, input: str | list[Json], *, id: str | None = None) -> Json:
        """Send a message to a thread. A worker answers it. Return the status and the run_id of the answer.

        Repeating a message with the same `id` has no effect. Raises `Conflict` if another message has this id.
        """
        return await self._act(ref, "deliver", input=input, id=id)

    async def give_feedback(self, name: str, **fields: Any) -> Feedback:
        """Store feedback on a `thread`, a `run` or a `stitch`, with a `score`, a `value` or a `comment`. Return it."""
        body = {field: str(value) if isinstance(value, UUID) else value for field, value in fields.items()}
        return Feedback.from_json(await self._connection.post("/api/feedback", {"name": name, **body}))

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
    """A server's record, limited to one project: the project of the token, or `project` if no token is needed.

    Use it as an async context manager, or call `close()`. Safe to use from many tasks. Methods raise the same errors as
    `Store`, and `StoreUnreachable` if the server does not answer. Requests are not retried, but event streams
    reconnect.

    `url` is the address of the server, `timeout` the seconds for one request.
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
        """Close the HTTP connections."""
        await self._connection.close()
