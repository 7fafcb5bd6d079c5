"""`ReadMethods`: the read calls of `Client`, and the paths of threads and runs."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from lockstitch.client.alert_methods import RemoteAlerts
from lockstitch.client.connection import Connection, part, without_none
from lockstitch.client.eval_methods import RemoteDatasets, RemoteEvals
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
from lockstitch.errors import Refused
from lockstitch.model import AgentVersion, Feedback, File, Json, Memory, Message, Run, SavedView, Stitch, Thread
from lockstitch.model.figures import ThreadSort, label_text

Ref = Thread | UUID | str
"""A thread, its id, or its key in the project."""


class ReadMethods:
    """The read operations of `Client`. Methods that `Store` also has behave as described there."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.alerts = RemoteAlerts(connection)
        """The alerts of the project."""
        self.datasets = RemoteDatasets(connection)
        """The datasets of the project."""
        self.evals = RemoteEvals(connection)
        """The evaluations of the project."""

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
        until: datetime | None = None,
        model: str | Sequence[str] | None = None,
        version: int | None = None,
        min_cost: float | None = None,
        error: bool | str | None = None,
        tag: str | Sequence[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        evaluations: bool = True,
        sort: ThreadSort = "time",
        ascending: bool = False,
    ) -> list[ThreadRow]:
        """Return threads with totals of their runs, by last activity, newest first, or in another order.

        Args:
            limit: Maximum number of threads.
            after: Last thread of the previous page.
            status: Only threads with this status, or with one of these.
            agent: Only threads of this agent.
            kind: Only threads of this kind.
            user_id: Only threads of this user.
            since: Only threads with activity since this time.
            root_only: Only threads without a parent.
            until: Only threads without activity since this time.
            model: Only threads whose last run had this model, or one of these.
            version: Only threads of this version of their agent.
            min_cost: Only threads whose ended runs cost at least this, in US dollars.
            error: True: only threads with a failed run. A text: only if the error of the last failed run contains it.
            tag: Only threads with a run that has this tag. Of several tags, all of them.
            metadata: Only threads with runs that have these values in their metadata.
            evaluations: False: leave out threads of evaluations and their judges.
            sort: `time`, `latency`, `tokens`, `cost` or `model`, as for `Store.threads`.
            ascending: Start with the lowest value.
        """
        result = await self._get(
            "/api/threads",
            limit=limit,
            after=None if after is None else name_of(after),
            **thread_parameters(
                status=status,
                agent=agent,
                kind=kind,
                user_id=user_id,
                since=since,
                root_only=root_only,
                until=until,
                model=model,
                version=version,
                min_cost=min_cost,
                error=error,
                tag=tag,
                metadata=metadata,
                evaluations=evaluations,
                sort=sort,
                ascending=ascending,
            ),
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
        return [
            Hit(
                UUID(row["thread_id"]),
                row["position"],
                row["score"],
                row["key"],
                row["title"],
                UUID(row["run_id"]) if row.get("run_id") else None,
                row.get("snippet", ""),
            )
            for row in result
        ]

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
        most: int | None = None,
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
            most: Maximum number of rows of usage by group. None: 1,000. `more` is true if there are more.
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
            most=most,
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
        body = without_none(query=query, lens=lens, limit=limit)
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

    async def versions(self, agent: str, *, newest: int = 1000, before: int | None = None) -> list[AgentVersion]:
        """Return versions of an agent, oldest first.

        Args:
            agent: Name of the agent.
            newest: Maximum number of versions, the newest ones.
            before: Only versions with a lower number.

        Raises:
            NotFound: If the project has no such agent.
        """
        path = f"/api/agents/{part(agent)}/versions"
        return [AgentVersion.from_json(row) for row in await self._get(path, newest=newest, before=before)]

    async def version(self, agent: str, version: int) -> AgentVersion:
        """Return one version of an agent with its definition.

        Args:
            agent: Name of the agent.
            version: Number of the version.

        Raises:
            NotFound: If the project has no such version.
        """
        return AgentVersion.from_json(await self._get(f"/api/agents/{part(agent)}/versions/{version}"))

    async def version_changes(self, agent: str, version: int, *, since: int | None = None) -> Json:
        """Return {agent, version, since, changes}: the fields of a definition that differ from another version.

        A change has the name of the field, the values `a` and `b`, and the `lines` of a unified diff.

        Args:
            agent: Name of the agent.
            version: Number of the version.
            since: Number of the version to compare with. None: the previous version.

        Raises:
            NotFound: If the project has no such version.
        """
        return await self._get(f"/api/agents/{part(agent)}/versions/{version}/changes", since=since)

    async def memories(self, *, user_id: str | None = None, limit: int = 100) -> list[Memory]:
        """Return memories of the project.

        Args:
            user_id: Only memories of this user.
            limit: Maximum number of memories.
        """
        result = await self._get("/api/memories", user_id=user_id, limit=limit)
        return [Memory.from_json(row) for row in result]

    async def feedback(
        self,
        ref: Ref | None = None,
        *,
        run: UUID | str | None = None,
        name: str | None = None,
        user_id: str | None = None,
        source: str | None = None,
        limit: int = 100,
    ) -> list[Feedback]:
        """Return feedback of the project, oldest first.

        Args:
            ref: Only feedback on this thread, its runs and its stitches: a thread, its id or its key.
            run: Only feedback on this run and its stitches.
            name: Only feedback with this name.
            user_id: Only feedback of this user.
            source: Only feedback from this system.
            limit: Maximum number of records.

        Raises:
            NotFound: If the project has no such thread or run.
        """
        thread = None if ref is None else name_of(ref)
        result = await self._get(
            "/api/feedback", thread=thread, run=run, name=name, user_id=user_id, source=source, limit=limit
        )
        return [Feedback.from_json(row) for row in result]

    async def runs_to_annotate(
        self,
        filters: Mapping[str, Any] | None = None,
        *,
        without_feedback_of: str | None = None,
        name: str | None = None,
        limit: int = 20,
        after: str | None = None,
    ) -> Json:
        """Return `runs`: finished runs of threads, each with `run`, `inputs` and `outputs`; and `next`, a place.

        A page can have fewer runs than `limit` and still a next page. After the last page, `next` is None.

        Args:
            filters: The filters and the order of `Client.threads`, by name.
            without_feedback_of: Only runs without feedback of this user.
            name: Only feedback with this name counts. None: all feedback of the user.
            limit: Maximum number of runs, at most 100.
            after: `next` of the previous page.

        Raises:
            Refused: If a filter or the place is not valid.
        """
        return await self._get(
            "/api/annotate",
            without_feedback_of=without_feedback_of,
            name=name,
            limit=limit,
            after=after,
            **thread_parameters(**(filters or {})),
        )

    async def saved_views(self) -> list[SavedView]:
        """Return the views of the list of threads that the project has, sorted by name."""
        return [SavedView.from_json(row) for row in await self._get("/api/views")]

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


def thread_parameters(
    *,
    error: bool | str | None = None,
    metadata: Mapping[str, Any] | None = None,
    root_only: bool = False,
    ascending: bool = False,
    evaluations: bool = True,
    **filters: Any,
) -> dict[str, Any]:
    """Return the filters and the order of a list of threads as parameters of a URL.

    Args:
        error: As for `error_parameter`.
        metadata: As for `metadata_parameter`.
        root_only: Only threads without a parent.
        ascending: Start with the lowest value.
        evaluations: False: leave out threads of evaluations.
        filters: The other filters, and the order.
    """
    flags = {"root_only": root_only or None, "ascending": ascending or None}
    flags["evaluations"] = None if evaluations else False
    return {**filters, **flags, "error": error_parameter(error), "metadata": metadata_parameter(metadata)}


def error_parameter(error: bool | str | None) -> str | None:
    """Return the filter of errors as the parameter of a URL. Raises `Refused` for False, which a server cannot filter.

    Args:
        error: True: any error. A text: a part of the error.
    """
    if error is False:
        raise Refused("A server cannot list only threads without errors.")
    return "true" if error is True else error


def metadata_parameter(metadata: Mapping[str, Any] | None) -> list[str] | None:
    """Return the filter of metadata as parameters of a URL.

    Args:
        metadata: Values by key. None: no filter.
    """
    return None if metadata is None else [f"{name}={label_text(value) or value}" for name, value in metadata.items()]


def thread_path(ref: Ref) -> str:
    return f"/api/threads/{part(name_of(ref))}"


def run_path(run_id: UUID | str) -> str:
    return f"/api/runs/{part(run_id)}"
