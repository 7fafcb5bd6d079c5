"""The tools of the MCP server that read: threads, logs, failures, statistics, waiting calls and SQL."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from lockstitch.agents import Agent
from lockstitch.engine.replies import waiting_calls
from lockstitch.errors import NotFound, Refused
from lockstitch.integrations.mcp.answers import (
    PIECE,
    bounded,
    clipped,
    compact,
    number,
    numbered,
    page,
    thread_cursor,
    thread_place,
)
from lockstitch.integrations.mcp.rows import (
    NAMED,
    TEXT,
    cause_row,
    cells,
    latency_row,
    log_line,
    run_row,
    step_row,
    thread_row,
    usage_row,
)
from lockstitch.model import ERROR_TYPES, Json, Run, Stitch, Thread, codec, format_time
from lockstitch.model.moment import moment
from lockstitch.model.statistics import GROUPS
from lockstitch.model.wait import without_next_message
from lockstitch.store import QueryResult, Store, Where
from lockstitch.store.references import find_run, find_thread, name_of
from lockstitch.store.reports.lines import call_text, causes
from lockstitch.store.reports.matches import describe_hits
from lockstitch.store.reports.statistics import RunFilter

_FAILURES: Final = 1_000
"""Maximum number of failures that are grouped by cause."""
_HITS: Final = 1_000
"""Maximum number of matches of a search."""
_END: Final = 15
"""Number of lines at the end of a log."""

AgentOf = Callable[[str | None], Agent]
"""Returns the agent with a name. Raises `NotFound` or `Refused` if this process does not have it."""
RunSQL = Callable[[str, str | None, int], Awaitable[QueryResult]]
"""Runs a statement on a lens or on the core tables, with a maximum number of rows."""


@dataclass(frozen=True, slots=True)
class McpCaller:
    """The caller of a tool: a client of `lockstitch mcp`, or the owner of a token."""

    store: Store
    """Store of the caller's project."""
    actor: str
    """Name of the caller, for the log."""
    run_sql: RunSQL
    """Runs the statements of an administrator."""
    agent_of: AgentOf
    """Returns the agent that retries a run."""


Cursor = Annotated[str, Field(description="`next` of the previous page.")]
Since = Annotated[str, Field(description="Only since: 90s, 12h, 7d ago, or a date.")]
ThreadName = Annotated[str, Field(description="Key or id of a thread.")]
RunName = Annotated[str, Field(description="Id of a run, or a thread: its last run.")]
StatusFilter = Literal["", "pending", "running", "waiting", "completed", "failed", "cancelled"]
UsageGroup = Literal["", "model", "agent", "version", "user", "tag", "status", "day", "hour", "tree", "tool", "latency"]


def at_most(number: int) -> Any:
    """Return the annotation of a number of rows."""
    return Field(ge=1, le=number)


async def list_threads(
    caller: McpCaller,
    status: StatusFilter = "",
    agent: str = "",
    user: str = "",
    since: Since = "",
    limit: Annotated[int, at_most(100)] = 20,
    cursor: Cursor = "",
) -> Json:
    """List threads with their status, tokens, cost and error, the latest first."""
    store = caller.store
    threads = await store.threads(
        limit=limit + 1,
        after=thread_place(cursor),
        since=_moment(store, since, "since"),
        status=status or None,
        agent=agent or None,
        user_id=user or None,
    )
    overviews = await store.overview(threads[:limit])
    rows = [(thread_row(overview), thread_cursor(overview.thread, overview.thread.recent_at)) for overview in overviews]
    shown, after = page(rows, more=len(threads) > limit)
    return {"threads": shown, "next": after}


async def search(caller: McpCaller, text: str, limit: Annotated[int, at_most(50)] = 10, cursor: Cursor = "") -> Json:
    """Find titles, messages and answers that contain all words. The best matches come first."""
    start = number(cursor)
    if start >= _HITS:
        raise Refused(f"A search returns at most {_HITS:,} matches. Use more words.")
    hits = await caller.store.search(text, limit=start + limit + 1)
    rows = [
        compact(
            thread=row["thread_id"],
            key=row["key"],
            title=row["title"],
            position=row["position"],
            run=row["run_id"],
            text=row["snippet"],
        )
        for row, _ in await describe_hits(caller.store, hits[start : start + limit], text)
    ]
    shown, after = page(
        zip(rows, map(str, range(start + 1, start + limit + 1)), strict=False), len(hits) > start + limit
    )
    return {"matches": shown, "next": after}


async def read_thread(
    caller: McpCaller, thread: ThreadName, limit: Annotated[int, at_most(50)] = 10, cursor: Cursor = ""
) -> Json:
    """Read a thread: its state, and its turns with message and answer, newest first."""
    store = caller.store
    head = await find_thread(store, thread)
    history = await store.history(head, limit=limit, before=number(cursor) or None)
    turns: list[tuple[Json, str]] = []
    for turn in history.turns:
        row = compact(
            turn=turn.run.turn,
            run=str(turn.run.id),
            status=turn.run.status,
            message=clipped(turn.user_message, TEXT),
            answer=clipped(turn.final_response or "", TEXT),
            error=turn.run.error,
            steps=turn.run.steps,
            positions=[turn.run.input_position, turn.run.output_position],
            started_at=format_time(turn.run.started_at),
            inherited_from=str(turn.inherited_from) if turn.inherited else None,
        )
        turns.append((row, str(turn.run.turn)))
    shown, after = page(turns, more=history.has_more)
    overview = (await store.overview([head]))[0]
    open_run = await store.execution.open_run(head)
    state = {
        **thread_row(overview),
        **compact(
            goal=head.goal,
            tasks=head.tasks,
            waiting_for=[wait.as_json() for wait in without_next_message(head.waits)],
            parent=str(head.parent_id) if head.parent_id else None,
            open_run=str(open_run.id) if open_run is not None else None,
        ),
    }
    return {"thread": bounded(state), "turns": shown, "next": after}


async def run_log(
    caller: McpCaller,
    run: RunName,
    errors_only: bool = False,
    limit: Annotated[int, at_most(200)] = 50,
    cursor: Annotated[str, Field(description="`next` of the previous page, or a position: only lines after it.")] = "",
) -> Json:
    """Read the log of a run, one line per stitch. read_stitch has the whole content of a line."""
    store = caller.store
    found = await find_run(store, run)
    head = await store.thread(found.thread_id)
    stitches = await _stitches_of(store, head, found, number(cursor), limit + 1, errors_only)
    rows = [(log_line(stitch), str(stitch.position)) for stitch in stitches[:limit]]
    shown, after = page(rows, more=len(stitches) > limit)
    nested = [f"{nested.agent}: {nested.id} {nested.status}" for nested in await _nested(store, head, found)]
    return {"run": bounded({**run_row(found, head), **compact(nested=nested)}), "log": shown, "next": after}


async def read_stitch(
    caller: McpCaller,
    stitch: Annotated[str, Field(description="Id of a stitch, or THREAD:POSITION.")],
    request: Annotated[bool, Field(description="Read the exact request of this model call.")] = False,
    cursor: Cursor = "",
) -> list[str]:
    """Read one entry of a log as JSON. Long JSON comes in pieces: join the second texts of all pages."""
    store = caller.store
    found = await _stitch(store, stitch)
    value = await store.request(found.id) if request else found.as_json()
    text = codec.dumps(value).decode()
    start = number(cursor)
    end = start + PIECE
    head = {
        "stitch": str(found.id),
        "thread": str(found.thread_id),
        "position": found.position,
        "characters": len(text),
        "next": str(end) if end < len(text) else None,
    }
    return [codec.dumps(head).decode(), text[start:end]]


async def errors(
    caller: McpCaller, since: Since = "", limit: Annotated[int, at_most(50)] = 10, cursor: Cursor = ""
) -> Json:
    """List the latest failures of all threads by cause, the most frequent first."""
    store = caller.store
    failures = await store.errors(limit=_FAILURES, since=_moment(store, since, "since"))
    shown, after = numbered(causes(failures), cause_row, cursor, limit)
    return {"failures": len(failures), "causes": shown, "next": after}


async def stats(
    caller: McpCaller,
    by: Annotated[UsageGroup, Field(description="Empty: an overview. tool, latency: calls of tools, of models.")] = "",
    since: Since = "",
    until: Annotated[str, Field(description="Only before this time.")] = "",
    agent: str = "",
    model: str = "",
    user: str = "",
    limit: Annotated[int, at_most(100)] = 30,
    cursor: Cursor = "",
) -> Json:
    """Return runs, failures, tokens, cost and latencies of the project."""
    figures = caller.store.statistics
    only: RunFilter = {
        "since": _moment(caller.store, since, "since"),
        "until": _moment(caller.store, until, "until"),
        "agent": agent or None,
        "model": model or None,
        "user": user or None,
    }
    if by == "tool" or by == "latency":
        calls = await (figures.tools(**only) if by == "tool" else figures.models(**only))
        shown, after = numbered(calls, latency_row, cursor, limit)
        return {"rows": shown, "next": after}
    if by:
        assert by in GROUPS
        table = await figures.usage(by, **only)
        shown, after = numbered(table.rows, usage_row, cursor, limit)
        return {"total": usage_row(table.total), "rows": shown, "next": after}
    models, agents, statuses = await figures.breakdown("model", "agent", "status", **only)
    overview = {
        "total": usage_row(models.total),
        "by_model": [usage_row(row) for row in models.rows[:NAMED]],
        "by_agent": [usage_row(row) for row in agents.rows[:NAMED]],
        "by_status": [usage_row(row) for row in statuses.rows],
        "slowest_tools": [latency_row(row) for row in (await figures.tools(**only))[:NAMED]],
        "slowest_models": [latency_row(row) for row in (await figures.models(**only))[:NAMED]],
    }
    return bounded(overview, PIECE)


async def compare_runs(
    caller: McpCaller, a: RunName, b: RunName, limit: Annotated[int, at_most(50)] = 20, cursor: Cursor = ""
) -> Json:
    """Compare two runs: their totals, and the steps that differ."""
    store = caller.store
    first, second = await find_run(store, a), await find_run(store, b)
    difference = await store.difference(first.id, second.id)
    changed = [(place, pair) for place, pair in enumerate(difference.pairs, 1) if not pair.same]
    shown, after = numbered(changed, step_row, cursor, limit)
    return {
        "a": str(first.id),
        "b": str(second.id),
        "same": difference.same,
        "changes": bounded({change.name: [change.a, change.b] for change in difference.changes}),
        "equal_steps": len(difference.pairs) - len(changed),
        "different_steps": len(changed),
        "steps": shown,
        "next": after,
    }


async def waiting(caller: McpCaller, limit: Annotated[int, at_most(50)] = 20, cursor: Cursor = "") -> Json:
    """List the threads that wait for a person, the longest wait first, with their calls and questions."""
    store = caller.store
    threads = await store.awaiting_person(limit=limit + 1, after=thread_place(cursor))
    rows: list[tuple[Json, str]] = []
    for head in threads[:limit]:
        replies = [
            compact(
                kind=reply.kind,
                call=reply.key,
                tool=clipped(call_text(reply.name, reply.input), TEXT),
                question=reply.question,
                member=reply.member,
                since=format_time(reply.since) if reply.since else None,
            )
            for reply in await waiting_calls(store, head)
        ]
        row = compact(thread=str(head.id), key=head.key, title=name_of(head), agent=head.agent, replies=replies)
        rows.append((row, thread_cursor(head, head.awaiting_person_since)))
    shown, after = page(rows, more=len(threads) > limit)
    return {"count": await store.count_awaiting_person(), "threads": shown, "next": after}


async def sql(
    caller: McpCaller,
    query: Annotated[str, Field(description="One SELECT. With a cursor it needs ORDER BY.")],
    lens: Annotated[
        Literal["", "three_table", "reasoning", "langsmith", "agentic_threads", "agno"],
        Field(description="Tables of another system. Empty: threads, runs, stitches."),
    ] = "",
    limit: Annotated[int, at_most(500)] = 50,
    cursor: Cursor = "",
) -> Json:
    """Run a read-only SQL query on the record of all projects."""
    start = number(cursor)
    answer = await caller.run_sql(query, lens or None, start + limit)
    rows = [({"cells": cells(row)}, str(place)) for place, row in enumerate(answer.rows[start:], start + 1)]
    shown, after = page(rows, more=answer.truncated)
    return {"columns": cells(answer.columns), "rows": [row["cells"] for row in shown], "next": after}


async def explain_failure(caller: McpCaller, name: str) -> str:
    """Return the task to find out why a run failed, with the failures and the end of its log."""
    run = await find_run(caller.store, name)
    head = await caller.store.thread(run.thread_id)
    failures = await _stitches_of(caller.store, head, run, 0, NAMED, errors_only=True)
    facts = {
        "run": run_row(run, head),
        "first_failures": [log_line(stitch) for stitch in failures],
        "end_of_log": [log_line(stitch) for stitch in await _end(caller.store, head, run)],
    }
    return "\n".join(
        [
            f"Find out why the run {run.id} of thread {run.thread_id} failed. Its status is {run.status}.",
            "Name the first cause, not its consequences: the step, what it received, and what went wrong.",
            f"Use run_log for the steps before it, and read_stitch with {run.thread_id}:POSITION for the whole content "
            "of a step. With request=true it returns the exact request of a model call. compare_runs shows what "
            "differs from a run that succeeded, and errors shows if other threads have the same cause.",
            "Do not change anything. Say what you do not know.",
            "",
            codec.dumps(bounded(facts, PIECE)).decode(),
        ]
    )


def _moment(store: Store, text: str, name: str) -> Any:
    return moment(text, store.clock.now(), name) if text else None


async def _stitches_of(store: Store, head: Thread, run: Run, after: int, limit: int, errors_only: bool) -> list[Stitch]:
    """Return the next stitches of a run after a position. Large media are left out."""
    if run.first_position < head.first_position:
        # An archived turn is compressed as a whole, so it is read as a whole.
        log = [stitch for stitch in await store.log(run.id) if stitch.position > after]
        return [stitch for stitch in log if not errors_only or _is_failure(stitch)][:limit]
    where = (Where("run_id", "=", run.id), Where("position", ">", after))
    if errors_only:
        typed = await store.find_stitches(head.id, *where, Where("type", "in", sorted(ERROR_TYPES)), limit=limit)
        failed = await store.find_stitches(head.id, *where, Where("status", "in", sorted(_FAILED)), limit=limit)
        known = {stitch.position: stitch for stitch in (*typed, *failed)}
        return [known[position] for position in sorted(known)][:limit]
    stitches = await store.find_stitches(head.id, *where, limit=limit)
    position = run.input_position
    if position is not None and after < position < run.first_position:
        # The input was delivered before the run started.
        stitches = [*(await store.find_stitches(head.id, Where("position", "=", position))), *stitches]
    return stitches[:limit]


async def _end(store: Store, head: Thread, run: Run) -> list[Stitch]:
    """Return the last stitches of a run."""
    if run.first_position < head.first_position:
        return (await store.log(run.id))[-_END:]
    of_run = Where("run_id", "=", run.id)
    return (await store.find_stitches(head.id, of_run, order=("-position",), limit=_END))[::-1]


_FAILED: Final = frozenset({"error", "failed", "in_doubt"})
"""Statuses of calls and spans that failed."""


def _is_failure(stitch: Stitch) -> bool:
    return stitch.type in ERROR_TYPES or stitch.status in _FAILED


async def _nested(store: Store, head: Thread, run: Run) -> Sequence[Run]:
    return [] if run.parent_run_id else await store.execution.nested_runs(head, run)


async def _stitch(store: Store, name: str) -> Stitch:
    """Return the stitch for an id or for THREAD:POSITION."""
    thread, colon, position = name.rpartition(":")
    if not colon:
        found = await store.stitch(name)
        head, place = await store.thread(found.thread_id), found.position
    else:
        head, place = await find_thread(store, thread), number(position)
    # Large media stay in blobs. They would fill many pages.
    stitches = await store.find_stitches(head.id, Where("position", "=", place)) or await store.stitches(
        head, place, place
    )
    if not stitches:
        raise NotFound(f"Thread {thread} has no position {position}. Its last position is {head.position}.")
    return stitches[0]
