"""`Client`: the store's read calls and the engine's operations over HTTP."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from datetime import datetime
from types import EllipsisType, TracebackType
from typing import Any, Literal, Self
from uuid import UUID

from lockstitch.client.connection import Connection, part
from lockstitch.client.models import (
    Difference,
    History,
    Hit,
    Inbox,
    Matches,
    RunResult,
    StreamEvent,
    ThreadRow,
    WaitingThread,
)
from lockstitch.errors import NotFound
from lockstitch.model import AgentVersion, Feedback, File, Json, Memory, Message, Run, Stitch, Thread

Ref = Thread | UUID | str
"""A thread, its id, or its key in the project."""


class ReadMethods:
    """The read operations of `Client`. Methods that `Store` also has behave as described there."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    # Threads

    async def thread(self, ref: Ref) -> Thread:
        """Return a thread in its current state.

        Args:
            ref: Thread, its id or its key in the project.

        Raises:
            NotFound: If the project has no such thread.
        """
        return Thread.from_json(await self._get(thread_path(ref)))

    async def threads(
        self,
        *,
        limit: int = 50,
        after: Ref | None = None,
        status: str | Sequence[str] | None = None,
        agent: str | None = None,
        kind: str | None = None,
        user_id: str | None = None,
        since: datetime | None = None,
        root_only: bool = False,
    ) -> list[ThreadRow]:
        """Return threads with totals of their runs, by last activity, newest first.

        Args:
            limit: Maximum number of threads.
            after: Last thread of the previous page.
            status: Only threads with this status, or with one of these.
            agent: Only threads of this agent.
            kind: Only threads of this kind.
            user_id: Only threads of this user.
            since: Only threads with activity since this time.
            root_only: Only threads without a parent.
        """
        result = await self._get(
            "/api/threads",
            limit=limit,
            after=None if after is None else name_of(after),
            status=status,
            agent=agent,
            kind=kind,
            user_id=user_id,
            since=since,
            root_only=root_only or None,
        )
        return [ThreadRow.from_json(row) for row in result["threads"]]

    async def tree(self, ref: Ref) -> ThreadRow:
        """Return a thread with all its descendants, each in the `children` of its parent.

        Args:
            ref: Thread, its id or its key in the project.

        Raises:
            NotFound: If the project has no such thread.
        """
        return ThreadRow.from_json(await self._get(f"{thread_path(ref)}/tree"))

    async def children(self, ref: Ref) -> list[ThreadRow]:
        """Return the children of a thread with totals of their runs.

        Args:
            ref: Thread, its id or its key in the project.

        Raises:
            NotFound: If the project has no such thread.
        """
        return [ThreadRow.from_json(row) for row in await self._get(f"{thread_path(ref)}/children")]

    async def ancestors(self, ref: Ref) -> list[Thread]:
        """Return the ancestors of a thread, from its parent to the root.

        Args:
            ref: Thread, its id or its key in the project.

        Raises:
            NotFound: If the project has no such thread.
        """
        return [Thread.from_json(row) for row in await self._get(f"{thread_path(ref)}/ancestors")]

    async def match(self, text: str, *, limit: int = 10) -> Matches:
        """Return the threads and runs whose id or short id starts with a text, the latest first.

        The last 8 to 12 characters of an id also match. Fewer than 4 characters match nothing.

        Args:
            text: Part of an id, or the key of a thread.
            limit: Maximum number of threads and of runs.
        """
        result = await self._get("/api/match", text=text, limit=limit)
        exact = result["exact"]
        return Matches(
            None if exact is None else Thread.from_json(exact),
            [Thread.from_json(row) for row in result["threads"]],
            [Run.from_json(row) for row in result["runs"]],
        )

    async def inbox(self, *, limit: int = 50) -> Inbox:
        """Return the threads that wait for a person, the longest wait first, with the calls that wait for a reply.

        Args:
            limit: Maximum number of threads.
        """
        result = await self._get("/api/inbox", limit=limit)
        waiting = [WaitingThread(Thread.from_json(row["thread"]), row["replies"]) for row in result["threads"]]
        return Inbox(waiting, result["count"])

    async def replies(self, ref: Ref) -> list[Json]:
        """Return the calls of a thread that wait for a reply, the longest wait first.

        Args:
            ref: Thread, its id or its key in the project.

        Raises:
            NotFound: If the project has no such thread.
        """
        return await self._get(f"{thread_path(ref)}/replies")

    async def context(self, ref: Ref) -> list[Message]:
        """Return the messages that the model would get in the next request.

        Args:
            ref: Thread, its id or its key in the project.

        Raises:
            NotFound: If the project has no such thread.
        """
        return await self._get(f"{thread_path(ref)}/context")

    async def history(self, ref: Ref, *, limit: int = 20, offset: int = 0, before: int | None = None) -> History:
        """Return one page of finished turns, newest first.

        Args:
            ref: Thread, its id or its key in the project.
            limit: Maximum number of turns.
            offset: Number of newer turns to skip.
            before: Only turns with a lower number: the number of the oldest turn of the previous page.

        Raises:
            NotFound: If the project has no such thread.
        """
        result = await self._get(f"{thread_path(ref)}/history", limit=limit, offset=offset, before=before)
        return History(result["turns"], result["more"])

    async def stitches(self, ref: Ref, first: int = 1, last: int | None = None) -> list[Stitch]:
        """Return stitches of a thread in order. The client reads as many pages as needed.

        Args:
            ref: Thread, its id or its key in the project.
            first: First position.
            last: Last position. None: the end of the log.

        Raises:
            NotFound: If the project has no such thread.
        """
        matches: list[Stitch] = []
        place: int | None = first
        while place is not None:
            page = await self._get(f"{thread_path(ref)}/stitches", first=place, last=last, limit=1000)
            matches += [Stitch.from_json(row) for row in page["stitches"]]
            place = page["next"]
        return matches

    async def files(self, ref: Ref) -> list[File]:
        """Return the files of a thread.

        Args:
            ref: Thread, its id or its key in the project.

        Raises:
            NotFound: If the project has no such thread.
        """
        return [File.from_json(row) for row in await self._get(f"{thread_path(ref)}/files")]

    async def size(self, ref: Ref) -> dict[str, int]:
        """Return the stored bytes of a thread by part.

        Args:
            ref: Thread, its id or its key in the project.

        Raises:
            NotFound: If the project has no such thread.
        """
        return await self._get(f"{thread_path(ref)}/size")

    # Runs and stitches

    async def runs(self, ref: Ref, *, limit: int = 1000, first: int = 0) -> list[Run]:
        """Return the runs of a thread in the order of their start.

        Args:
            ref: Thread, its id or its key in the project.
            limit: Maximum number of runs.
            first: Number of the first run: the last `sequence` of the previous page plus 1.

        Raises:
            NotFound: If the project has no such thread.
        """
        result = await self._get(f"{thread_path(ref)}/runs", limit=limit, first=first or None)
        return [Run.from_json(row) for row in result]

    async def last_run(self, ref: Ref) -> Run:
        """Return the last run of a thread, without runs of team members.

        Args:
            ref: Thread, its id or its key in the project.

        Raises:
            NotFound: If the project has no such thread, or if the thread has no run.
        """
        return Run.from_json(await self._get(f"{thread_path(ref)}/last_run"))

    async def run(self, run_id: UUID | str) -> Run:
        """Return a run.

        Args:
            run_id: Id of the run. The id of an imported run in the other system also works.

        Raises:
            NotFound: If the project has no such run.
        """
        return Run.from_json(await self._get(run_path(run_id)))

    async def result(self, run_id: UUID | str) -> RunResult:
        """Return the result of a run in its current state.

        Args:
            run_id: Id of the run. The id of an imported run in the other system also works.

        Raises:
            NotFound: If the project has no such run.
        """
        return RunResult.from_json(await self._get(f"{run_path(run_id)}/result"))

    async def log(self, run_id: UUID | str) -> list[Stitch]:
        """Return all stitches of a run in order.

        Args:
            run_id: Id of the run. The id of an imported run in the other system also works.

        Raises:
            NotFound: If the project has no such run.
        """
        return [Stitch.from_json(row) for row in await self._get(f"{run_path(run_id)}/log")]

    async def messages(self, run_id: UUID | str) -> list[Message]:
        """Return all messages of a run, also those that were compacted later.

        Args:
            run_id: Id of the run. The id of an imported run in the other system also works.

        Raises:
            NotFound: If the project has no such run.
        """
        return await self._get(f"{run_path(run_id)}/messages")

    async def trace(self, run_id: UUID | str, *, depth: int | None = None, limit: int = 500) -> Json:
        """Return a run as a tree, as JSON.

        Args:
            run_id: Id of the run. The id of an imported run in the other system also works.
            depth: Maximum number of levels. None: all.
            limit: Maximum number of nodes.

        Raises:
            NotFound: If the project has no such run.
        """
        return await self._get(f"{run_path(run_id)}/trace", depth=depth, limit=limit)

    async def difference(self, a: UUID | str, b: UUID | str) -> Difference:
        """Return the difference of two runs: {a, b, same, changes, steps}.

        Args:
            a: Id of the first run.
            b: Id of the second run.

        Raises:
            NotFound: If the project has not both runs.
        """
        return await self._get(f"{run_path(a)}/difference/{part(b)}")

    async def export_run(self, run_id: UUID | str, *, form: Literal["langsmith"] = "langsmith") -> list[Json]:
        """Return a run in the format of another system.

        Args:
            run_id: Id of the run. The id of an imported run in the other system also works.
            form: Name of the format.

        Raises:
            NotFound: If the project has no such run.
        """
        return await self._get(f"{run_path(run_id)}/export", **{"as": form})

    async def latest(self, *, limit: int = 50, since: datetime | None = None) -> list[Stitch]:
        """Return the latest stitches of all threads of the project, newest first.

        Args:
            limit: Maximum number of stitches.
            since: Only stitches since this time.
        """
        return [Stitch.from_json(row) for row in await self._get("/api/stitches", limit=limit, since=since)]

    async def stitch(self, stitch_id: UUID | str) -> Stitch:
        """Return a stitch.

        Args:
            stitch_id: Id of the stitch.

        Raises:
            NotFound: If the project has no such stitch, or if it is archived.
        """
        return Stitch.from_json(await self._get(f"/api/stitches/{part(stitch_id)}"))

    async def request(self, stitch_id: UUID | str) -> Json:
        """Return the exact request of a model call.

        Args:
            stitch_id: Id of the `llm_call` stitch, or of the `api_error` of a failed call.

        Raises:
            NotFound: If the project has no such stitch, or if it has no request.
        """
        return await self._get(f"/api/stitches/{part(stitch_id)}/request")

    # Queries over many threads

    async def search(self, text: str, *, limit: int = 20) -> list[Hit]:
        """Return the titles, inputs and answers that contain every word of a text, best match first.

        Args:
            text: Words to search for.
            limit: Maximum number of hits.
        """
        result = await self._get("/api/search", q=text, limit=limit)
        return [Hit(UUID(row["thread_id"]), row["position"], row["score"], row["key"], row["title"]) for row in result]

    async def errors(self, *, limit: int = 50, since: datetime | None = None) -> list[Stitch]:
        """Return the latest error stitches of the project, newest first.

        Args:
            limit: Maximum number of stitches.
            since: Only errors since this time.
        """
        return [Stitch.from_json(row) for row in await self._get("/api/errors", limit=limit, since=since)]

    async def statistics(
        self,
        *by: str,
        parts: Sequence[str] = (),
        since: datetime | None = None,
        until: datetime | None = None,
        agent: str | None = None,
        model: str | None = None,
        user: str | None = None,
        limit: int = 20,
    ) -> Json:
        """Return usage of the project as JSON. Without `by` and `parts`, return an overview.

        Args:
            by: Fields to group usage by, such as `model`, `agent` or `day`.
            parts: Names of the parts to return.
            since: Only runs that started since this time.
            until: Only runs that started before this time.
            agent: Only runs of this agent.
            model: Only runs of this model.
            user: Only runs of threads of this user.
            limit: Maximum number of rows of a part that is a list.
        """
        return await self._get(
            "/api/stats",
            by=list(by) or None,
            parts=list(parts) or None,
            since=since,
            until=until,
            agent=agent,
            model=model,
            user=user,
            limit=limit,
        )

    async def average_tokens(self, since: datetime) -> list[Json]:
        """Return the average input and output tokens per run: {thread_id, runs, average_tokens} for each thread.

        Args:
            since: Only runs since this time.
        """
        return await self._get("/api/stats/tokens", since=since)

    async def dashboard(self, ref: Ref | None = None) -> Json:
        """Return the open threads, the workers and the costs of the project as JSON.

        Args:
            ref: Only this thread with its descendants: a thread, its id or its key.

        Raises:
            NotFound: If the project has no such thread.
        """
        return await self._get("/api/dashboard", thread=None if ref is None else name_of(ref))

    async def whoami(self) -> Json:
        """Return {project, actor, scopes, agents, version}: the caller, the agents of the app, and the server."""
        return await self._get("/api/whoami")

    async def sql(self, query: str, *, lens: str | None = None, limit: int | None = None) -> Json:
        """Return the result of a SELECT: {columns, rows, more}. It sees all projects. Needs the scope `admin`.

        Args:
            query: The statement.
            lens: Name of a lens. None: the core tables.
            limit: Maximum number of rows. The server has its own limit.

        Raises:
            Refused: If the statement is not valid, or if the token does not have the scope.
        """
        body = _without_none(query=query, lens=lens, limit=limit)
        return await self._connection.post("/api/sql", body, patient=True)

    async def ingest_queue(self, *, limit: int = 100) -> Json:
        """Return the counts of the ingest queue of the project and its bodies in quarantine. Needs the scope `admin`.

        Args:
            limit: Maximum number of bodies.
        """
        return await self._get("/api/arrivals", limit=limit)

    async def tokens(self) -> list[Json]:
        """Return the tokens of the project without their secrets. Needs the scope `admin`."""
        return await self._get("/api/tokens")

    async def audit(self, *, limit: int = 50) -> list[Json]:
        """Return the audit log of the project, newest first. Needs the scope `admin`.

        Args:
            limit: Maximum number of entries.
        """
        return await self._get("/api/audit", limit=limit)

    async def agents(self) -> Json:
        """Return the agents of the server and of the record as JSON."""
        return await self._get("/api/agents")

    async def versions(self, agent: str) -> list[AgentVersion]:
        """Return the versions of an agent, oldest first.

        Args:
            agent: Name of the agent.

        Raises:
            NotFound: If the project has no such agent.
        """
        return [AgentVersion.from_json(row) for row in await self._get(f"/api/agents/{part(agent)}/versions")]

    async def memories(self, *, user_id: str | None = None, limit: int = 100) -> list[Memory]:
        """Return memories of the project.

        Args:
            user_id: Only memories of this user.
            limit: Maximum number of memories.
        """
        result = await self._get("/api/memories", user_id=user_id, limit=limit)
        return [Memory.from_json(row) for row in result]

    async def feedback(self, ref: Ref | None = None, *, limit: int = 100) -> list[Feedback]:
        """Return feedback of the project.

        Args:
            ref: Only feedback on this thread: a thread, its id or its key.
            limit: Maximum number of records.

        Raises:
            NotFound: If the project has no such thread.
        """
        thread = None if ref is None else name_of(ref)
        return [Feedback.from_json(row) for row in await self._get("/api/feedback", thread=thread, limit=limit)]

    # Streams

    def events(
        self, ref: Ref, *, after: int = 0, until: Literal["end", "idle", "now"] = "end"
    ) -> AsyncGenerator[StreamEvent]:
        """Yield the events of a thread: stitches, deltas of streamed text, status changes and the end.

        After a broken connection, the stream reconnects and continues without a lost or repeated stitch.

        Args:
            ref: Thread, its id or its key in the project.
            after: Position after which the events start.
            until: When to stop. `end`: the thread has ended. `idle`: its run has ended or waits. `now`: all stored
                events are sent.

        Raises:
            NotFound: If the project has no such thread.
            StoreUnreachable: If the server never answered.
        """
        return self._connection.follow(f"{thread_path(ref)}/events", after, until=until)

    async def watch(self, ref: Ref, *, after: int = 0) -> AsyncGenerator[Stitch]:
        """Yield every stitch after a position once, as it is written, until the thread ends.

        Args:
            ref: Thread, its id or its key in the project.
            after: Position after which the stitches start.

        Raises:
            NotFound: If the project has no such thread.
            StoreUnreachable: If the server never answered.
        """
        async with aclosing(self.events(ref, after=after)) as events:
            async for event in events:
                if event.stitch is not None:
                    yield event.stitch

    def watch_project(self, *, recent: int = 0) -> AsyncGenerator[Stitch]:
        """Yield the stitches of all threads of the project as they are written.

        Args:
            recent: Number of stored stitches to yield first, at most 1000.

        Raises:
            StoreUnreachable: If the server does not answer, or when it ends the stream.
        """
        return self._connection.stitches("/api/events/stitches", recent=recent)

    async def _get(self, path: str, **parameters: Any) -> Any:
        return await self._connection.get(path, **parameters)


def name_of(ref: Ref) -> str:
    return str(ref.id) if isinstance(ref, Thread) else str(ref)


def thread_path(ref: Ref) -> str:
    return f"/api/threads/{part(name_of(ref))}"


def run_path(run_id: UUID | str) -> str:
    return f"/api/runs/{part(run_id)}"


class ActionMethods(ReadMethods):
    """The write operations of `Client`."""

    async def start(
        self,
        agent: str,
        goal: str,
        *,
        key: str | None = None,
        title: str | None = None,
        user_id: str | None = None,
        tasks: Sequence[Json | str] = (),
        priority: int = 0,
        at: datetime | None = None,
        extras: Json | None = None,
    ) -> Thread:
        """Create a thread with a goal and return it. A worker executes it.

        Args:
            agent: Name of the agent that executes the thread.
            goal: Task of the thread, in words.
            key: Name of the thread, unique within the project.
            title: Title of the thread for lists.
            user_id: Id of the user that the thread belongs to.
            tasks: Task list, as texts or as objects with a `description`. The first request contains it.
            priority: Claim priority. Higher values first.
            at: Time before which no worker starts the thread, with a time zone.
            extras: Additional data of an application.

        Raises:
            KeyTaken: If the key is in use.
            Refused: If a value is not valid.
        """
        body = _without_none(
            agent=agent,
            goal=goal,
            key=key,
            title=title,
            user_id=user_id,
            tasks=list(tasks),
            priority=priority,
            at=at,
            extras=extras,
        )
        return Thread.from_json(await self._connection.post("/api/threads", body))

    async def begin(
        self,
        agent: str,
        input: str | list[Json],
        *,
        thread: Ref | None = None,
        user_id: str | None = None,
        metadata: Json | None = None,
        tags: Sequence[str] = (),
        extras: Json | None = None,
        message_id: str | None = None,
    ) -> RunResult:
        """Start a run and return its state at once. The server executes it.

        If the thread has an open run, the message is queued and the status is `pending`.

        Args:
            agent: Name of the agent.
            input: Message of the user: a text, or a list of content blocks.
            thread: Thread, its id or its key. An unknown key creates a thread. None: a new thread.
            user_id: Id of the user that the thread belongs to.
            metadata: Metadata of the run.
            tags: Tags of the run.
            extras: Additional data of an application, stored with the run.
            message_id: Id of the message that you choose, unique per thread. If the thread has accepted it before, no
                run starts, and the result is that of the first message.

        Raises:
            NotFound: If the server has no such agent.
            Conflict: If the thread cannot take the message, for example because it has ended, or if the first message
                with this id has another content.
            Refused: If a value is not valid.
        """
        body = _run_body(input, thread, user_id, metadata, tags, extras, message_id)
        return await self._begin(agent, {**body, "wait": False})

    async def run_agent(
        self,
        agent: str,
        input: str | list[Json],
        *,
        thread: Ref | None = None,
        user_id: str | None = None,
        metadata: Json | None = None,
        tags: Sequence[str] = (),
        extras: Json | None = None,
        message_id: str | None = None,
    ) -> RunResult:
        """Start a run and return its result when it has ended or waits for a reply.

        Args:
            agent: Name of the agent.
            input: Message of the user: a text, or a list of content blocks.
            thread: Thread, its id or its key. An unknown key creates a thread. None: a new thread.
            user_id: Id of the user that the thread belongs to.
            metadata: Metadata of the run.
            tags: Tags of the run.
            extras: Additional data of an application, stored with the run.
            message_id: Id of the message that you choose, unique per thread. If the thread has accepted it before, no
                run starts, and the result is that of the first message.

        Raises:
            NotFound: If the server has no such agent.
            Conflict: If the thread cannot take the message, for example because it has ended, or if the first message
                with this id has another content.
            Refused: If a value is not valid.
        """
        body = _run_body(input, thread, user_id, metadata, tags, extras, message_id)
        return await self._begin(agent, {**body, "wait": True})

    async def stream(
        self,
        agent: str,
        input: str | list[Json],
        *,
        thread: Ref | None = None,
        user_id: str | None = None,
        metadata: Json | None = None,
        tags: Sequence[str] = (),
        extras: Json | None = None,
        message_id: str | None = None,
    ) -> AsyncGenerator[StreamEvent]:
        """Start a run and yield its events. If the caller stops early, the run continues.

        Args:
            agent: Name of the agent.
            input: Message of the user: a text, or a list of content blocks.
            thread: Thread, its id or its key. An unknown key creates a thread. None: a new thread.
            user_id: Id of the user that the thread belongs to.
            metadata: Metadata of the run.
            tags: Tags of the run.
            extras: Additional data of an application, stored with the run.
            message_id: Id of the message that you choose, unique per thread. If the thread has accepted it before, no
                run starts, and the result is that of the first message.

        Raises:
            NotFound: If the server has no such agent.
            Conflict: If the thread cannot take the message, for example because it has ended, or if the first message
                with this id has another content.
            Refused: If a value is not valid.
        """
        before = await self._position(thread) if thread is not None else 0
        body = _run_body(input, thread, user_id, metadata, tags, extras, message_id)
        run_result = await self._begin(agent, {**body, "wait": False})
        if message_id is not None and run_result.status != "pending":
            # The thread has accepted the message before. Its events start with its run.
            before = (await self.run(run_result.run_id)).first_position - 1
        async with aclosing(self.events(run_result.thread_id, after=before, until="idle")) as events:
            async for event in events:
                yield event

    async def fork(
        self,
        ref: Ref,
        *,
        at: int | None = None,
        before_turn: int | None = None,
        key: str | None = None,
        take_key: bool = False,
        title: str | None = None,
        user_id: str | None = None,
    ) -> Thread:
        """Create a thread from a position of another thread and return it. Calls that are open there get an error.

        Args:
            ref: Thread, its id or its key in the project.
            at: Last position to include. None: the end of the log.
            before_turn: Number of the first turn to leave out, instead of `at`.
            key: Name of the fork, unique within the project.
            take_key: Give the key of the thread to the fork, in the same commit.
            title: Title of the fork.
            user_id: Id of the user that the fork belongs to. None: the user of the thread.

        Raises:
            NotFound: If the project has no such thread.
            KeyTaken: If the key is in use.
            Conflict: With `take_key`, if a worker holds the thread or the thread changes at the same time.
            Refused: If there is no such position or turn, or if the thread is an imported trace.
        """
        values: Json = {"at": at, "before_turn": before_turn, "key": key, "take_key": take_key or None}
        return Thread.from_json(await self._act(ref, "fork", **values, title=title, user_id=user_id))

    async def regenerate(
        self,
        ref: Ref,
        *,
        turn: int | None = None,
        input: str | list[Json] | None = None,
        wait: bool = False,
        message_id: str | None = None,
    ) -> RunResult:
        """Answer the last turn of a thread again, in a fork that takes the key of the thread.

        Args:
            ref: Thread, its id or its key in the project.
            turn: Number of the turn to answer again. Later turns are left out. None: the last turn.
            input: Message to send instead of the message of the turn. None: the same message.
            wait: Wait until the run has ended or waits for a person.
            message_id: Id of the request that you choose, unique per thread. A repeated request creates no second fork.

        Returns:
            The result of the new run. Its `thread_id` is the id of the fork.

        Raises:
            NotFound: If the project has no such thread.
            Conflict: If the state of the thread does not allow it.
            Refused: If there is no such turn, or if the turn has no message.
        """
        values: Json = {"turn": turn, "input": input, "wait": wait or None, "message_id": message_id}
        return RunResult.from_json(await self._act(ref, "regenerate", **values))

    async def edit(
        self,
        ref: Ref,
        *,
        title: str | EllipsisType | None = ...,
        extras: Json | EllipsisType = ...,
        priority: int | EllipsisType = ...,
        expires_at: datetime | EllipsisType | None = ...,
    ) -> Thread:
        """Set fields of a thread and return it. `...` leaves a field unchanged.

        Args:
            ref: Thread, its id or its key in the project.
            title: Title for lists. None removes it.
            extras: Additional data of an application.
            priority: Claim priority. Higher values first.
            expires_at: Time after which a purge deletes the thread. None removes it.

        Raises:
            NotFound: If the project has no such thread.
            Refused: If a value is not valid.
        """
        values = {"title": title, "extras": extras, "priority": priority, "expires_at": expires_at}
        body = {name: _json(value) for name, value in values.items() if value is not ...}
        return Thread.from_json(await self._connection.ask("PATCH", thread_path(ref), body=body))

    async def delete(self, ref: Ref, *, force: bool = False) -> int:
        """Delete a thread with its descendants and return the number of deleted threads.

        Args:
            ref: Thread, its id or its key in the project.
            force: Delete the threads also if a worker holds one of them.

        Raises:
            NotFound: If the project has no such thread.
            ThreadBusy: If a worker holds one of the threads and `force` is False.
        """
        return (await self._connection.ask("DELETE", thread_path(ref), parameters={"force": force}))["deleted"]

    async def cancel(self, ref: Ref) -> Json:
        """Request the end of the open run and of its children. Return the status of the thread.

        Args:
            ref: Thread, its id or its key in the project.

        Raises:
            NotFound: If the project has no such thread.
            Conflict: If the state of the thread does not allow it.
        """
        return await self._act(ref, "cancel")

    async def retry(self, ref: Ref) -> Json:
        """Start a new run for a failed or cancelled one, with the same context. Return the status and the run_id.

        Args:
            ref: Thread, its id or its key in the project.

        Raises:
            NotFound: If the project has no such thread.
            Conflict: If the state of the thread does not allow it.
        """
        return await self._act(ref, "retry")

    async def resume(self, ref: Ref) -> Json:
        """Resume an interrupted or waiting thread. Return the status and the run_id.

        Args:
            ref: Thread, its id or its key in the project.

        Raises:
            NotFound: If the project has no such thread.
            Conflict: If the state of the thread does not allow it.
        """
        return await self._act(ref, "resume")

    async def approve(self, ref: Ref, call_id: str) -> Json:
        """Approve a call. Return the status of the thread.

        Args:
            ref: Thread, its id or its key in the project.
            call_id: Id or key of the call.

        Raises:
            NotFound: If the project has no such thread.
            Conflict: If the state of the thread does not allow it.
        """
        return await self._act(ref, "approve", call_id=call_id)

    async def deny(self, ref: Ref, call_id: str, *, reason: str | None = None) -> Json:
        """Deny a call. Return the status of the thread.

        Args:
            ref: Thread, its id or its key in the project.
            call_id: Id or key of the call.
            reason: Reason, which the model receives.

        Raises:
            NotFound: If the project has no such thread.
            Conflict: If the state of the thread does not allow it.
        """
        return await self._act(ref, "deny", call_id=call_id, reason=reason)

    async def settle(
        self, ref: Ref, call_id: str, *, done: str | None = None, redo: bool = False, unknown: bool = False
    ) -> Json:
        """Settle a call with an unknown outcome. Return the status of the thread.

        Pass exactly one of `done`, `redo` and `unknown`.

        Args:
            ref: Thread, its id or its key in the project.
            call_id: Id or key of the call.
            done: Result of the call, if it completed.
            redo: Run the call again.
            unknown: Report the unknown outcome to the model.

        Raises:
            NotFound: If the project has no such thread.
            Conflict: If the state of the thread does not allow it.
        """
        return await self._act(ref, "settle", call_id=call_id, done=done, redo=redo, unknown=unknown)

    async def answer(self, ref: Ref, text: str, *, call_id: str | None = None) -> Json:
        """Answer a question of a thread. Return the status of the thread.

        Args:
            ref: Thread, its id or its key in the project.
            text: The answer.
            call_id: Id or key of the call that asked. None: the first question.

        Raises:
            NotFound: If the project has no such thread.
            Conflict: If the state of the thread does not allow it.
        """
        return await self._act(ref, "answer", text=text, call_id=call_id)

    async def submit_results(self, ref: Ref, results: Sequence[Json]) -> Json:
        """Submit the results of all frontend calls that the thread waits for. Return the status of the thread.

        Args:
            ref: Thread, its id or its key in the project.
            results: One `tool_result` block for each call.

        Raises:
            NotFound: If the project has no such thread.
            Conflict: If the state of the thread does not allow it.
        """
        return await self._act(ref, "tool_results", results=list(results))

    async def deliver(self, ref: Ref, input: str | list[Json], *, id: str | None = None) -> Json:
        """Send a message to a thread. A worker answers it. Return the status and the run_id of the answer.

        Args:
            ref: Thread, its id or its key in the project.
            input: Message of the user: a text, or a list of content blocks.
            id: Id of the message. Repeating a message with the same id has no effect.

        Raises:
            NotFound: If the project has no such thread.
            Conflict: If another message has this id, or if the thread has ended.
        """
        return await self._act(ref, "deliver", input=input, id=id)

    async def give_feedback(
        self,
        name: str,
        *,
        thread: Ref | None = None,
        run: UUID | str | None = None,
        stitch: UUID | str | None = None,
        score: float | None = None,
        value: Json | None = None,
        comment: str | None = None,
        user_id: str | None = None,
        source: str = "native",
    ) -> Feedback:
        """Store feedback on a thread, a run or a stitch. Return it.

        Args:
            name: Name of the feedback, such as `helpful`.
            thread: Thread, its id or its key.
            run: Id of the run.
            stitch: Id of the stitch.
            score: Numeric value.
            value: Value as JSON.
            comment: Text of a person.
            user_id: Id of the user that gives the feedback.
            source: Name of the system that the feedback comes from.

        Raises:
            NotFound: If the project has no such thread, run or stitch.
            Refused: If a value is not valid.
        """
        body = _without_none(
            name=name,
            thread=None if thread is None else name_of(thread),
            run=run,
            stitch=stitch,
            score=score,
            value=value,
            comment=comment,
            user_id=user_id,
            source=source,
        )
        return Feedback.from_json(await self._connection.post("/api/feedback", body))

    async def retry_body(self, body_id: UUID | str) -> None:
        """Put a body from quarantine into the ingest queue again. Needs the scope `admin`.

        Args:
            body_id: Id of the body.

        Raises:
            NotFound: If no such body is in quarantine.
        """
        await self._connection.post(f"/api/arrivals/{part(body_id)}/retry")

    async def create_token(self, name: str, scopes: Sequence[str], *, expires_at: datetime | None = None) -> Json:
        """Create a token of the project. Needs the scope `admin`.

        Args:
            name: Name of the token.
            scopes: Scopes of the token: `read`, `write`, `ingest`, `admin`.
            expires_at: Time after which the token is not valid, with a time zone.

        Returns:
            The token as JSON. `token` is the secret, which the server does not show again.

        Raises:
            Refused: If a scope is unknown, or if the project has a valid token with this name.
        """
        body = _without_none(name=name, scopes=list(scopes), expires_at=expires_at)
        return await self._connection.post("/api/tokens", body)

    async def revoke_token(self, name: str) -> Json:
        """Revoke a token of the project and return it. Needs the scope `admin`.

        Args:
            name: Name of the token.

        Raises:
            NotFound: If the project has no valid token with this name.
        """
        return await self._connection.ask("DELETE", f"/api/tokens/{part(name)}")

    async def _act(self, ref: Ref, act: str, **body: Any) -> Any:
        return await self._connection.post(f"{thread_path(ref)}/{act}", _without_none(**body) or None)

    async def _begin(self, agent: str, body: Json) -> RunResult:
        path = f"/api/agents/{part(agent)}/runs"
        return RunResult.from_json(await self._connection.post(path, body, patient=body["wait"]))

    async def _position(self, ref: Ref) -> int:
        try:
            return (await self.thread(ref)).position
        except NotFound:
            return 0


def _run_body(
    input: str | list[Json],
    thread: Ref | None,
    user_id: str | None,
    metadata: Json | None,
    tags: Sequence[str],
    extras: Json | None,
    message_id: str | None,
) -> Json:
    """Return the body of a request that starts a run."""
    name = None if thread is None else name_of(thread)
    options: Json = {"user_id": user_id, "metadata": metadata, "tags": list(tags), "extras": extras}
    return _without_none(input=input, thread=name, message_id=message_id, **options)


def _without_none(**values: Any) -> Json:
    """Return the values that are set, as JSON."""
    return {name: _json(value) for name, value in values.items() if value is not None}


def _json(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if isinstance(value, UUID) else value


class Client(ActionMethods):
    """A server's record, limited to one project.

    Use it as an async context manager, or call `close()`. Safe to use from many tasks. Methods raise the same errors as
    `Store`, and `StoreUnreachable` if the server does not answer. Requests are not retried, but event streams
    reconnect.

    Args:
        url: Address of the server.
        token: API token. It also selects the project.
        project: Project, if the server needs no token.
        timeout: Seconds for one request.
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
