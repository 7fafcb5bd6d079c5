"""`ScheduleMethods`: the calls of `Client` for schedules."""

from datetime import datetime

from lockstitch.client.connection import part, without_none
from lockstitch.client.read_methods import ReadMethods
from lockstitch.model import Json, Schedule, Thread, format_time
from lockstitch.store.schedules import Missed


class ScheduleMethods(ReadMethods):
    """The operations of `Client` on schedules. `Store.schedules` has the same operations."""

    async def schedules(self, *, agent: str | None = None, limit: int = 100, after: str = "") -> list[Schedule]:
        """Return the schedules of the project, in the order of their names.

        Args:
            agent: Only schedules of this agent.
            limit: Maximum number of schedules.
            after: Name of the last schedule of the previous page.
        """
        parameters = without_none(agent=agent, limit=limit, after=after or None)
        return [Schedule.from_json(row) for row in await self._get("/api/schedules", **parameters)]

    async def schedule(self, name: str) -> Schedule:
        """Return a schedule.

        Args:
            name: Name of the schedule.

        Raises:
            NotFound: If the project has no such schedule.
        """
        return Schedule.from_json(await self._get(f"/api/schedules/{part(name)}"))

    async def add_schedule(
        self,
        agent: str,
        goal: str,
        *,
        name: str | None = None,
        cron: str | None = None,
        interval_seconds: int | None = None,
        time_zone: str = "UTC",
        missed: Missed = "once",
        title: str | None = None,
        user_id: str | None = None,
        priority: int = 0,
        extras: Json | None = None,
    ) -> Schedule:
        """Create a schedule and return it. At each tick, a worker starts a thread with the goal.

        Args:
            agent: Name of the agent that executes the threads.
            goal: Task of each thread, in words.
            name: Name of the schedule, unique within the project. None: the name of the agent.
            cron: Cron expression with five fields, for example `0 7 * * 1-5`.
            interval_seconds: Interval instead of a cron expression.
            time_zone: IANA time zone of the cron expression, for example `Europe/Berlin`.
            missed: Rule for ticks that passed while no worker ran: `once`, `skip` or `all`.
            title: Title of the threads for lists.
            user_id: Id of the user that the threads belong to.
            priority: Claim priority of the threads. Higher values first.
            extras: Additional data of an application, for the threads.

        Raises:
            Conflict: If the project has a schedule with this name.
            Refused: If a value is not valid.
        """
        body = without_none(
            agent=agent,
            goal=goal,
            name=name,
            cron=cron,
            interval_seconds=interval_seconds,
            time_zone=time_zone,
            missed=missed,
            title=title,
            user_id=user_id,
            priority=priority,
            extras=extras,
        )
        return Schedule.from_json(await self._connection.post("/api/schedules", body))

    async def edit_schedule(
        self,
        name: str,
        *,
        agent: str | None = None,
        goal: str | None = None,
        cron: str | None = None,
        interval_seconds: int | None = None,
        time_zone: str | None = None,
        missed: Missed | None = None,
        title: str | None = None,
        user_id: str | None = None,
        priority: int | None = None,
        extras: Json | None = None,
        updated_at: datetime | None = None,
    ) -> Schedule:
        """Change a schedule and return it. Its id, its name and its threads do not change.

        If the times change, the next tick is the first one after now by the new times. Ticks of the old times that no
        worker has started are dropped. Ticks of an interval count from the creation of the schedule.

        Args:
            name: Name of the schedule.
            agent: New agent. None, here and below: the value does not change.
            goal: New task of each thread.
            cron: New cron expression. It replaces an interval.
            interval_seconds: New interval. It replaces a cron expression.
            time_zone: New time zone of the cron expression.
            missed: New rule for ticks that passed while no worker ran.
            title: New title of the threads. Empty: none.
            user_id: New user of the threads. Empty: none.
            priority: New claim priority of the threads.
            extras: New data of an application, for the threads.
            updated_at: `updated_at` of the schedule as the caller read it. None: change the newest values.

        Raises:
            Conflict: If the schedule has changed since `updated_at`.
            NotFound: If the project has no such schedule.
            Refused: If a value is not valid. Nothing was changed.
        """
        body = without_none(
            agent=agent,
            goal=goal,
            cron=cron,
            interval_seconds=interval_seconds,
            time_zone=time_zone,
            missed=missed,
            title=title,
            user_id=user_id,
            priority=priority,
            extras=extras,
            updated_at=None if updated_at is None else format_time(updated_at),
        )
        return Schedule.from_json(await self._connection.ask("PATCH", f"/api/schedules/{part(name)}", body=body))

    async def pause_schedule(self, name: str) -> Schedule:
        """Stop a schedule until it is resumed, and return it. Threads that it has started continue.

        Args:
            name: Name of the schedule.

        Raises:
            NotFound: If the project has no such schedule.
        """
        return Schedule.from_json(await self._connection.post(f"/api/schedules/{part(name)}/pause"))

    async def resume_schedule(self, name: str) -> Schedule:
        """Continue a paused schedule with the next tick after now, and return it.

        Args:
            name: Name of the schedule.

        Raises:
            NotFound: If the project has no such schedule.
        """
        return Schedule.from_json(await self._connection.post(f"/api/schedules/{part(name)}/resume"))

    async def run_schedule(self, name: str) -> Thread:
        """Start a thread of a schedule now, and return it. The ticks do not change.

        Args:
            name: Name of the schedule.

        Raises:
            NotFound: If the project has no such schedule.
        """
        return Thread.from_json(await self._connection.post(f"/api/schedules/{part(name)}/run"))

    async def remove_schedule(self, name: str) -> Schedule:
        """Delete a schedule and return it. Its threads stay.

        Args:
            name: Name of the schedule.

        Raises:
            NotFound: If the project has no such schedule.
        """
        return Schedule.from_json(await self._connection.ask("DELETE", f"/api/schedules/{part(name)}"))
