"""Threads: listed, shown, drawn as trees, changed and deleted."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field

from lockstitch.errors import NotFound
from lockstitch.model import Json, Thread
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
from lockstitch.server.problems import Problem
from lockstitch.store import Store
from lockstitch.store.conversations import Task

router = APIRouter(prefix="/api/threads", tags=["threads"], default_response_class=ExactJSON)


class Goal(Body):
    """A goal for whoever drives the agent."""

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
    """Fields that anybody may set at any time."""

    title: Annotated[TextParam, Field(max_length=255)] | None = None
    extras: Json = {}
    priority: Annotated[int, Field(gt=-(2**31), lt=2**31)] = 0
    expires_at: TimeParam | None = None


class Fork(Body):
    """Where a new thread goes on from; None: from the end."""

    at: Annotated[int, Field(ge=0, lt=2**53)] | None = None
    key: Name | None = None
    title: Annotated[TextParam, Field(max_length=255)] | None = None
    user_id: Annotated[TextParam, Field(max_length=255)] | None = None


@router.get("", response_model=responses.Threads)
async def threads(
    caller: Reader,
    status: Annotated[list[Status] | None, Query()] = None,
    agent: Annotated[TextParam | None, Query()] = None,
    kind: Annotated[Kind | None, Query()] = None,
    user_id: Annotated[TextParam | None, Query()] = None,
    since: Since = None,
    root_only: Annotated[bool, Query(description="Leave out threads that another thread made.")] = False,
    limit: Limit = 50,
    after: Annotated[TextParam | None, Query(description="The last thread of the page before.")] = None,
) -> ExactJSON:
    """Threads with the sums over their runs, the most recently active first; `next` goes into `after`."""
    store = caller.store
    found = await store.threads(
        limit=limit + 1,
        after=await store.thread(after) if after else None,
        since=since,
        status=status or None,
        agent=agent,
        kind=kind,
        user_id=user_id,
        depth=0 if root_only else None,
    )
    shown = found[:limit]
    return ExactJSON(
        {
            "threads": [{**one.as_json(), **_more(one.thread)} for one in await store.overview(shown)],
            "next": str(shown[-1].id) if len(found) > limit else None,
        }
    )


@router.post("", status_code=201, response_model=responses.Thread)
async def start(caller: Writer, goal: Goal) -> ExactJSON:
    """Start a thread with a goal. Nothing runs in this request: a worker drives it."""
    given: dict[str, Any] = goal.model_dump(exclude={"agent", "goal"})
    made = await caller.store.start(goal.agent, goal.goal, **given)
    add_log_fields(thread=made.id)
    return ExactJSON(made.as_json(), 201)


@router.get("/{ref}", response_model=responses.Thread)
async def thread(caller: Reader, ref: ThreadRefParam) -> ExactJSON:
    """One thread, by id or key."""
    return ExactJSON((await _known(caller.store, ref)).as_json())


@router.patch("/{ref}", response_model=responses.Thread)
async def edit(caller: Writer, ref: ThreadRefParam, edit: Edit) -> ExactJSON:
    """Change what may be changed at any time; what is not named stays."""
    head = await _known(caller.store, ref)
    fields = edit.model_dump(include=edit.model_fields_set)
    if fields:
        await caller.store.edit(head, **fields)
    return ExactJSON((await caller.store.thread(head)).as_json())


@router.delete("/{ref}", response_model=responses.Deleted)
async def delete(
    caller: Writer,
    ref: ThreadRefParam,
    force: Annotated[bool, Query(description="Even while somebody holds it.")] = False,
) -> ExactJSON:
    """Delete a thread, its descendants and everything of theirs."""
    head = await _known(caller.store, ref)
    deleted = await caller.store.delete(head, force=force)
    if not deleted:
        raise NotFound(f"There is no thread {ref} any more.")
    await caller.store.audits.record(caller.actor, "delete thread", str(head.id), key=head.key, threads=deleted)
    return ExactJSON({"deleted": deleted})


@router.get("/{ref}/tree", response_model=responses.ThreadTree)
async def tree(caller: Reader, ref: ThreadRefParam) -> ExactJSON:
    """The thread with everything below it, each with its children in it."""
    head = await _known(caller.store, ref)
    return ExactJSON((await caller.store.trees([head]))[0].as_json())


@router.get("/{ref}/children", response_model=list[responses.ThreadRow])
async def children(caller: Reader, ref: ThreadRefParam) -> ExactJSON:
    """The threads that a thread has made, with the sums over their runs."""
    found = await caller.store.children(await _known(caller.store, ref))
    return ExactJSON([{**one.as_json(), **_more(one.thread)} for one in await caller.store.overview(found)])


@router.get("/{ref}/ancestors", response_model=list[responses.Thread])
async def ancestors(caller: Reader, ref: ThreadRefParam) -> ExactJSON:
    """Parent, grandparent and so on up to the root."""
    return ExactJSON(rows(await caller.store.ancestors(await _known(caller.store, ref))))


@router.get("/{ref}/context", response_model=list[Json])
async def context(caller: Reader, ref: ThreadRefParam) -> ExactJSON:
    """The messages that the model would get now."""
    return ExactJSON(await caller.store.context(await _known(caller.store, ref)))


@router.get("/{ref}/history", response_model=responses.History)
async def history(
    caller: Reader,
    ref: ThreadRefParam,
    limit: Limit = 20,
    offset: Offset = 0,
    before: Annotated[int | None, Query(ge=0, lt=2**53, description="A sequence_number: only older turns.")] = None,
) -> ExactJSON:
    """Finished turns, the newest first. `next` goes into `before`."""
    page = await caller.store.history(await _known(caller.store, ref), limit=limit, offset=offset, before=before)
    return ExactJSON(
        {
            "turns": [turn.as_json() for turn in page.turns],
            "more": page.more,
            "next": page.turns[-1].run.turn if page.more else None,
        }
    )


@router.get("/{ref}/runs", response_model=list[responses.Run])
async def runs(caller: Reader, ref: ThreadRefParam, limit: Limit = 1000) -> ExactJSON:
    """The runs of a thread in the order in which they began."""
    return ExactJSON(rows(await caller.store.runs(await _known(caller.store, ref), limit=limit)))


@router.get("/{ref}/stitches", response_model=responses.Stitches)
async def stitches(
    caller: Reader, ref: ThreadRefParam, first: Position = 1, last: Position | None = None, limit: Limit = 100
) -> ExactJSON:
    """The log from one position to another; `next` goes into `first`."""
    head = await _known(caller.store, ref)
    first = max(1, first)
    end = min(first + limit - 1, head.position if last is None else min(last, head.position))
    found = await caller.store.stitches(head, first, end) if end >= first else []
    wanted = head.position if last is None else min(last, head.position)
    return ExactJSON({"stitches": rows(found), "next": end + 1 if first <= end < wanted else None})


@router.get("/{ref}/size", response_model=dict[str, int])
async def size(caller: Reader, ref: ThreadRefParam) -> ExactJSON:
    """The bytes that a thread takes, by what they are."""
    return ExactJSON(await caller.store.size(await _known(caller.store, ref)))


@router.post("/{ref}/fork", status_code=201, response_model=responses.Thread)
async def fork(caller: Writer, ref: ThreadRefParam, fork: Fork | None = None) -> ExactJSON:
    """A new thread that goes on from a position of this one."""
    head = await _known(caller.store, ref)
    fork = fork or Fork()
    given = {name: value for name in ("key", "title", "user_id") if (value := getattr(fork, name)) is not None}
    if fork.at is not None and fork.at > head.position:
        raise Problem(422, "Refused", f"Thread {head.id} has {head.position} stitches; at is beyond them.")
    made = await caller.store.fork(head, at=fork.at, **given)
    return ExactJSON(made.as_json(), 201)


async def _known(store: Store, ref: str) -> Thread:
    head = await store.thread(ref)
    add_log_fields(thread=head.id)
    return head


def _more(thread: Thread) -> Json:
    """What a list over HTTP says besides: nobody wants to ask again for each row."""
    return {
        "title": thread.title,
        "goal": thread.goal,
        "user_id": thread.user_id,
        "parent_id": str(thread.parent_id) if thread.parent_id else None,
    }
