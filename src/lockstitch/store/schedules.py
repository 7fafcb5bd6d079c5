"""`Schedules`: add, change, pause and remove schedules, and start the threads of due ticks.

**A tick starts one thread.** The transaction that creates the thread moves `next_tick` forward, if it is as the worker
read it. So of many workers one succeeds, and a process that is killed leaves either both or neither. The id of the
thread is derived from the schedule and the tick, which also excludes a second thread after a schedule was restored from
a backup.

**A change is not lost.** A change by a user compares `updated_at` and `next_tick`, and so does the transaction of a
tick. If another user or a worker was faster, the change is computed again from the newest values. So a tick never
starts a thread with values that were changed before, and no change makes a tick happen twice.
"""

import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Literal, NamedTuple
from uuid import UUID, uuid5

from lockstitch.backend import Find, Where
from lockstitch.errors import Conflict, NotFound, Refused
from lockstitch.model import Json, Schedule, Thread, format_time, new_id
from lockstitch.model.ticks import check_times, due_ticks, tick_after
from lockstitch.store.core import StoreCore
from lockstitch.store.threads import without_none
from lockstitch.store.transaction import Transaction

# The modules of this package share the backend of a store.
# pyright: reportPrivateUsage=false

_COMPARED: Final = ("id", "next_tick", "updated_at")
"""Fields that changes and ticks compare. Each tick and each change writes at least one of them."""

_TIMES: Final = frozenset({"cron", "interval_seconds", "time_zone"})
"""Fields that the ticks depend on."""

_AT_ONCE: Final = 100
"""Number of schedules that one search reads."""

_IN_TURN: Final = ("next_tick", *Schedule.primary_key)
"""The order in which the ticks of schedules are started."""

Missed = Literal["once", "skip", "all"]
"""The rule for ticks that passed while no worker ran."""

_ATTEMPTS: Final = 20
"""Number of times that a change is computed again. Each time another writer has succeeded."""

_log = logging.getLogger("lockstitch")


class DueResult(NamedTuple):
    """The result of `Schedules.start_due`."""

    threads: list[Thread]
    """The threads that this call has started."""
    seconds: float | None
    """Seconds until the next tick of any schedule; 0 if more ticks are due. None if no schedule has a next tick."""


class Schedules:
    """The schedules of one project. Safe to use from many tasks and many processes."""

    def __init__(self, store: StoreCore) -> None:
        self._store = store
        self._backend = store._backend

    async def add(
        self,
        agent: str,
        goal: str,
        *,
        name: str | None = None,
        cron: str | None = None,
        every: timedelta | float | None = None,
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
            every: Interval instead of a cron expression, as a duration or in seconds. At least one second.
            time_zone: IANA time zone of the cron expression, for example `Europe/Berlin`.
            missed: Rule for ticks that passed while no worker ran. `once`: one thread for all of them. `skip`: no
                thread for a tick that is more than 60 seconds late. `all`: one thread for each.
            title: Title of the threads for lists.
            user_id: Id of the user that the threads belong to.
            priority: Claim priority of the threads. Higher values first.
            extras: Additional data of an application, for the threads.

        Raises:
            Conflict: If the project has a schedule with this name.
            Refused: If a value is not valid.
        """
        chosen = agent if name is None else name
        if "/" in chosen or chosen in (".", "..") or not chosen.strip() or not chosen.isprintable():
            raise Refused(
                f"The name {chosen!r} is not valid for a schedule, because it is a part of URLs. It cannot be empty, "
                "`.` or `..`, and cannot have `/` or a line break."
            )
        # Ticks of an interval are at whole seconds after this time.
        now = self._store.clock.now().replace(microsecond=0)
        fields = without_none(
            name=chosen,
            cron=None if cron is None else " ".join(cron.split()),
            interval_seconds=whole_seconds(every),
            title=title,
            user_id=user_id,
            extras=extras,
        )
        schedule = check_times(
            Schedule(
                project=self._store.project,
                agent=agent,
                goal=goal,
                time_zone=time_zone,
                missed=missed,
                priority=priority,
                created_at=now,
                updated_at=now,
                **fields,
            )
        )
        schedule = schedule.changed(next_tick=tick_after(schedule, self._store.clock.now()))
        # Fail now, and not at the first tick.
        self._thread(schedule, None)
        try:
            await self._backend.put([schedule], new=True)
        except Conflict as exc:
            raise Conflict(
                f"Schedule {schedule.name} already exists in project {schedule.project}. Nothing was written. "
                "Choose another name, or remove that schedule first."
            ) from exc
        return schedule

    async def get(self, name: str) -> Schedule:
        """Return a schedule.

        Args:
            name: Name of the schedule.

        Raises:
            NotFound: If the project has no such schedule.
        """
        schedule = await self._backend.get(Schedule, (self._store.project, name))
        if schedule is None:
            raise NotFound(f"Schedule {name} not found in project {self._store.project}.")
        return schedule

    async def all(self, *, agent: str | None = None, limit: int | None = None, after: str = "") -> list[Schedule]:
        """Return the schedules of the project, in the order of their names.

        Args:
            agent: Only schedules of this agent.
            limit: Maximum number of schedules. None: all.
            after: Only schedules whose names come after this one.
        """
        where = [Where("project", "=", self._store.project), Where("name", ">", after)]
        if agent is not None:
            where.append(Where("agent", "=", agent))
        return await self._backend.find(Find(Schedule, where, order=("name",), limit=limit))

    async def edit(
        self,
        name: str,
        *,
        agent: str | None = None,
        goal: str | None = None,
        cron: str | None = None,
        every: timedelta | float | None = None,
        time_zone: str | None = None,
        missed: Missed | None = None,
        title: str | None = None,
        user_id: str | None = None,
        priority: int | None = None,
        extras: Json | None = None,
        updated_at: datetime | None = None,
    ) -> Schedule:
        """Change a schedule and return it. Its id, its name and its threads stay.

        If the times change, the next tick is the first one after now by the new times. Ticks of the old times that no
        worker has started are dropped. Ticks of an interval count from the creation of the schedule.

        Args:
            name: Name of the schedule.
            agent: New agent. None, here and below: the value stays.
            goal: New task of each thread.
            cron: New cron expression. It replaces an interval.
            every: New interval. It replaces a cron expression.
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
        if cron is not None and every is not None:
            raise Refused("A schedule has either a cron expression or an interval. Set one of them.")
        changes = without_none(
            agent=agent, goal=goal, time_zone=time_zone, missed=missed, priority=priority, extras=extras
        )
        changes |= {field: text or None for field, text in without_none(title=title, user_id=user_id).items()}
        if cron is not None:
            changes |= {"cron": " ".join(cron.split()), "interval_seconds": None}
        if every is not None:
            changes |= {"cron": None, "interval_seconds": whole_seconds(every)}

        def edited(schedule: Schedule) -> dict[str, Any]:
            if updated_at is not None and schedule.updated_at != updated_at:
                raise Conflict(
                    f"Schedule {name} was changed since you read it. Nothing was written. Read it again and repeat "
                    "your change."
                )
            values = schedule.validate_fields(changes)
            values = {field: value for field, value in values.items() if getattr(schedule, field) != value}
            changed = schedule.changed(**values)
            if _TIMES.isdisjoint(values):
                # Fail now, and not at the next tick.
                self._thread(changed, None)
                return values
            return values | self._next(check_times(changed))

        return await self._change(name, edited)

    async def pause(self, name: str) -> Schedule:
        """Stop a schedule until it is resumed, and return it. Threads that it has started continue.

        Args:
            name: Name of the schedule.

        Raises:
            NotFound: If the project has no such schedule.
        """
        return await self._change(name, lambda _: {"paused": True, "next_tick": None})

    async def resume(self, name: str) -> Schedule:
        """Continue a paused schedule with the next tick after now, and return it. The ticks of the pause do not count
        as missed.

        Args:
            name: Name of the schedule.

        Raises:
            NotFound: If the project has no such schedule.
        """

        def resumed(schedule: Schedule) -> dict[str, Any]:
            if not schedule.paused:
                return {}
            return {"paused": False, **self._next(schedule.changed(paused=False))}

        return await self._change(name, resumed)

    async def run_now(self, name: str) -> Thread:
        """Start a thread of a schedule now, also of a paused one, and return it. Its ticks do not change.

        Args:
            name: Name of the schedule.

        Raises:
            NotFound: If the project has no such schedule.
        """
        schedule = await self.get(name)
        thread = self._thread(schedule, None)
        transaction = Transaction(new_threads=[thread])
        transaction.change(schedule, {"last_thread_id": thread.id}, seen=("id",))
        await self._store.commit(transaction)
        return thread

    async def remove(self, name: str) -> Schedule:
        """Delete a schedule and return it. Its threads stay.

        Args:
            name: Name of the schedule.

        Raises:
            NotFound: If the project has no such schedule.
        """
        schedule = await self.get(name)
        where = (Where("project", "=", schedule.project), Where("name", "=", name), Where("id", "=", schedule.id))
        await self._backend.delete(Find(Schedule, where))
        return schedule

    async def start_due(self, *, all_projects: bool = False) -> DueResult:
        """Start the threads of all ticks that are due. Workers call this; it is safe to call anywhere, at any time.

        A schedule that cannot be computed here, for example because its time zone is unknown, is logged and left.

        Args:
            all_projects: Also start the threads of other projects.
        """
        where = [Where("next_tick", "is not null")]
        if not all_projects:
            where.append(Where("project", "=", self._store.project))
        now = self._store.clock.now()
        threads: list[Thread] = []
        again = False
        last: Schedule | None = None
        while True:
            after = None if last is None else [getattr(last, field) for field in _IN_TURN]
            schedules = await self._backend.find(Find(Schedule, where, order=_IN_TURN, after=after, limit=_AT_ONCE))
            for schedule in schedules:
                if schedule.next_tick is not None and schedule.next_tick > now:
                    return DueResult(threads, 0.0 if again else (schedule.next_tick - now).total_seconds())
                try:
                    threads += await self._start_ticks(schedule, now)
                    again = True
                except Refused as exc:
                    _log.warning("Schedule %s of project %s not started: %s", schedule.name, schedule.project, exc)
            if again or len(schedules) < _AT_ONCE:
                return DueResult(threads, 0.0 if again else None)
            # None of these can be computed here. They must not keep later schedules from starting.
            last = schedules[-1]

    async def _start_ticks(self, schedule: Schedule, now: datetime) -> Sequence[Thread]:
        """Start the threads of the due ticks of a schedule, in one commit. Empty if another worker has done it."""
        due = due_ticks(schedule, now)
        known = await self._known([_thread_id(schedule, tick) for tick in due.starts]) if due.starts else set[UUID]()
        ticks = [tick for tick in due.starts if _thread_id(schedule, tick) not in known]
        threads = [self._thread(schedule, tick) for tick in ticks]
        transaction = Transaction(new_threads=threads)
        fields: dict[str, Any] = {"next_tick": due.next_tick}
        if threads:
            fields |= {"last_tick": ticks[-1], "last_thread_id": threads[-1].id}
        transaction.change(schedule, fields, seen=_COMPARED)
        try:
            await self._store.commit(transaction)
        except Conflict:
            return ()
        return threads

    async def _known(self, ids: Sequence[UUID]) -> set[UUID]:
        """Return the ids that threads have. A schedule that was restored from a backup repeats ticks."""
        return {thread.id for thread in await self._backend.find(Find(Thread, (Where("id", "in", ids),)))}

    async def _change(self, name: str, changes: Callable[[Schedule], dict[str, Any]]) -> Schedule:
        """Change a schedule. `changes` returns the new values for a schedule, again if it has changed since."""
        attempt = 0
        while True:
            schedule = await self.get(name)
            fields = changes(schedule)
            if not fields:
                return schedule
            # Two changes at the same time, or after the clock was set back, also differ.
            fields["updated_at"] = max(self._store.clock.now(), schedule.updated_at + timedelta(microseconds=1))
            transaction = Transaction()
            transaction.change(schedule, fields, seen=_COMPARED)
            try:
                await self._store.commit(transaction)
            except Conflict:
                attempt += 1
                if attempt == _ATTEMPTS:
                    raise
            else:
                return schedule.changed(**fields)

    def _next(self, schedule: Schedule) -> dict[str, Any]:
        """Return the next tick after now, as a field."""
        if schedule.paused:
            return {"next_tick": None}
        # If the clock was set back, the ticks up to the last one have already happened.
        now = max(self._store.clock.now(), schedule.last_tick or schedule.created_at)
        return {"next_tick": tick_after(schedule, now)}

    def _thread(self, schedule: Schedule, tick: datetime | None) -> Thread:
        """Return the thread of a tick. None: of a start by a user."""
        about: Json = {
            "id": str(schedule.id),
            "name": schedule.name,
            "tick": None if tick is None else format_time(tick),
        }
        return self._store._new_thread(
            {
                "id": new_id() if tick is None else _thread_id(schedule, tick),
                "project": schedule.project,
                "kind": "goal",
                "agent": schedule.agent,
                "goal": schedule.goal,
                "title": schedule.title,
                "user_id": schedule.user_id,
                "priority": schedule.priority,
                "extras": schedule.extras,
                "state": {"schedule": about},
            }
        )


def whole_seconds(every: timedelta | float | None) -> int | None:
    """Return an interval in seconds. Raises `Refused` if they are not whole."""
    seconds = every.total_seconds() if isinstance(every, timedelta) else every
    if seconds is not None and seconds != int(seconds):
        raise Refused(f"The interval of a schedule has whole seconds, not {seconds}.")
    return None if seconds is None else int(seconds)


def _thread_id(schedule: Schedule, tick: datetime) -> UUID:
    return uuid5(schedule.id, format_time(tick))
