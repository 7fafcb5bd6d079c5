"""Routes of the thread page: conversation, context, history, runs, log, tree and downloads."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Final
from uuid import UUID

import anyio
from fastapi import Query, Request
from starlette.responses import HTMLResponse, Response

from lockstitch.engine.usage import estimate
from lockstitch.errors import NotFound
from lockstitch.integrations.export.bundle import export_bundle
from lockstitch.model import Thread, codec
from lockstitch.model.delivery import is_at_rest
from lockstitch.server.auth import Caller, Reader
from lockstitch.server.middleware import add_log_fields
from lockstitch.server.pages import navbar
from lockstitch.server.pages.common import content as media
from lockstitch.server.pages.common.content import CONTENT_LIMIT
from lockstitch.server.pages.common.open_calls import load_open_calls
from lockstitch.server.pages.common.render import render_page
from lockstitch.server.pages.common.rows import title_of
from lockstitch.server.pages.feedback.view import feedback_on_runs
from lockstitch.server.pages.navbar import page_router
from lockstitch.server.pages.thread.conversation import Conversation, ConversationItem
from lockstitch.server.pages.thread.sidebar import graph_of, side_of, state_of
from lockstitch.store import Store
from lockstitch.store.queries.log import inherited_turns

router = page_router("/threads/{ref}")

PAGE: Final = 100
"""Number of stitches per page."""

_BEFORE: Final = 5
"""Number of stitches before a failed run among which its error is."""

TURNS: Final = 20

MESSAGES: Final = 50
"""Number of messages of a context per page."""
MESSAGE_CHARACTERS: Final = 400_000
"""Maximum number of characters of all messages on a page. Each message gets an equal part."""

Before = Annotated[int | None, Query(ge=1, lt=2**62)]
Position = Annotated[int, Query(ge=1, lt=2**62)]

VIEWS: Final = ("talk", "context", "history", "runs", "log")


@router.get("", name="thread")
async def thread(request: Request, caller: Reader, ref: str, view: str = "talk", before: Before = None) -> HTMLResponse:
    """Render the page with the selected tab."""
    head = await _head(caller, ref)
    view = view if view in VIEWS else "talk"
    shown = await about(caller, head)
    shown |= {"view": view, **await _VIEWS[view](caller.store, head, before)}
    shown |= await _feedback(caller, head, shown.get("items", []))
    return render_page(request, caller, "thread/page.html", **shown)


@router.get("/earlier")
async def earlier(request: Request, caller: Reader, ref: str, before: Position, view: str = "talk") -> HTMLResponse:
    """Render the stitches before a position."""
    head = await _head(caller, ref)
    make = _log if view == "log" else _talk
    template = "thread/log_rows.html" if view == "log" else "thread/earlier.html"
    shown: dict[str, Any] = await make(caller.store, head, before)
    shown |= await _feedback(caller, head, shown.get("items", []))
    return render_page(request, caller, template, head=head, view=view, **shown)


@router.get("/stitch/{position}")
async def stitch(request: Request, caller: Reader, ref: str, position: int) -> Response:
    """Render one stitch of the conversation; 204 if only the log shows it."""
    head = await _head(caller, ref)
    # The item of a failed run depends on the error before it.
    stitches = await caller.store.stitches(head, max(1, position - _BEFORE), position)
    conversation = await Conversation.of(caller.store, head, stitches)
    items = conversation.items([stitch for stitch in stitches if stitch.position == position])
    if not items:
        return Response(status_code=204)
    feedback = await _feedback(caller, head, items)
    return render_page(request, caller, "thread/stitches.html", head=head, items=items, live=True, **feedback)


@router.get("/now")
async def now(request: Request, caller: Reader, ref: str, view: str = "talk") -> HTMLResponse:
    """Render the parts that change while a thread runs: open calls, status, side column."""
    head = await _head(caller, ref)
    shown: dict[str, Any] = {**await about(caller, head), "bar": await navbar.bar_of(caller), "view": view}
    return render_page(request, caller, "thread/updates.html", **shown)


@router.get("/messages/{run_id}")
async def messages(request: Request, caller: Reader, ref: str, run_id: UUID, before: Before = None) -> HTMLResponse:
    """Render the last messages of a run, or those before a message."""
    head = await _head(caller, ref)
    run = await caller.store.run(run_id)
    if run.thread_id != head.id:
        raise NotFound(f"Run {run_id} belongs to another thread.")
    shown = _message_page(await caller.store.messages(run.id), before, f"messages/{run.id}")
    return render_page(request, caller, "thread/messages.html", head=head, **shown)


@router.get("/context")
async def context(request: Request, caller: Reader, ref: str, before: Before = None) -> HTMLResponse:
    """Render the messages of the context before a message."""
    head = await _head(caller, ref)
    shown = _message_page(await caller.store.context(head), before, "context")
    return render_page(request, caller, "thread/messages.html", head=head, **shown)


@router.get("/media/{position}/{number}")
async def medium(caller: Reader, ref: str, position: int, number: int) -> Response:
    """Return a medium of a message. Media that are not images are downloads."""
    head = await _head(caller, ref)
    mediums = [
        medium for stitch in await caller.store.stitches(head, position, position) for medium in media.media_of(stitch)
    ]
    if not 0 <= number < len(mediums):
        raise NotFound(f"Position {position} of thread {head.id} has no medium {number}.")
    other_medium = mediums[number]
    name = f'{"inline" if other_medium.shown else "attachment"}; filename="{head.id}-{position}-{number}"'
    kind = other_medium.type if other_medium.shown else "application/octet-stream"
    return Response(other_medium.content(), media_type=kind, headers={**media.HEADERS, "Content-Disposition": name})


@router.get("/raw/{position}")
async def raw(caller: Reader, ref: str, position: int) -> Response:
    """Return a full stitch as plain text."""
    head = await _head(caller, ref)
    stitches = await caller.store.stitches(head, position, position)
    if not stitches:
        raise NotFound(f"Thread {head.id} has no position {position}.")
    name = f'inline; filename="{head.id}-{position}.json"'
    headers = {**media.HEADERS, "Content-Disposition": name}
    return Response(codec.dumps(stitches[0].as_json()), media_type="text/plain; charset=utf-8", headers=headers)


@router.get("/bundle")
async def bundle(caller: Reader, ref: str) -> Response:
    """Download the thread and its descendants as a bundle."""
    head = await _head(caller, ref)
    with TemporaryDirectory(prefix="lockstitch-") as folder:
        path = Path(folder, "bundle.zip")
        await export_bundle(caller.store, head, path)
        content = await anyio.Path(path).read_bytes()
    headers = {"Content-Disposition": f'attachment; filename="{head.id}.zip"'}
    return Response(content, media_type="application/zip", headers=headers)


@router.get("/tree")
async def tree(request: Request, caller: Reader, ref: str) -> HTMLResponse:
    """Render the tree of a thread: threads with stitches, status and task progress."""
    head = await _head(caller, ref)
    return render_page(
        request, caller, "thread/tree.html", head=head, title=title_of(head), graph=await graph_of(caller.store, head)
    )


@router.get("/delete")
async def confirm_delete(request: Request, caller: Reader, ref: str) -> HTMLResponse:
    """Render the confirmation page of a delete."""
    head = await _head(caller, ref)
    below = len(await caller.store.tree(head)) - 1
    return render_page(request, caller, "thread/delete.html", head=head, title=title_of(head), below=below)


async def about(caller: Caller, head: Thread) -> dict[str, Any]:
    """Return the template context of all views of a thread."""
    store = caller.store
    ancestors = (await store.ancestors(head))[::-1] if head.parent_id else []
    last = await store.execution.last_run(head) if head.kind != "trace" else None
    status, person, words = state_of(store, head, last)
    can_act = caller.may("write") and head.kind != "trace"
    return {
        "head": head,
        "title": title_of(head),
        "ancestors": [(ancestor.id, title_of(ancestor)) for ancestor in ancestors],
        "state": {"status": status, "person": person, "words": words},
        "open": await load_open_calls(store, head),
        "side": await side_of(store, head),
        "last_run": last,
        "at_rest": is_at_rest(head),
        "can_say": can_act and caller.state.app is not None and head.agent in caller.state.app.agents,
        "can_act": can_act,
        "has_app": caller.state.app is not None,
    }


async def _head(caller: Caller, ref: str) -> Thread:
    head = await caller.store.thread(ref)
    add_log_fields(thread=head.id)
    return head


async def _talk(store: Store, head: Thread, before: int | None) -> dict[str, Any]:
    last = min(head.position, before - 1) if before else head.position
    first = max(head.first_position, last - PAGE + 1)
    stitches = await store.stitches(head, first, last) if last >= first else []
    conversation = await Conversation.of(store, head, stitches)
    # The turns before a fork belong above its first stitch.
    inherited = inherited_turns(head) if first == head.first_position else []
    return {
        "inherited": await store.history(head, limit=TURNS, before=inherited[0].last_turn + 1) if inherited else None,
        "items": conversation.items(stitches),
        "first": first,
        "rest": max(0, first - head.first_position),
        "last": last,
    }


async def _feedback(caller: Caller, head: Thread, items: Sequence[ConversationItem]) -> dict[str, Any]:
    """Return the feedback on the runs that these items answer, by the position of the last answer of each run."""
    answers = {item.stitch.run_id: item.stitch.position for item in items if item.is_answer and item.stitch.run_id}
    feedback = await feedback_on_runs(caller, head.id, answers)
    return {"feedback": {answers[run_id]: given for run_id, given in feedback.items()}}


async def _log(store: Store, head: Thread, before: int | None) -> dict[str, Any]:
    last = min(head.position, before - 1) if before else head.position
    first = max(head.first_position, last - PAGE + 1)
    stitches = await store.stitches(head, first, last) if last >= first else []
    return {"stitches": stitches[::-1], "first": first, "rest": max(0, first - head.first_position)}


async def _context(store: Store, head: Thread, before: int | None) -> dict[str, Any]:
    messages = await store.context(head)
    total = sum(estimate(message) for message in messages)
    return {"count": len(messages), "total": total, **_message_page(messages, before, "context")}


async def _history(store: Store, head: Thread, before: int | None) -> dict[str, Any]:
    return {"history": await store.history(head, limit=TURNS, before=before)}


async def _runs(store: Store, head: Thread, before: int | None) -> dict[str, Any]:
    runs = await store.runs(head)
    return {"runs": runs[::-1]}


def _message_page(messages: list[Any], before: int | None, path: str) -> dict[str, Any]:
    """Return the last messages, or those before a message, with their sizes. `path` has the earlier messages."""
    last = min(before - 1, len(messages)) if before else len(messages)
    first = max(0, last - MESSAGES)
    shown = messages[first:last]
    return {
        "messages": [(message, estimate(message)) for message in shown],
        "limit": min(CONTENT_LIMIT, MESSAGE_CHARACTERS // max(1, len(shown))),
        "earlier": first,
        "earlier_path": f"{path}?before={first + 1}",
    }


_VIEWS: Final[dict[str, Any]] = {
    "talk": _talk,
    "context": _context,
    "history": _history,
    "runs": _runs,
    "log": _log,
}
