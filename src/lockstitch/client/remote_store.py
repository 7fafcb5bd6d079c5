"""`RemoteStore`: the methods of `Store` that the command line uses, on a server.

A method has the signature and the result of its counterpart in `Store`, so that the same code reads a database and a
server. Methods that the HTTP API does not have raise `Refused`.
"""

from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from types import EllipsisType, TracebackType
from typing import Any, Final, Literal, Self, TypeVar, Unpack
from uuid import UUID

from lockstitch.client.action_methods import ActionMethods
from lockstitch.client.connection import Connection
from lockstitch.client.models import Matches
from lockstitch.client.read_methods import Ref, error_parameter, metadata_parameter, name_of
from lockstitch.errors import NotFound, Refused
from lockstitch.model import AgentVersion, Json, Message, Run, Schedule, Stitch, Thread, Token, Worker, parse_time
from lockstitch.model.figures import ThreadSort
from lockstitch.model.scores import Score
from lockstitch.model.statistics import Group, LatencyRow, UsageRow
from lockstitch.store import QueryResult, SearchHit, ThreadUsage
from lockstitch.store.conversations import EnqueuedMessage
from lockstitch.store.ingest_queue import Quarantined, QueueStatus
from lockstitch.store.queries.log import HistoryPage, Turn
from lockstitch.store.queries.overview import Node, Overview, build_trees
from lockstitch.store.reports.dashboard import Dashboard
from lockstitch.store.reports.diff import Change, Difference, Pair, Step
from lockstitch.store.reports.statistics import RunFilter, UsageTable
from lockstitch.store.reports.trace import Node as TraceNode
from lockstitch.store.reports.traces import LINES, Trace
from lockstitch.store.schedules import whole_seconds

T = TypeVar("T")

_PAGE: Final = 1000
"""Maximum number of results of one request."""

_MOST_GROUPS: Final = 100_000
"""Maximum number of rows of usage by group in one request."""

_IDS: Final = 100
"""Number of ids in one request, so that its URL stays short."""

_MAX_DEPTH, _MAX_NODES = 100, 100_000
"""Limits of the server for a trace."""

_LONGEST_NAME: Final = 300
"""Maximum number of characters of an id or a key in a request."""

_DETAILS_LEFT_OUT: Final = ("kind", "name")


class RemoteStore:
    """The record of a server, limited to one project, with the methods of `Store`.

    Entering it asks the server for the project and the agents.

    Args:
        url: Address of the server.
        token: API token. It also selects the project.
        project: Project that the caller expects. None: the project of the token, or the default of the server.
        timeout: Seconds for one request.
    """

    def __init__(
        self, url: str, *, token: str | None = None, project: str | None = None, timeout: float = 30.0
    ) -> None:
        self._connection = Connection(url, token, project, timeout)
        self._wanted_project = project
        self._overviews: dict[UUID, Overview] = {}
        self.client = ActionMethods(self._connection)
        """The operations of the HTTP API."""
        self.project = project or ""
        """Project of the caller, once the store is entered."""
        self.agent_names: list[str] = []
        """Names of the agents that the server can run, once the store is entered."""
        self.positions: dict[UUID, int] = {}
        """Positions up to which the caller has seen the events of threads."""
        self.statistics = RemoteStatistics(self.client)
        self.agents = RemoteAgents(self.client)
        self.tokens = RemoteTokens(self.client)
        self.schedules = RemoteSchedules(self.client)
        self.audits = RemoteAudits()
        self.ingest_queue = RemoteIngestQueue(self.client)
        self.execution = RemoteExecution(self.client)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise Refused(f"A server cannot do this ({name}). It needs the database URL of the store.")

    async def __aenter__(self) -> Self:
        try:
            caller = await self.client.whoami()
        except BaseException:
            await self.close()
            raise
        self.project, self.agent_names = caller["project"], caller["agents"]
        if self._wanted_project not in (None, self.project):
            await self.close()
            raise Refused(
                f"The token selects project {self.project}, not {self._wanted_project}. Use a token of that project."
            )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the HTTP connections."""
        await self._connection.close()

    # Threads

    async def thread(self, ref: Ref) -> Thread:
        name = name_of(ref)
        if "/" not in name and name.strip(".") and len(name) <= _LONGEST_NAME:
            return await self.client.thread(name)
        # A path cannot contain this key.
        exact = (await self._match(name, 1)).exact
        if exact is None:
            raise NotFound(f"Thread {name} not found in project {self.project}.")
        return exact

    async def threads(
        self,
        *,
        limit: int | None = 50,
        offset: int = 0,
        after: Thread | None = None,
        since: datetime | None = None,
        all_projects: bool = False,
        status: str | Collection[str] | None = None,
        agent: str | Collection[str] | None = None,
        kind: str | Collection[str] | None = None,
        user_id: str | Collection[str] | None = None,
        id: UUID | Collection[UUID] | None = None,
        key: str | Collection[str] | None = None,
        parent_id: UUID | Collection[UUID] | None = None,
        depth: int | None = None,
        until: datetime | None = None,
        model: str | Collection[str] | None = None,
        version: int | None = None,
        min_cost: float | None = None,
        error: bool | str | None = None,
        tag: str | Collection[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        evaluations: bool = True,
        sort: ThreadSort = "time",
        ascending: bool = False,
    ) -> list[Thread]:
        _refuse_all_projects(all_projects)
        if offset or id is not None or key is not None or parent_id is not None or depth not in (None, 0):
            raise Refused("A server has no such filter of threads. It needs the database URL of the store.")
        threads: list[Thread] = []
        next_page = None if after is None else str(after.id)
        while limit is None or len(threads) < limit:
            page = await self._connection.get(
                "/api/threads",
                limit=_PAGE if limit is None else min(limit - len(threads), _PAGE),
                after=next_page,
                status=status if isinstance(status, str | None) else list(status),
                agent=_single(agent),
                kind=_single(kind),
                user_id=_single(user_id),
                since=since,
                until=until,
                model=model if isinstance(model, str | None) else list(model),
                version=version,
                min_cost=min_cost,
                error=error_parameter(error),
                tag=tag if isinstance(tag, str | None) else list(tag),
                metadata=metadata_parameter(metadata),
                evaluations=None if evaluations else False,
                sort=sort,
                ascending=ascending or None,
                root_only=True if depth == 0 else None,
                full=True,
            )
            threads += [self._overview(row).thread for row in page["threads"]]
            next_page = page["next"]
            if next_page is None:
                break
        return threads

    async def threads_by_id(self, ids: Collection[UUID], *, all_projects: bool = False) -> dict[UUID, Thread]:
        _refuse_all_projects(all_projects)
        rows = await self._by_id("/api/overviews", ids)
        return {overview.thread.id: overview.thread for overview in map(self._overview, rows)}

    async def match_threads(self, text: str, *, limit: int = 10) -> list[Thread]:
        return (await self._match(text, limit)).threads

    async def match_runs(self, text: str, *, limit: int = 10) -> list[Run]:
        return (await self._match(text, limit)).runs

    async def _match(self, text: str, limit: int) -> Matches:
        if not 0 < len(text) <= _LONGEST_NAME:
            return Matches(None, [], [])
        return await self.client.match(text, limit=limit)

    async def overview(self, threads: Sequence[Thread]) -> list[Overview]:
        # A list of threads comes with its overviews. Threads of another read need a request.
        missing = [thread.id for thread in threads if not self._is_known(thread)]
        for row in await self._by_id("/api/overviews", missing):
            self._overview(row)
        for thread in threads:
            if thread.id not in self._overviews:
                raise NotFound(f"Thread {thread.id} not found in project {self.project}. It was deleted.")
        return [self._overviews[thread.id] for thread in threads]

    async def trees(self, threads: Sequence[Thread]) -> list[Node]:
        return self._trees(await self._by_id("/api/trees", [thread.id for thread in threads]))

    async def trees_of(self, threads: Sequence[Thread]) -> list[Node]:
        roots = await self._by_id("/api/trees", [thread.id for thread in threads], root=True)
        # Two requests may return the same tree.
        return self._trees({row["id"]: row for row in roots}.values())

    async def tree(self, ref: Ref) -> list[Thread]:
        (root,) = await self.trees([await self.thread(ref)])
        return [node.thread for node, _ in root.walk()]

    async def children(self, ref: Ref) -> list[Thread]:
        children = [row.id for row in await self.client.children(ref)]
        known = await self.threads_by_id(children)
        return [known[child] for child in children if child in known]

    async def ancestors(self, ref: Ref) -> list[Thread]:
        return await self.client.ancestors(ref)

    async def edit(
        self,
        ref: Ref,
        *,
        title: str | EllipsisType | None = ...,
        extras: Json | EllipsisType = ...,
        priority: int | EllipsisType = ...,
        expires_at: datetime | EllipsisType | None = ...,
        cancel_requested: bool | EllipsisType = ...,
    ) -> None:
        if cancel_requested is not ...:
            raise Refused("A server cancels runs with its own operation.")
        await self.client.edit(ref, title=title, extras=extras, priority=priority, expires_at=expires_at)

    async def delete(self, ref: Ref, *, force: bool = False) -> int:
        return await self.client.delete(ref, force=force)

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
        extras: Json | None = None,
    ) -> Thread:
        if extras is not None:
            raise Refused("A server does not set the extras of a fork. Edit the fork.")
        head = await self.thread(ref)
        return await self.client.fork(
            head, at=at, before_turn=before_turn, key=key, take_key=take_key, title=title, user_id=user_id
        )

    async def regenerate(
        self,
        ref: Ref,
        *,
        turn: int | None = None,
        message: Message | None = None,
        agent: str | None = None,
        message_id: str | None = None,
    ) -> EnqueuedMessage:
        input = None if message is None else message["content"]
        head = await self.thread(ref)
        if agent not in (None, head.agent):
            raise Refused(f"A server answers with the agent of the thread, {head.agent}.")
        result = await self.client.regenerate(head, turn=turn, input=input, message_id=message_id)
        head, run = await self.client.thread(result.thread_id), await self.client.run(result.run_id)
        # The server may have started the run.
        before = min(run.first_position, run.input_position or run.first_position) - 1
        return EnqueuedMessage(head.changed(position=before), result.run_id)

    async def size(self, ref: Ref | None = None) -> dict[str, int]:
        if ref is None:
            raise Refused("The size of a whole store needs the database URL of the store. Name a thread.")
        return await self.client.size(ref)

    # Runs and stitches

    async def run(self, run_id: UUID | str) -> Run:
        if "/" in str(run_id) or not str(run_id).strip(".") or len(str(run_id)) > _LONGEST_NAME:
            raise NotFound(f"Run {run_id} not found in project {self.project}.")
        return await self.client.run(run_id)

    async def runs(self, ref: Ref, *, limit: int | None = None) -> list[Run]:
        runs: list[Run] = []
        while limit is None or len(runs) < limit:
            most = _PAGE if limit is None else min(limit - len(runs), _PAGE)
            page = await self.client.runs(ref, limit=most, first=runs[-1].sequence + 1 if runs else 0)
            runs += page
            if len(page) < most:
                break
        return runs

    async def context(self, ref: Ref, *, lane: UUID | None = None) -> list[Message]:
        if lane is not None:
            raise Refused("A server returns the context of a thread, not of a team member.")
        return await self.client.context(ref)

    async def history(self, ref: Ref, *, limit: int = 20, offset: int = 0, before: int | None = None) -> HistoryPage:
        turns: list[Turn] = []
        path = f"/api/threads/{name_of(ref)}/history"
        while True:
            page = await self._connection.get(
                path, limit=min(limit - len(turns), _PAGE), offset=offset or None, before=before, full=True
            )
            turns += map(_turn, page["turns"])
            offset, before = 0, page["next"]
            if len(turns) >= limit or not page["more"]:
                return HistoryPage(turns, page["more"])

    async def stitches(self, ref: Ref, first: int = 1, last: int | None = None) -> list[Stitch]:
        return await self.client.stitches(ref, first, last)

    async def messages(self, run_id: UUID | str) -> list[Message]:
        return await self.client.messages(run_id)

    async def log(self, run_id: UUID | str) -> list[Stitch]:
        return await self.client.log(run_id)

    async def trace(self, run_id: UUID | str, *, depth: int | None = None, limit: int = LINES) -> Trace:
        depth = None if depth is None else min(depth, _MAX_DEPTH)
        value = await self.client.trace(run_id, depth=depth, limit=min(limit, _MAX_NODES))
        return Trace(Run.from_json(value), _trace_node(value["tree"]), value["shown"], value["left_off"])

    async def difference(self, a: UUID | str, b: UUID | str) -> Difference:
        value = await self.client.difference(a, b)
        pairs = [Pair(_step(pair["a"]), _step(pair["b"]), _changes(pair["changes"])) for pair in value["steps"]]
        return Difference(await self.client.run(a), await self.client.run(b), _changes(value["changes"]), pairs)

    async def request(self, stitch_id: UUID | str) -> Json:
        return await self.client.request(stitch_id)

    # Queries over many threads

    async def errors(self, *, limit: int = 50, since: datetime | None = None) -> list[Stitch]:
        return await self.client.errors(limit=min(limit, _PAGE), since=since)

    async def latest(self, *, limit: int = 50, since: datetime | None = None) -> list[Stitch]:
        return await self.client.latest(limit=min(limit, _PAGE), since=since)

    def watch(self, ref: UUID | None = None, *, after: int = 0, recent: int = 0) -> AsyncGenerator[Stitch, None]:
        if ref is not None:
            return self.client.watch(ref, after=after)
        return self.client.watch_project(recent=min(recent, _PAGE))

    async def search(self, text: str, *, limit: int = 20, complete: bool = False) -> list[SearchHit]:
        """Return the hits of the server, which fills its index in the background and does not wait for it."""
        hits = await self.client.search(text, limit=min(limit, _PAGE))
        return [SearchHit(hit.thread_id, hit.position, hit.score) for hit in hits]

    async def average_tokens(self, since: datetime) -> list[ThreadUsage]:
        rows = await self.client.average_tokens(since)
        return [ThreadUsage(UUID(row["thread_id"]), row["runs"], row["average_tokens"]) for row in rows]

    async def sql(
        self, query: str, *, limit: int = 1000, seconds: float = 10.0, lens: str | None = None, force: bool = False
    ) -> QueryResult:
        """Return the result of a SELECT. The server has its own limits of time and rows."""
        result = await self.client.sql(query, lens=lens, limit=limit)
        return QueryResult(result["columns"], [tuple(row) for row in result["rows"]], result["more"])

    async def lens_sql(self, name: str, dialect: str) -> list[str]:
        """Return no SQL of applications: the server does not list it."""
        return []

    async def dashboard(self, thread_id: UUID | None = None) -> Dashboard:
        """Return a snapshot of the project: of all open threads, or of one thread with its descendants."""
        value = await self.client.dashboard(thread_id)
        return Dashboard(
            at=parse_time(value["at"]),
            counts=value["open"],
            failed=value["failed"],
            tools={UUID(name): tools for name, tools in value["tools"].items()},
            trees=self._trees(value["threads"]),
            workers=[Worker.from_json(row) for row in value["workers"]],
            held={UUID(name): [Thread.from_json(row) for row in rows] for name, rows in value["held"].items() if rows},
            cost_today=value["cost"]["today"],
        )

    # Conversion of JSON

    async def _by_id(self, path: str, ids: Collection[UUID], **parameters: Any) -> list[Json]:
        """Return the rows of a route that takes the ids of threads."""
        rows: list[Json] = []
        for names in _batches([str(thread_id) for thread_id in ids], _IDS):
            rows += await self._connection.get(path, thread_id=names, full=True, **parameters)
        return rows

    def _overview(self, row: Json) -> Overview:
        scores = {name: Score(score["average"], score["count"]) for name, score in row.get("scores", {}).items()}
        overview = Overview(Thread.from_json(row), row["runs"], row["usage"], row["total_cost"], row["error"], scores)
        self._overviews[overview.thread.id] = overview
        return overview

    def _is_known(self, thread: Thread) -> bool:
        known = self._overviews.get(thread.id)
        return known is not None and known.thread is thread

    def _trees(self, roots: Iterable[Json]) -> list[Node]:
        overviews: list[Overview] = []
        # Not recursive: trees may be deeper than the recursion limit of Python.
        waiting: list[Json] = list(roots)
        while waiting:
            overviews += map(self._overview, waiting)
            waiting = [child for row in waiting for child in row["children"]]
        return build_trees(overviews)


def _refuse_all_projects(all_projects: bool) -> None:
    if all_projects:
        raise Refused("--all-projects needs the database URL of the store. A server shows one project.")


def _single(value: str | Collection[str] | None) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise Refused("A server filters by one value.")


def _batches(values: list[T], size: int) -> Iterable[list[T]]:
    return (values[start : start + size] for start in range(0, len(values), size))


def _turn(row: Json) -> Turn:
    inherited_from = UUID(row["inherited_from"]) if row["inherited_from"] else None
    run = Run.from_json(row["run"])
    return Turn(run, row["user_message"], row["final_response"], row["generated_files"], inherited_from)


def _trace_node(value: Json) -> TraceNode:
    names = ("position", "name", "status", "duration_ms", "step", "usage", "call_id", "label", "args", "text", "error")
    return TraceNode(
        value["kind"],
        value["type"],
        UUID(value["id"]),
        UUID(value["thread_id"]),
        parse_time(value["started_at"]),
        **{name: value[name] for name in names},
        cost=value["total_cost"],
        first_token_ms=value["first_token_ms"],
        pause_ms=value["pause_ms"],
        omitted=value["left_off"],
        children=[_trace_node(child) for child in value["children"]],
    )


def _changes(rows: Sequence[Json]) -> list[Change]:
    return [Change(row["name"], row["a"], row["b"], row.get("lines")) for row in rows]


def _step(value: Json | None) -> Step | None:
    if value is None:
        return None
    details = {name: detail for name, detail in value.items() if name not in _DETAILS_LEFT_OUT}
    return Step(value["kind"], value["name"], {}, details)


def _usage_row(row: Json, group: tuple[str | None, ...] = ()) -> UsageRow:
    usage = row["usage"]
    return UsageRow(
        group,
        row["runs"],
        row["failed_runs"],
        usage["input_tokens"],
        usage["output_tokens"],
        usage["cache_read_input_tokens"],
        usage["cache_creation_input_tokens"],
        row["total_cost"],
        row["unpriced"],
    )


class RemoteStatistics:
    """The methods of `Statistics` on a server."""

    def __init__(self, client: ActionMethods) -> None:
        self._client = client

    async def usage(
        self, *by: Group, all_projects: bool = False, most: int | None = None, **only: Unpack[RunFilter]
    ) -> UsageTable:
        most = _MOST_GROUPS if most is None else most
        table = (await self._read(all_projects, only, *by, parts=() if by else ("usage",), most=most))["usage"]
        rows = [_usage_row(row, tuple(row[name] for name in by)) for row in table["rows"]]
        return UsageTable(by, rows, _usage_row(table["total"]), table["more"])

    async def breakdown(self, *by: Group, all_projects: bool = False, **only: Unpack[RunFilter]) -> list[UsageTable]:
        return [await self.usage(group, all_projects=all_projects, **only) for group in by]

    async def tools(self, *, all_projects: bool = False, **only: Unpack[RunFilter]) -> list[LatencyRow]:
        return [_latency_row(row) for row in (await self._read(all_projects, only, parts=("tools",)))["tools"]]

    async def models(self, *, all_projects: bool = False, **only: Unpack[RunFilter]) -> list[LatencyRow]:
        return [_latency_row(row) for row in (await self._read(all_projects, only, parts=("latency",)))["latency"]]

    async def runs(
        self,
        *,
        order: Literal["newest", "slowest"] = "newest",
        limit: int = 20,
        all_projects: bool = False,
        **only: Unpack[RunFilter],
    ) -> list[Run]:
        part = "failed" if only.pop("status", None) == "failed" else order
        rows = (await self._read(all_projects, only, parts=(part,), limit=min(limit, _PAGE)))[part]
        return [Run.from_json(row) for row in rows]

    async def _read(self, all_projects: bool, only: RunFilter, *by: str, **values: Any) -> Json:
        _refuse_all_projects(all_projects)
        filters: Json = {**only}
        return await self._client.statistics(*by, **values, **filters)


def _latency_row(row: Json) -> LatencyRow:
    return LatencyRow(**{name: row[name] for name in LatencyRow._fields})


class RemoteAgents:
    """The versions of agents on a server."""

    def __init__(self, client: ActionMethods) -> None:
        self._client = client

    async def version(self, project: str, name: str, version: int) -> AgentVersion:
        return await self._client.version(name, version)


class RemoteTokens:
    """The tokens of a project on a server."""

    def __init__(self, client: ActionMethods) -> None:
        self._client = client

    async def create(
        self, name: str, scopes: Iterable[str], *, expires_at: datetime | None = None
    ) -> tuple[Token, str]:
        created = await self._client.create_token(name, list(scopes), expires_at=expires_at)
        return Token.from_json(created), created["token"]

    async def all(self) -> list[Token]:
        return [Token.from_json(row) for row in await self._client.tokens()]

    async def revoke(self, name: str) -> Token:
        return Token.from_json(await self._client.revoke_token(name))


class RemoteSchedules:
    """The schedules of a project on a server."""

    def __init__(self, client: ActionMethods) -> None:
        self._client = client
        self.get = client.schedule
        self.pause = client.pause_schedule
        self.resume = client.resume_schedule
        self.run_now = client.run_schedule
        self.remove = client.remove_schedule

    async def add(self, agent: str, goal: str, *, every: timedelta | float | None = None, **fields: Any) -> Schedule:
        return await self._client.add_schedule(agent, goal, interval_seconds=whole_seconds(every), **fields)

    async def edit(self, name: str, *, every: timedelta | float | None = None, **fields: Any) -> Schedule:
        return await self._client.edit_schedule(name, interval_seconds=whole_seconds(every), **fields)

    async def all(self, *, agent: str | None = None, limit: int | None = None, after: str = "") -> list[Schedule]:
        schedules: list[Schedule] = []
        while limit is None or len(schedules) < limit:
            wanted = _PAGE if limit is None else min(limit - len(schedules), _PAGE)
            page = await self._client.schedules(agent=agent, limit=wanted, after=after)
            schedules += page
            if len(page) < wanted:
                break
            after = page[-1].name
        return schedules


class RemoteIngestQueue:
    """The ingest queue of a project on a server."""

    def __init__(self, client: ActionMethods) -> None:
        self._client = client

    async def status(self) -> QueueStatus:
        value = await self._client.ingest_queue(limit=1)
        return QueueStatus(value["waiting"], value["oldest_seconds"], value["stuck"], value["quarantined"])

    async def quarantined(self, limit: int | None = None) -> list[Quarantined]:
        rows: list[Json] = (await self._client.ingest_queue(limit=min(limit or _PAGE, _PAGE)))["quarantine"]
        return [
            Quarantined(
                UUID(row["id"]), row["source"], row["problem"], row["size"], row["headers"], parse_time(row["at"])
            )
            for row in rows
        ]

    async def retry(self, row_id: UUID) -> None:
        await self._client.retry_body(row_id)


class RemoteAudits:
    """The audit log of a server, which the server itself writes."""

    async def record(self, actor: str, act: str, subject: str, **data: Any) -> None:
        pass


class RemoteExecution:
    """The queries of `Store.execution` on a server."""

    def __init__(self, client: ActionMethods) -> None:
        self._client = client

    async def last_run(self, head: Thread) -> Run | None:
        try:
            return await self._client.last_run(head)
        except NotFound:
            return None
