"""Actions on the selected threads of the list: retry, cancel, approve, delete, add to a dataset."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Final
from urllib.parse import parse_qsl
from uuid import UUID

from fastapi import Form, Request
from starlette.responses import Response

from lockstitch.agents import approve, cancel
from lockstitch.errors import LockstitchError, Refused
from lockstitch.model import ApprovalWait, Thread
from lockstitch.model.format import plural
from lockstitch.server.auth import Caller, FormWriter
from lockstitch.server.pages.common import forms
from lockstitch.server.pages.common.render import redirect_to, render_page
from lockstitch.server.pages.common.rows import person_waits_of, title_of
from lockstitch.server.pages.navbar import page_router
from lockstitch.server.pages.threads.counts import forget
from lockstitch.server.pages.threads.filters import Filters
from lockstitch.store.datasets import add_to_dataset

router = page_router("/threads")

_MOST: Final = 500
"""Maximum number of threads of one action."""


@router.post("/selected")
async def act(
    request: Request,
    caller: FormWriter,
    action: Annotated[str, Form(max_length=20)],
    thread: Annotated[list[UUID] | None, Form(max_length=_MOST)] = None,
    dataset: Annotated[str, Form(max_length=255)] = "",
    query: Annotated[str, Form(max_length=5000)] = "",
) -> Response:
    """Apply an action to the selected threads. A thread that refuses it does not stop the others."""
    ids = list(dict.fromkeys(thread or []))
    if not ids:
        raise Refused("Select a thread. Nothing was changed.")
    found = await caller.store.threads_by_id(ids)
    heads = [found[thread_id] for thread_id in ids if thread_id in found]
    values = parse_qsl(query.removeprefix("?"))
    target = f"/{Filters.of(dict(values), [value for name, value in values if name == 'columns']).address()}"
    if action == "delete":
        titles = [title_of(head) for head in heads]
        return render_page(request, caller, "threads/delete.html", heads=heads, titles=titles, target=target)
    if action == "dataset":
        text = await _add(caller, heads, dataset.strip())
    elif action in _ACTIONS:
        done, operation = _ACTIONS[action]
        text = await _each(caller, heads, done, operation)
    else:
        raise Refused(f"The action {action!r} does not exist. Nothing was changed.")
    forget()
    return redirect_to(request, target, text)


async def _each(
    caller: Caller, heads: list[Thread], done: str, operation: Callable[[Caller, Thread], Awaitable[Any]]
) -> str:
    """Apply an operation to each thread. Return the number of successes and the reason of the first failure."""
    problems: list[str] = []
    for head in heads:
        try:
            await operation(caller, head)
        except LockstitchError as exc:
            problems.append(f"{title_of(head)[:60]}: {exc}")
    text = f"{done} {plural(len(heads) - len(problems), 'thread')}."
    return f"{text} {len(problems)} unchanged. {problems[0]}" if problems else text


async def _add(caller: Caller, heads: list[Thread], dataset: str) -> str:
    if not dataset:
        raise Refused("Enter the name of a dataset. Nothing was changed.")
    cases = await add_to_dataset(caller.store, dataset, [head.id for head in heads])
    text = f"Added {plural(len(cases.added), 'case')} to {cases.dataset.name}, version {cases.dataset.version}."
    if cases.known:
        text += f" {len(cases.known)} known."
    return f"{text} {len(cases.skipped)} without a finished run." if cases.skipped else text


async def _approve(caller: Caller, head: Thread) -> None:
    """Approve all calls of a thread that wait for an approval."""
    keys = [wait.key for wait in person_waits_of(head) if isinstance(wait, ApprovalWait) and wait.key]
    if not keys:
        raise Refused("no call waits for an approval.")
    for key in keys:
        await approve(caller.store, head, key, by=caller.actor)


async def _cancel(caller: Caller, head: Thread) -> None:
    await cancel(caller.store, head)


async def _delete(caller: Caller, head: Thread) -> None:
    # A selected thread below a selected thread is deleted with it.
    if await caller.store.threads_by_id([head.id]):
        deleted = await caller.store.delete(head.id)
        await caller.store.audits.record(caller.actor, "delete thread", str(head.id), key=head.key, threads=deleted)


_ACTIONS: Final[dict[str, tuple[str, Callable[[Caller, Thread], Awaitable[Any]]]]] = {
    "retry": ("Retried", forms.retry),
    "cancel": ("Cancelled", _cancel),
    "approve": ("Approved the calls of", _approve),
    "confirm_delete": ("Deleted", _delete),
}
