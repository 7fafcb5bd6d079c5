"""Form actions of a thread: replies, messages, fork, cancel, retry, resume, rename and delete.

Every form works without JavaScript. With htmx the page stays and shows a toast.
"""

from typing import Annotated, Any

from fastapi import Form, Request
from starlette.responses import Response

from lockstitch.agents import answer, approve, cancel, deny, settle, submit_results
from lockstitch.errors import LockstitchError, Refused
from lockstitch.model import FrontendToolWait, Json, Thread, codec
from lockstitch.server.auth import Caller, FormWriter
from lockstitch.server.middleware import add_log_fields
from lockstitch.server.pages import navbar
from lockstitch.server.pages.common import forms
from lockstitch.server.pages.common.forms import filled
from lockstitch.server.pages.common.open_calls import OpenCall, load_open_calls
from lockstitch.server.pages.common.render import is_htmx_request, redirect_to, render_page
from lockstitch.server.pages.common.rows import rows, title_of
from lockstitch.server.pages.navbar import page_router
from lockstitch.server.pages.threads.columns import with_cells
from lockstitch.server.pages.threads.counts import counts_of, forget
from lockstitch.server.pages.threads.filters import filters_of

router = page_router("/threads/{ref}")

Call = Annotated[str, Form(min_length=1, max_length=255)]
Text = Annotated[str, Form(max_length=1_000_000)]

Title = Annotated[str, Form(max_length=255)]


@router.post("/approve")
async def approve_call(request: Request, caller: FormWriter, ref: str, call: Call, name: Text = "") -> Response:
    await approve(caller.store, ref, call, by=caller.actor)
    return await _done(request, caller, ref, f"Approved {name or call}")


@router.post("/deny")
async def deny_call(
    request: Request, caller: FormWriter, ref: str, call: Call, reason: Text = "", name: Text = ""
) -> Response:
    await deny(caller.store, ref, call, reason=reason.strip() or None, by=caller.actor)
    return await _done(request, caller, ref, f"Denied {name or call}")


@router.post("/settle")
async def settle_call(
    request: Request,
    caller: FormWriter,
    ref: str,
    call: Call,
    how: Annotated[str, Form()],
    gave: Text = "",
    name: Text = "",
) -> Response:
    """Resolve a call with unknown outcome: it completed with a result, it runs again, or it stays unknown."""
    by = caller.actor
    match how:
        case "happened":
            await settle(caller.store, ref, call, done=gave.strip() or "It completed.", by=by)
        case "again":
            await settle(caller.store, ref, call, redo=True, by=by)
        case "unknown":
            await settle(caller.store, ref, call, unknown=True, by=by)
        case _:
            raise Refused("Choose one: it happened, run it again, or unknown.")
    return await _done(request, caller, ref, f"Resolved {name or call}")


@router.post("/answer")
async def answer_question(
    request: Request, caller: FormWriter, ref: str, text: Text, call: Annotated[str | None, Form(max_length=255)] = None
) -> Response:
    if not text.strip():
        raise Refused("Enter an answer.")
    await answer(caller.store, ref, text, call_id=call or None, by=caller.actor)
    return await _done(request, caller, ref, "Answered")


@router.post("/results")
async def submit_frontend_results(request: Request, caller: FormWriter, ref: str) -> Response:
    """Submit the results of frontend tools."""
    head = await caller.store.thread(ref)
    form = await request.form()
    open_calls = await load_open_calls(caller.store, head)
    requested = [
        call
        for person_request in open_calls.requests
        if person_request.kind == FrontendToolWait.KIND
        for call in person_request.calls
    ]
    failed = form.get("failed") is not None
    await submit_results(
        caller.store, head, [_result(call, number, form, failed) for number, call in enumerate(requested)]
    )
    return await _done(request, caller, ref, "Error sent" if failed else "Result sent")


@router.post("/say")
async def say(request: Request, caller: FormWriter, ref: str, message: Text, form_id: forms.FormId = "") -> Response:
    """Send a message. It starts a run or is queued until the current run finishes."""
    if not message.strip():
        raise Refused("Enter a message.")
    head = await caller.store.thread(ref)
    waits = await caller.store.execution.open_run(head) is not None
    await forms.say(caller, head, message, form_id)
    return await _done(request, caller, ref, "Queued until the current run finishes" if waits else "", sent=True)


@router.post("/fork")
async def fork(
    request: Request, caller: FormWriter, ref: str, at: Annotated[int | None, Form(ge=1, lt=2**62)] = None
) -> Response:
    """Fork the thread at a position."""
    thread = await caller.store.fork(ref, at=at)
    forget()
    return forms.done(request, f"/threads/{thread.id}", "Forked. Messages here do not change the original thread.")


@router.post("/regenerate")
async def regenerate(request: Request, caller: FormWriter, ref: str, form_id: forms.FormId = "") -> Response:
    """Answer the last turn again, in a fork that takes the key of the thread."""
    head = await caller.store.thread(ref)
    # 404 if no agent of this app executes the thread.
    caller.app.agent(head.agent)
    queued = await caller.store.regenerate(head, message_id=form_id or None)
    forget()
    return forms.done(
        request, f"/threads/{queued.thread.id}", "Answering again. The old answer is in the other thread."
    )


@router.post("/cancel")
async def cancel_run(request: Request, caller: FormWriter, ref: str) -> Response:
    head = await cancel(caller.store, ref)
    return await _done(request, caller, ref, "Cancelled" if head.status != "running" else "Cancel requested")


@router.post("/retry")
async def retry(request: Request, caller: FormWriter, ref: str, view: Text = "") -> Response:
    await forms.retry(caller, await caller.store.thread(ref))
    if view == "row":
        return await _row(request, caller, ref, "Retrying")
    return await _done(request, caller, ref, "Retrying")


@router.post("/resume")
async def resume(request: Request, caller: FormWriter, ref: str) -> Response:
    await forms.resume(caller, await caller.store.thread(ref))
    return await _done(request, caller, ref, "Resumed")


@router.post("/title")
async def rename(
    request: Request, caller: FormWriter, ref: str, title: Annotated[str, Form(max_length=255)] = ""
) -> Response:
    await caller.store.edit(ref, title=title.strip() or None)
    return await _done(request, caller, ref, "Renamed", reload=True)


@router.post("/delete")
async def delete(request: Request, caller: FormWriter, ref: str) -> Response:
    """Delete the thread and its descendants permanently."""
    head = await caller.store.thread(ref)
    deleted = await caller.store.delete(head)
    await caller.store.audits.record(caller.actor, "delete thread", str(head.id), key=head.key, threads=deleted)
    forget()
    suffix = f" and {deleted - 1} below it" if deleted > 1 else ""
    return forms.done(request, "/", f"Deleted “{title_of(head)[:80]}”{suffix}")


async def _done(
    request: Request, caller: Caller, ref: str, text: str, *, reload: bool = False, sent: bool = False
) -> Response:
    """Show `text` on the page of the thread: as a toast with htmx, else after a redirect.

    With `sent`, the form that sent a message gets a new id.
    """
    head = await caller.store.thread(ref)
    add_log_fields(thread=head.id)
    forget()
    if not is_htmx_request(request) or reload:
        return forms.done(request, f"/threads/{head.id}", text)
    return render_page(request, caller, "toast.html", toast=text, sent=sent)


async def _row(request: Request, caller: Caller, ref: str, text: str) -> Response:
    """Render the current row, the counts, and `text` as a toast."""
    head: Thread = await caller.store.thread(ref)
    forget()
    if not is_htmx_request(request):
        return redirect_to(request, "/", text)
    filters = filters_of(request)
    shown: dict[str, Any] = {
        "row": (await with_cells(caller.store, await rows(caller.store, [head]), filters.shown))[0],
        "filters": filters,
        "columns": filters.shown,
        "toast": text,
        "bar": await navbar.bar_of(caller),
        "counts": await counts_of(caller.store),
    }
    return render_page(request, caller, "threads/action_result.html", oob=True, **shown)


def _result(call: OpenCall, number: int, form: Any, failed: bool) -> Json:
    written = str(form.get(f"raw.{number}", "")).strip()
    # The call that the form showed. If the thread now waits for another call, the store rejects the results.
    key = str(form.get(f"call.{number}", call.key))
    if failed:
        return {"tool_use_id": key, "content": written or "The user sent an error.", "is_error": True}
    if written:
        return {"tool_use_id": key, "content": written}
    value = filled(call.fields, f"field.{number}.", form)
    try:
        return {"tool_use_id": key, "content": codec.dumps(value).decode()}
    except LockstitchError as exc:
        raise Refused(f"The result is not valid: {exc}") from exc
