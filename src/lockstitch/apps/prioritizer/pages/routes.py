"""Routes of the pages of plans."""

from collections.abc import Awaitable
from typing import Annotated, Any, Final
from uuid import UUID

from fastapi import APIRouter, File, Form, Query, Request, UploadFile
from starlette.responses import Response

from lockstitch import NotFound, Refused, Store
from lockstitch.apps.prioritizer import repository
from lockstitch.apps.prioritizer.models import TaskDependency
from lockstitch.apps.prioritizer.pages import views
from lockstitch.apps.prioritizer.pages.diagram import Card, PlanDiagram
from lockstitch.apps.prioritizer.pages.text import hours, label
from lockstitch.apps.prioritizer.pages.views import markdown
from lockstitch.apps.prioritizer.plugin import Prioritizer, SessionRunning
from lockstitch.apps.prioritizer.records import Session
from lockstitch.apps.prioritizer.repository import LONGEST
from lockstitch.apps.prioritizer.sessions import metadata_of
from lockstitch.ext import codec
from lockstitch.server import (
    Caller,
    FormWriter,
    Problem,
    Reader,
    TextParam,
    ThreadRefParam,
    is_htmx_request,
    plugin_of,
    redirect_to,
    render_page,
)

PASTED: Final = "Tasks.md"
"""File name of a list that was entered on the page. The next list replaces it."""


async def make_plan(
    prioritizer: Prioritizer, store: Store, user: str, outcome: str, content: bytes, name: str, *, replace: bool
) -> UUID:
    """Start a session for a list of tasks. One transaction writes the outcome, the documents and the session."""
    read = await repository.read_file(store, user, content, name)
    wanted = repository.new_outcome(store, user, outcome)
    session = await prioritizer.start(
        store,
        user,
        wanted,
        documents=[document.id for document in read.documents],
        replace=replace,
        records=[wanted, *read.records],
        task_count=read.task_count,
    )
    await repository.drop_stale(store, read)
    return session.thread_id


async def keep_dependency(prioritizer: Prioritizer, store: Store, session: Session, dropped: TaskDependency) -> UUID:
    """Store a dependency with full confidence and plan again."""
    ends = dropped.source_task_id, dropped.target_task_id
    await repository.add_relationship(store, session.user_id, *ends, dropped.relationship_type)
    return await prioritizer.restart(store, session)


router = APIRouter(include_in_schema=False)

ThePrioritizer = Annotated[Prioritizer, plugin_of(Prioritizer)]

EXAMPLE: Final = """- [ ] T1: Choose the payment provider (3h)
- [ ] T2: Payment form with 3-D Secure (8h) (after: T1)
- [ ] T3: Receipts and invoices (5h) (after: T2)"""

NAMES: Final = 255

Words = Annotated[TextParam, Query(max_length=300)]


@router.get("/plans")
async def plans(request: Request, caller: Reader, after: Annotated[UUID | None, Query()] = None) -> Response:
    """Show the latest plans of the project, or the plans after a given one."""
    rows, last = await views.listed(caller.store, after)
    return render_page(request, caller, "prioritizer/list.html", rows=rows, last=last, after=after)


@router.get("/plans/new")
async def new(request: Request, caller: Reader, prioritizer: ThePrioritizer) -> Response:
    return _form(request, caller, prioritizer, {"outcome": "", "tasks": "", "user": caller.actor})


@router.post("/plans")
async def make(
    request: Request,
    caller: FormWriter,
    prioritizer: ThePrioritizer,
    outcome: Annotated[TextParam, Form()] = "",
    user: Annotated[TextParam, Form()] = "",
    tasks: Annotated[TextParam, Form()] = "",
    file: Annotated[UploadFile | None, File()] = None,
    replace: Annotated[bool, Form()] = False,
) -> Response:
    """Start a plan for entered tasks or a file. If they are not valid, show the form again with the reason."""
    text_params = {"outcome": outcome, "tasks": tasks, "user": user}
    name, content = PASTED, tasks.encode()
    if file is not None and file.filename:
        name, content = file.filename, await file.read()
    try:
        _check(outcome, user, content)
        started = await make_plan(
            prioritizer,
            caller.store,
            user.strip(),
            outcome,
            content,
            codec.check_text(name, "The file name"),
            replace=replace,
        )
    except Refused as exc:
        return _form(request, caller, prioritizer, text_params, str(exc), 422)
    except SessionRunning as exc:
        return _form(request, caller, prioritizer, text_params, str(exc), 409)
    return redirect_to(request, f"/plans/{started}")


@router.get("/plans/{ref}")
async def plan(request: Request, caller: Reader, ref: ThreadRefParam, task: Words = "", q: Words = "") -> Response:
    """Show a plan, or its reasoning so far. An htmx request gets the part without the frame."""
    result = await views.load_plan_page(caller.store, ref)
    template = "prioritizer/plan_content.html" if is_htmx_request(request) else "prioritizer/plan.html"
    trace = await views.trace(caller.store, result)
    return render_page(request, caller, template, **_shown(result, task, q), trace=trace)


@router.get("/plans/{ref}/task")
async def chosen(request: Request, caller: Reader, ref: ThreadRefParam, task: Words) -> Response:
    """Show one task of a plan."""
    result = await views.load_plan_page(caller.store, ref)
    if result.diagram is None or task not in result.diagram.cards:
        raise NotFound("Task not found in this plan.")
    return render_page(request, caller, "prioritizer/chosen.html", **_shown(result, task, ""))


@router.get("/plans/{ref}/trace")
async def steps(request: Request, caller: Reader, ref: ThreadRefParam) -> Response:
    """Show the reasoning so far."""
    result = await views.load_plan_page(caller.store, ref)
    trace = await views.trace(caller.store, result)
    return render_page(request, caller, "prioritizer/trace.html", shown=result.shown, trace=trace)


@router.get("/plans/{ref}/plan.md")
async def exported(caller: Reader, ref: ThreadRefParam) -> Response:
    """Return a plan as Markdown."""
    result = await views.load_plan_page(caller.store, ref)
    if result.diagram is None:
        raise Problem(409, "No plan", f"This session is {result.shown.status} and has no plan.")
    headers = {"Content-Disposition": 'attachment; filename="plan.md"'}
    return Response(markdown(result.shown, result.diagram), headers=headers, media_type="text/markdown; charset=utf-8")


@router.post("/plans/{ref}/again")
async def again(request: Request, caller: FormWriter, prioritizer: ThePrioritizer, ref: ThreadRefParam) -> Response:
    """Plan the same tasks for the same outcome again."""
    session = await views.session_named(caller.store, ref)
    return await _redirect_to_plan(request, prioritizer.restart(caller.store, session))


@router.post("/plans/{ref}/keep")
async def keep(
    request: Request,
    caller: FormWriter,
    prioritizer: ThePrioritizer,
    ref: ThreadRefParam,
    cycle: Annotated[int, Form(ge=0)],
) -> Response:
    """Store the removed dependency of a cycle and plan again, so that another dependency is removed."""
    session = await views.session_named(caller.store, ref)
    broken = metadata_of(session).broken_cycles
    if cycle >= len(broken):
        raise NotFound("Cycle not found in this plan.")
    return await _redirect_to_plan(request, keep_dependency(prioritizer, caller.store, session, broken[cycle].dropped))


async def _redirect_to_plan(request: Request, start: Awaitable[UUID]) -> Response:
    """Redirect to the new plan, or to the plan that is running already, for example from another tab."""
    try:
        return redirect_to(request, f"/plans/{await start}")
    except SessionRunning as exc:
        if exc.thread_id is None:
            raise
        return redirect_to(request, f"/plans/{exc.thread_id}", "This plan is still running. No other plan was started.")


def _check(outcome: str, user: str, content: bytes) -> None:
    """Raise `Refused` if an input is missing or too long."""
    if not outcome.strip() or len(outcome) > LONGEST:
        raise Refused(f"Enter an outcome of at most {LONGEST:,} characters.")
    if not user.strip() or len(user) > NAMES:
        raise Refused(f"Enter a user name of at most {NAMES} characters.")
    if not content.strip():
        raise Refused("Enter tasks or choose a file.")


def _form(
    request: Request,
    caller: Caller,
    prioritizer: Prioritizer,
    values: dict[str, str],
    wrong: str = "",
    status: int = 200,
) -> Response:
    shown: dict[str, Any] = {"given": values, "wrong": wrong, "example": EXAMPLE, "running": status == 409}
    latest = prioritizer.sessions == "latest"
    return render_page(request, caller, "prioritizer/new.html", status=status, latest=latest, **shown)


def _shown(result: views.PlanPage, task: str, q: str) -> dict[str, Any]:
    """Return the template variables of a plan."""
    plan_diagram = result.diagram
    words = q.lower().split()
    return {
        "shown": result.shown,
        "diagram": plan_diagram,
        "chosen": _chosen(plan_diagram, task),
        "q": q,
        "found": {card.id for card in plan_diagram.cards.values() if all(word in card.words for word in words)}
        if plan_diagram is not None
        else set[str](),
        "hours": hours,
        "label": label,
    }


def _chosen(plan_diagram: PlanDiagram | None, task: str) -> Card | None:
    if plan_diagram is None:
        return None
    return plan_diagram.cards.get(task) or plan_diagram.first
