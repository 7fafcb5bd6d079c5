"""Threads: list, read, tree, edit, fork and delete."""

from typing import Annotated, Any
from uuid import UUID

from fastapi import Depends, Query
from pydantic import Field

from lockstitch.engine.replies import pending_replies, waiting_calls
from lockstitch.errors import NotFound
from lockstitch.model import Json, Thread
from lockstitch.model.figures import ThreadSort
from lockstitch.model.thread import Kind, Status
from lockstitch.server.api import responses
from lockstitch.server.api.schemas import (
    Body,
    ExactJSON,
    Limit,
    Name,
    Offset,
    Position,
    Since,
    TextParam,
    ThreadRefParam,
    TimeParam,
    rows,
)
from lockstitch.server.auth import Reader, Writer
from lockstitch.server.middleware import add_log_fields
from lockstitch.server.routing import LazyRouter
from lockstitch.store import Store, Where
from lockstitch.store.conversations import Task
from lockstitch.store.queries.thread_list import parse_metadata

Full = Annotated[bool, Query(description="Add all fields of each thread.")]

Ids = Annotated[list[UUID], Query(alias="thread_id", max_length=200, description="Ids of threads, at most 200.")]

router = LazyRouter(prefix="/api/threads", tags=["threads"], default_response_class=ExactJSON)


class Goal(Body):
    """A goal for an agent."""

    agent: Name
    goal: Annotated[TextParam, Field(min_length=1)]
    key: Name | None = None
    title: Annotated[TextParam, Field(max_length=255)] | None = None
    user_id: Annotated[TextParam, Field(max_length=255)] | None = None
    tasks: list[Task] = []
    priority: Annotated[int, Field(gt=-(2**31), lt=2**31)] = 0
    at: TimeParam | None = None
    extras: Json = {}


class Edit(Body):
    """Fields that can be changed at any time."""

    title: Annotated[TextParam, Field(max_length=255)] | None = None
    extras: Json = {}
    priority: Annotated[int, Field(gt=-(2**31), lt=2**31)] = 0
    expires_at: TimeParam | None = None


class Fork(Body):
    """The place of a fork: after the position `at`, or before a turn. Neither: the end of the thread.

    With `take_key`, the fork gets the key of the thread, which then has none.
    """

    at: Annotated[int, Field(ge=0, lt=2**53)] | None = None
    before_turn: Annotated[int, Field(ge=0, lt=2**53)] | None = None
    key: Name | None = None
    take_key: bool = False
    title: Annotated[TextParam, Field(max_length=255)] | None = None
    user_id: Annotated[TextParam, Field(max_length=255)] | None = None


def _filters(
    status: Annotated[list[Status] | None, Query()] = None,
    agent: Annotated[TextParam | None, Query()] = None,
    kind: Annotated[Kind | None, Query()] = None,
    user_id: Annotated[TextParam | None, Query()] = None,
    since: Since = None,
    until: Annotated[TimeParam | None, Query(description="Only before this time (with time zone).")] = None,
    version: Annotated[int | None, Query(ge=0, lt=2**53, description="Version of the agent.")] = None,
    model: Annotated[list[TextParam] | None, Query(description="Model of the last run.")] = None,
    min_cost: Annotated[float | None, Query(ge=0, allow_inf_nan=False, description="In US dollars.")] = None,
    error: Annotated[
        TextParam | None, Query(description="`true`: a run failed. Another text: a part of the last error.")
    ] = None,
    tag: Annotated[list[TextParam] | None, Query(description="A tag of a run. Several: all of them.")] = None,
    metadata: Annotated[list[TextParam] | None, Query(description="Metadata of a run, as `key=value`.")] = None,
    evaluations: Annotated[bool, Query(description="`false`: leave out threads of evaluations.")] = True,
    root_only: Annotated[bool, Query(description="Only threads without a parent.")] = False,
    sort: Annotated[ThreadSort, Query(description="Order. Threads without the figure are left out.")] = "time",
    ascending: Annotated[bool, Query(description="Start with the lowest value.")] = False,
) -> dict[str, Any]:
    """Return the filters and the order of a list of threads as arguments of `Store.threads`."""
    return {
        "since": since,
        "status": status or None,
        "agent": agent,
        "kind": kind,
        "user_id": user_id,
        "until": until,
        "version": version,
        "model": model or None,
        "min_cost": min_cost,
        "error": True if error == "true" else error or None,
        "tag": tag or None,
        "metadata": parse_metadata(metadata or ()),
        "evaluations": evaluations,
        "depth": 0 if root_only else None,
        "sort": sort,
        "ascending": ascending,
    }


ThreadFilters = Annotated[dict[str, Any], Depends(_filters)]
"""The parameters of a route that filter and sort threads."""


@router.get("", response_model=responses.Threads)
async def threads(
    caller: Reader,
    filters: ThreadFilters,
    limit: Limit = 50,
    after: Annotated[TextParam | None, Query(description="The last thread of the previous page.")] = None,
    full: Full = False,
) -> ExactJSON:
    """List threads with totals of their runs, most recently active first. Pass `next` as `after` for the next page.

    `sort` selects another order: by the duration of the last run, or by the sums of the ended runs.
    """
    store = caller.store
    last = await store.thread(after) if after else None
    matches = await store.threads(limit=limit + 1, after=last, **filters)
    shown = matches[:limit]
    return ExactJSON(
        {
            "threads": [overview.as_json(full=full) for overview in await store.overview(shown)],
            "next": str(shown[-1].id) if len(matches) > limit else None,
        }
    )


@router.post("", status_code=201, response_model=responses.Thread)
async def start(caller: Writer, goal: Goal) -> ExactJSON:
    """Start a thread with a goal. A worker executes it."""
    values: dict[str, Any] = goal.model_dump(exclude={"agent", "goal"})
    thread = await caller.store.start(goal.agent, goal.goal, **values)
    add_log_fields(thread=thread.id)
    return ExactJSON(thread.as_json(), 201)


@router.get("/{ref}", response_model=responses.Thread)
async def thread(caller: Reader, ref: ThreadRefParam) -> ExactJSON:
    """Return a thread by id or key."""
    return ExactJSON((await _known(caller.store, ref)).as_json())


@router.patch("/{ref}", response_model=responses.Thread)
async def edit(caller: Writer, ref: ThreadRefParam, edit: Edit) -> ExactJSON:
    """Change fields of a thread. Other fields stay unchanged."""
    head = await _known(caller.store, ref)
    fields = edit.model_dump(include=edit.model_fields_set)
    if fields:
        await caller.store.edit(head, **fields)
    return ExactJSON((await caller.store.thread(head)).as_json())


@router.delete("/{ref}", response_model=responses.Deleted)
async def delete(
    caller: Writer,
    ref: ThreadRefParam,
    force: Annotated[bool, Query(description="Delete it even while a worker holds it.")] = False,
) -> ExactJSON:
    """Delete a thread and its descendants with all their data."""
    head = await _known(caller.store, ref)
    deleted = await caller.store.delete(head, force=force)
    if not deleted:
        raise NotFound(f"Thread {ref} not found. It was deleted.")
    await caller.store.audits.record(caller.actor, "delete thread", str(head.id), key=head.key, threads=deleted)
    return ExactJSON({"deleted": deleted})


@router.get("/{ref}/tree", response_model=responses.ThreadTree)
async def tree(caller: Reader, ref: ThreadRefParam) -> ExactJSON:
    """Return a thread with its descendants as a tree."""
    head = await _known(caller.store, ref)
    return ExactJSON((await caller.store.trees([head]))[0].as_json())


@router.get("/{ref}/children", response_model=list[responses.ThreadRow])
async def children(caller: Reader, ref: ThreadRefParam) -> ExactJSON:
    """List the children of a thread with totals of their runs."""
    threads = await caller.store.children(await _known(caller.store, ref))
    return ExactJSON([overview.as_json() for overview in await caller.store.overview(threads)])


@router.get("/{ref}/ancestors", response_model=list[responses.Thread])
async def ancestors(caller: Reader, ref: ThreadRefParam) -> ExactJSON:
    """List the ancestors of a thread from the parent to the root."""
    return ExactJSON(rows(await caller.store.ancestors(await _known(caller.store, ref))))


@router.get("/{ref}/context", response_model=list[Json])
async def context(caller: Reader, ref: ThreadRefParam) -> ExactJSON:
    """Return the messages that the next model call would get."""
    return ExactJSON(await caller.store.context(await _known(caller.store, ref)))


@router.get("/{ref}/history", response_model=responses.History)
async def history(
    caller: Reader,
    ref: ThreadRefParam,
    limit: Limit = 20,
    offset: Offset = 0,
    before: Annotated[int | None, Query(ge=0, lt=2**53, description="A sequence_number: only older turns.")] = None,
    full: Annotated[bool, Query(description="Add the run of each turn as `run`.")] = False,
) -> ExactJSON:
    """List finished turns, newest first. Pass `next` as `before` for the next page.

    The turns that a fork inherited have the id of their thread in `inherited_from`.
    """
    page = await caller.store.history(await _known(caller.store, ref), limit=limit, offset=offset, before=before)
    return ExactJSON(
        {
            "turns": [{**turn.as_json(), **({"run": turn.run.as_json()} if full else {})} for turn in page.turns],
            "more": page.has_more,
            "next": page.turns[-1].run.turn if page.has_more else None,
        }
    )


@router.get("/{ref}/runs", response_model=list[responses.Run])
async def runs(
    caller: Reader,
    ref: ThreadRefParam,
    limit: Limit = 1000,
    first: Annotated[int, Query(ge=0, lt=2**53, description="The number of the first run.")] = 0,
) -> ExactJSON:
    """List the runs of a thread in start order. For the next page, pass the last `sequence` plus 1 as `first`."""
    head = await _known(caller.store, ref)
    return ExactJSON(rows(await caller.store.find_runs(head.id, Where("sequence", ">=", first), limit=limit)))


@router.get("/{ref}/last_run", response_model=responses.Run)
async def last_run(caller: Reader, ref: ThreadRefParam) -> ExactJSON:
    """Return the last run of a thread, without runs of team members."""
    head = await _known(caller.store, ref)
    run = await caller.store.execution.last_run(head)
    if run is None:
        raise NotFound(f"Thread {head.key or head.id} has no run.")
    return ExactJSON(run.as_json())


@router.get("/{ref}/replies", response_model=list[responses.PendingReply])
async def replies(caller: Reader, ref: ThreadRefParam) -> ExactJSON:
    """List the calls of a thread that wait for a reply, the longest wait first."""
    pending = await pending_replies(caller.store, await _known(caller.store, ref))
    return ExactJSON([reply.as_json() for reply in pending])


@router.get("/{ref}/stitches", response_model=responses.Stitches)
async def stitches(
    caller: Reader, ref: ThreadRefParam, first: Position = 1, last: Position | None = None, limit: Limit = 100
) -> ExactJSON:
    """List the stitches of a range of positions. Pass `next` as `first` for the next page."""
    head = await _known(caller.store, ref)
    first = max(1, first)
    end = min(first + limit - 1, head.position if last is None else min(last, head.position))
    matches = await caller.store.stitches(head, first, end) if end >= first else []
    wanted = head.position if last is None else min(last, head.position)
    return ExactJSON({"stitches": rows(matches), "next": end + 1 if first <= end < wanted else None})


@router.get("/{ref}/size", response_model=dict[str, int])
async def size(caller: Reader, ref: ThreadRefParam) -> ExactJSON:
    """Return the size of a thread in bytes, by kind of data."""
    return ExactJSON(await caller.store.size(await _known(caller.store, ref)))


@router.post("/{ref}/fork", status_code=201, response_model=responses.Thread)
async def fork(caller: Writer, ref: ThreadRefParam, fork: Fork | None = None) -> ExactJSON:
    """Create a thread that continues from a position of this thread."""
    head = await _known(caller.store, ref)
    fork = fork or Fork()
    thread = await caller.store.fork(
        head,
        at=fork.at,
        before_turn=fork.before_turn,
        key=fork.key,
        take_key=fork.take_key,
        title=fork.title,
        user_id=fork.user_id,
    )
    return ExactJSON(thread.as_json(), 201)


queries_router = LazyRouter(prefix="/api", tags=["threads"], default_response_class=ExactJSON)


@queries_router.get("/overviews", response_model=list[responses.ThreadRow])
async def overviews(caller: Reader, thread_id: Ids, full: Full = False) -> ExactJSON:
    """List the threads with these ids with totals of their runs. Unknown ids are left out."""
    known = await caller.store.threads_by_id(thread_id)
    heads = [known[item_id] for item_id in dict.fromkeys(thread_id) if item_id in known]
    return ExactJSON([overview.as_json(full=full) for overview in await caller.store.overview(heads)])


@queries_router.get("/trees", response_model=list[responses.ThreadTree])
async def trees(
    caller: Reader,
    thread_id: Ids,
    root: Annotated[bool, Query(description="Start at the root of each tree. Each tree is listed once.")] = False,
    full: Full = False,
) -> ExactJSON:
    """List the threads with these ids as trees with all their descendants. Unknown ids are left out."""
    known = await caller.store.threads_by_id(thread_id)
    heads = [known[item_id] for item_id in dict.fromkeys(thread_id) if item_id in known]
    nodes = await (caller.store.trees_of(heads) if root else caller.store.trees(heads))
    return ExactJSON([node.as_json(full=full) for node in nodes])


@queries_router.get("/match", response_model=responses.Matches)
async def match(
    caller: Reader,
    text: Annotated[TextParam, Query(min_length=1, max_length=300, description="A part of an id, or a key.")],
    limit: Limit = 10,
) -> ExactJSON:
    """Find threads and runs by a part of their id, the latest first.

    A part is the start of an id or of a short id, or the end of an id, with at least 4 characters. `exact` has the
    thread whose id or key is the whole text, or null.
    """
    try:
        exact = (await caller.store.thread(text)).as_json()
    except NotFound:
        exact = None
    threads = rows(await caller.store.match_threads(text, limit=limit))
    return ExactJSON(
        {"exact": exact, "threads": threads, "runs": rows(await caller.store.match_runs(text, limit=limit))}
    )


@queries_router.get("/inbox", response_model=responses.Inbox)
async def inbox(caller: Reader, limit: Limit = 50) -> ExactJSON:
    """List the threads that wait for a person, the longest wait first, with the calls that wait for a reply.

    `count` is the number of all threads that wait.
    """
    store = caller.store
    threads = await store.awaiting_person(limit=limit)
    waiting = [
        {"thread": head.as_json(), "replies": [reply.as_json() for reply in await waiting_calls(store, head)]}
        for head in threads
    ]
    return ExactJSON({"threads": waiting, "count": await store.count_awaiting_person()})


async def _known(store: Store, ref: str) -> Thread:
    head = await store.thread(ref)
    add_log_fields(thread=head.id)
    return head
