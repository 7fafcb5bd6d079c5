"""Schedules: add, list, change, pause, resume, run and remove them."""

from typing import Annotated

from fastapi import Path, Query
from pydantic import Field

from lockstitch.model import Json
from lockstitch.server.api import responses
from lockstitch.server.api.schemas import Body, ExactJSON, Limit, Name, TextParam, TimeParam, rows
from lockstitch.server.auth import Reader, Writer
from lockstitch.server.middleware import add_log_fields
from lockstitch.server.routing import LazyRouter
from lockstitch.store.schedules import Missed

router = LazyRouter(prefix="/api/schedules", tags=["schedules"], default_response_class=ExactJSON)

ScheduleName = Annotated[Name, Path(description="The name of a schedule.")]


Goal = Annotated[TextParam, Field(min_length=1)]
Cron = Annotated[TextParam, Field(max_length=1000)]
Seconds = Annotated[int, Field(ge=1, le=10**10)]
Label = Annotated[TextParam, Field(max_length=255)]
Priority = Annotated[int, Field(gt=-(2**31), lt=2**31)]


class NewSchedule(Body):
    """A new schedule. It has either a cron expression or an interval."""

    agent: Name
    goal: Goal
    name: Name | None = None
    cron: Cron | None = None
    interval_seconds: Seconds | None = None
    time_zone: Name = "UTC"
    missed: Missed = "once"
    title: Label | None = None
    user_id: Label | None = None
    priority: Priority = 0
    extras: Json | None = None


class ChangedSchedule(Body):
    """Changed fields of a schedule. Absent fields do not change."""

    agent: Name | None = None
    goal: Goal | None = None
    cron: Cron | None = None
    interval_seconds: Seconds | None = None
    time_zone: Name | None = None
    missed: Missed | None = None
    title: Annotated[Label | None, Field(description="Empty: none.")] = None
    user_id: Annotated[Label | None, Field(description="Empty: none.")] = None
    priority: Priority | None = None
    extras: Json | None = None
    updated_at: Annotated[
        TimeParam | None, Field(description="The value that you read. A later change is a conflict.")
    ] = None


@router.get("", response_model=list[responses.Schedule])
async def schedules(
    caller: Reader,
    agent: Annotated[TextParam | None, Query(max_length=255, description="Only schedules of this agent.")] = None,
    after: Annotated[TextParam, Query(max_length=255, description="The last name of the previous page.")] = "",
    limit: Limit = 100,
) -> ExactJSON:
    """List the schedules of the project, in the order of their names."""
    return ExactJSON(rows(await caller.store.schedules.all(agent=agent, limit=limit, after=after)))


@router.post("", status_code=201, response_model=responses.Schedule)
async def add(caller: Writer, body: NewSchedule) -> ExactJSON:
    """Add a schedule. At each tick, a worker starts a thread with the goal."""
    fields = body.model_dump(exclude={"agent", "goal", "interval_seconds"})
    schedule = await caller.store.schedules.add(body.agent, body.goal, every=body.interval_seconds, **fields)
    await caller.store.audits.record(caller.actor, "add schedule", schedule.name)
    return ExactJSON(schedule.as_json(), 201)


@router.get("/{name}", response_model=responses.Schedule)
async def schedule(caller: Reader, name: ScheduleName) -> ExactJSON:
    """Return a schedule."""
    return ExactJSON((await caller.store.schedules.get(name)).as_json())


@router.patch("/{name}", response_model=responses.Schedule)
async def edit(caller: Writer, name: ScheduleName, body: ChangedSchedule) -> ExactJSON:
    """Change a schedule. If its times change, the next tick is the first one after now by the new times."""
    fields = body.model_dump(exclude_unset=True, exclude={"interval_seconds"})
    edited = await caller.store.schedules.edit(name, every=body.interval_seconds, **fields)
    await caller.store.audits.record(caller.actor, "edit schedule", edited.name)
    return ExactJSON(edited.as_json())


@router.post("/{name}/pause", response_model=responses.Schedule)
async def pause(caller: Writer, name: ScheduleName) -> ExactJSON:
    """Pause a schedule. Threads that it has started continue."""
    paused = await caller.store.schedules.pause(name)
    await caller.store.audits.record(caller.actor, "pause schedule", paused.name)
    return ExactJSON(paused.as_json())


@router.post("/{name}/resume", response_model=responses.Schedule)
async def resume(caller: Writer, name: ScheduleName) -> ExactJSON:
    """Resume a paused schedule with its next tick. The ticks of the pause do not count as missed."""
    resumed = await caller.store.schedules.resume(name)
    await caller.store.audits.record(caller.actor, "resume schedule", resumed.name)
    return ExactJSON(resumed.as_json())


@router.post("/{name}/run", status_code=201, response_model=responses.Thread)
async def run(caller: Writer, name: ScheduleName) -> ExactJSON:
    """Start a thread of a schedule now and return it. The ticks do not change."""
    thread = await caller.store.schedules.run_now(name)
    add_log_fields(thread=thread.id)
    return ExactJSON(thread.as_json(), 201)


@router.delete("/{name}", response_model=responses.Schedule)
async def remove(caller: Writer, name: ScheduleName) -> ExactJSON:
    """Delete a schedule and return it. Its threads stay."""
    removed = await caller.store.schedules.remove(name)
    await caller.store.audits.record(caller.actor, "remove schedule", removed.name)
    return ExactJSON(removed.as_json())
