"""The form of the feedback buttons: give, change and remove your own feedback on a run."""

from typing import Annotated, Literal

from fastapi import Form, Request
from starlette.responses import Response

from lockstitch.model import Run
from lockstitch.server.auth import Caller, FormWriter
from lockstitch.server.middleware import add_log_fields
from lockstitch.server.pages.common.render import is_htmx_request, redirect_to, render_page
from lockstitch.server.pages.feedback.view import THUMBS, feedback_on_run, own_id
from lockstitch.server.pages.navbar import page_router
from lockstitch.store.annotation import give_feedback

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
    text = await _change(caller, run, thumb, comment)
    if not is_htmx_request(request):
        return redirect_to(request, f"/threads/{run.thread_id}" if place == "thread" else f"/run/{run.id}", text)
    given = await feedback_on_run(caller, run)
    return render_page(request, caller, "feedback/form.html", given=given, place=place, announced=text)


async def _change(caller: Caller, run: Run, thumb: str | None, comment: str) -> str:
    """Store or remove the feedback. Return a message for the page."""
    stored = await caller.store.feedback.get_or_none(own_id(caller, run.thread_id, run.id))
    score = stored.score if stored is not None else None
    written = stored.comment if stored is not None else None
    if thumb is not None:
        score = _SCORES.get(thumb)
    else:
        written = comment.strip() or None
    if score is None and written is None:
        if stored is not None:
            await caller.store.feedback.delete(id=stored.id)
            await caller.store.audits.record(caller.actor, "delete feedback", str(run.id), name=THUMBS)
        return "Feedback removed"
    await give_feedback(caller.store, THUMBS, run=run.id, score=score, comment=written, user_id=caller.actor)
    await caller.store.audits.record(caller.actor, "give feedback", str(run.id), name=THUMBS, score=score)
    return "Feedback saved"
