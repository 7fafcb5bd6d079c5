"""The page of schedules: list, add, change, pause, resume, run now and delete."""

from datetime import datetime
from typing import Annotated, Any

from fastapi import Form, Query, Request
from fastapi.responses import HTMLResponse
from starlette.responses import Response

from lockstitch.errors import Conflict, Refused
from lockstitch.model import Schedule, format_time
from lockstitch.model.moment import duration
from lockstitch.server.auth import Caller, FormWriter, Reader
from lockstitch.server.pages.common import forms
from lockstitch.server.pages.common.render import redirect_to, render_page
from lockstitch.server.pages.navbar import page_router
from lockstitch.store.schedules import Missed

router = page_router("/schedules")

_PAGE = 100
"""Maximum number of schedules on one page."""

_EMPTY = {"agent": "", "goal": "", "name": "", "cron": "", "every": "", "time_zone": "UTC", "missed": "once"}
"""The values of a form for a new schedule. The one of a change also has `updated_at`."""

ScheduleName = Annotated[str, Form(min_length=1, max_length=255)]


@router.get("", name="schedules")
async def schedules(
    request: Request,
    caller: Reader,
    after: Annotated[str, Query(max_length=255)] = "",
    edit: Annotated[str, Query(max_length=255)] = "",
) -> HTMLResponse:
    """Show the schedules, with a form for a new one or for the schedule in `edit`."""
    if not edit:
        return await _page(request, caller, after=after)
    schedule = await caller.store.schedules.get(edit)
    values = {field: getattr(schedule, field) for field in ("agent", "goal", "name", "time_zone", "missed")}
    every = schedule.times.removeprefix("every ") if schedule.interval_seconds else ""
    values |= {"cron": schedule.cron or "", "every": every, "updated_at": format_time(schedule.updated_at)}
    return await _page(request, caller, after=after, values=values)


@router.post("")
async def add(
    request: Request,
    caller: FormWriter,
    agent: ScheduleName,
    goal: Annotated[str, Form(max_length=100_000)],
    name: Annotated[str, Form(max_length=255)] = "",
    cron: Annotated[str, Form(max_length=1000)] = "",
    every: Annotated[str, Form(max_length=100)] = "",
    time_zone: Annotated[str, Form(max_length=255)] = "UTC",
    missed: Annotated[Missed, Form()] = "once",
) -> Response:
    """Add a schedule. If a value is not valid, show the form again with the values."""
    try:
        schedule = await caller.store.schedules.add(
            agent.strip(),
            goal.strip(),
            name=name.strip() or None,
            cron=cron.strip() or None,
            every=duration(every, "Interval") if every.strip() else None,
            time_zone=time_zone.strip() or "UTC",
            missed=missed,
        )
    except (Refused, Conflict) as exc:
        values = {"agent": agent, "goal": goal, "name": name, "cron": cron, "every": every}
        values |= {"time_zone": time_zone, "missed": missed}
        return await _page(request, caller, values=values, problem=str(exc))
    await caller.store.audits.record(caller.actor, "add schedule", schedule.name)
    return redirect_to(request, "/schedules", f"Added schedule “{schedule.name}”")


@router.post("/edit")
async def edit(
    request: Request,
    caller: FormWriter,
    name: ScheduleName,
    agent: ScheduleName,
    goal: Annotated[str, Form(max_length=100_000)],
    updated_at: Annotated[datetime, Form()],
    cron: Annotated[str, Form(max_length=1000)] = "",
    every: Annotated[str, Form(max_length=100)] = "",
    time_zone: Annotated[str, Form(max_length=255)] = "UTC",
    missed: Annotated[Missed, Form()] = "once",
) -> Response:
    """Change a schedule. If a value is not valid, or the schedule was changed since, show the form again."""
    try:
        await caller.store.schedules.edit(
            name,
            agent=agent.strip(),
            goal=goal.strip(),
            cron=cron.strip() or None,
            every=duration(every, "Interval") if every.strip() else None,
            time_zone=time_zone.strip() or "UTC",
            missed=missed,
            updated_at=updated_at,
        )
    except (Refused, Conflict) as exc:
        values = {"agent": agent, "goal": goal, "name": name, "cron": cron, "every": every, "time_zone": time_zone}
        values |= {"missed": missed, "updated_at": format_time(updated_at)}
        return await _page(request, caller, values=values, problem=str(exc))
    await caller.store.audits.record(caller.actor, "edit schedule", name)
    return redirect_to(request, "/schedules", f"Changed schedule “{name}”")


@router.post("/pause")
async def pause(request: Request, caller: FormWriter, name: ScheduleName) -> Response:
    await caller.store.schedules.pause(name)
    await caller.store.audits.record(caller.actor, "pause schedule", name)
    return redirect_to(request, "/schedules", f"Paused schedule “{name}”")


@router.post("/resume")
async def resume(request: Request, caller: FormWriter, name: ScheduleName) -> Response:
    await caller.store.schedules.resume(name)
    await caller.store.audits.record(caller.actor, "resume schedule", name)
    return redirect_to(request, "/schedules", f"Resumed schedule “{name}”")


@router.post("/run")
async def run(request: Request, caller: FormWriter, name: ScheduleName) -> Response:
    thread = await caller.store.schedules.run_now(name)
    return redirect_to(request, f"/threads/{thread.id}", f"Started a thread of schedule “{name}”")


@router.post("/delete")
async def delete(request: Request, caller: FormWriter, name: ScheduleName) -> Response:
    await caller.store.schedules.remove(name)
    await caller.store.audits.record(caller.actor, "remove schedule", name)
    return redirect_to(request, "/schedules", f"Deleted schedule “{name}”")


async def _page(
    request: Request,
    caller: Caller,
    *,
    after: str = "",
    values: dict[str, Any] | None = None,
    problem: str = "",
) -> HTMLResponse:
    found = await caller.store.schedules.all(limit=_PAGE + 1, after=after)
    shown: list[Schedule] = found[:_PAGE]
    last_ids = [schedule.last_thread_id for schedule in shown if schedule.last_thread_id is not None]
    # A thread may have been deleted since.
    last_threads = await caller.store.threads_by_id(last_ids)
    stored = await caller.store.agents.list(limit=_PAGE, project=caller.project)
    return render_page(
        request,
        caller,
        "schedules/schedules.html",
        schedules=shown,
        last_threads=last_threads,
        next_page=shown[-1].name if len(found) > _PAGE else "",
        agents=sorted({*forms.agents_of(caller), *(agent.name for agent in stored)}),
        values={**_EMPTY, **(values or {})},
        problem=problem,
    )
