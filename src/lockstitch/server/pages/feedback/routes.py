"""The form of the feedback buttons: give, change and remove your own feedback on a run."""

from typing import Annotated, Literal

from fastapi import Form, Request
from starlette.responses import Response

from lockstitch.model import Json
from lockstitch.server.auth import FormWriter
from lockstitch.server.middleware import add_log_fields
from lockstitch.server.pages.common.render import is_htmx_request, redirect_to, render_page
from lockstitch.server.pages.feedback.view import change_own, feedback_on_run
from lockstitch.server.pages.navbar import page_router

router = page_router()

_SCORES = {"up": 1.0, "down": 0.0}


@router.post("/run/{ref}/feedback")
async def rate(
    request: Request,
    caller: FormWriter,
    ref: str,
    thumb: Annotated[Literal["up", "down", "none"] | None, Form()] = None,
    comment: Annotated[str, Form(max_length=20_000)] = "",
    place: Annotated[Literal["run", "thread"], Form()] = "run",
) -> Response:
    """Change the score or the comment of the caller's own feedback on a run. Without both, it is removed.

    `place` is the page that the form is on.
    """
    run = await caller.store.run(ref)
    add_log_fields(run=run.id, thread=run.thread_id)
    changes: Json = {"comment": comment.strip() or None} if thumb is None else {"score": _SCORES.get(thumb)}
    text = await change_own(caller, run, changes)
    if not is_htmx_request(request):
        return redirect_to(request, f"/threads/{run.thread_id}" if place == "thread" else f"/run/{run.id}", text)
    given = await feedback_on_run(caller, run)
    return render_page(request, caller, "feedback/form.html", given=given, place=place, announced=text)
