"""`schedule`: add, list, edit, pause, resume, run and remove schedules."""

from typing import Annotated, cast, get_args

import typer
from rich.text import Text

from lockstitch.cli.options import AgentName, User, Yes, confirm, examples
from lockstitch.cli.render.output import TableColumn, age, one_line, time
from lockstitch.cli.session import Session, now, session_of
from lockstitch.errors import Refused
from lockstitch.model import Schedule
from lockstitch.model.moment import duration
from lockstitch.store.schedules import Missed
from lockstitch.store.threads import without_none
from lockstitch.sync import SyncStore

app = typer.Typer()
schedule = typer.Typer(
    name="schedule",
    help="Start threads by a cron expression or at an interval.",
    rich_markup_mode=None,
)
app.add_typer(schedule)

ScheduleName = Annotated[str, typer.Argument(metavar="NAME", help="The name of the schedule.", show_default=False)]

_ACTOR = "command line"


@schedule.command(
    epilog=examples(
        'lockstitch schedule add clerk --cron "0 7 * * 1-5" --tz Europe/Berlin --goal "Open the shop"',
        'lockstitch schedule add clerk --every 15m --name watch --missed skip --goal "Look for new orders"',
    )
)
def add(
    context: typer.Context,
    agent: AgentName,
    goal: Annotated[str, typer.Option(metavar="G", help="The goal of each thread.", show_default=False)],
    cron: Annotated[
        str | None,
        typer.Option(metavar="EXPRESSION", help="Five fields: minute, hour, day, month, weekday.", show_default=False),
    ] = None,
    every: Annotated[
        str | None, typer.Option(metavar="TIME", help="An interval instead: 90s, 15m, 12h, 7d.", show_default=False)
    ] = None,
    tz: Annotated[str, typer.Option(metavar="ZONE", help="The time zone of the cron expression.")] = "UTC",
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="The name. Default: the name of the agent.", show_default=False)
    ] = None,
    missed: Annotated[
        str, typer.Option(metavar="|".join(get_args(Missed)), help="Threads for ticks that no worker saw in time.")
    ] = "once",
    title: Annotated[str | None, typer.Option(metavar="T", help="The title of the threads.")] = None,
    priority: Annotated[int, typer.Option(metavar="N", help="Higher priorities come first.")] = 0,
    user: User = None,
) -> None:
    """Add a schedule. At each tick, a worker or a server with the app starts one thread with the goal.

    If no worker runs at a tick, --missed decides: once starts one thread for all missed ticks, all starts one for each,
    and skip starts none for a tick that is more than 60 seconds late.
    """
    session = session_of(context)
    if not goal.strip():
        raise Refused("The goal is empty.")
    _check_missed(missed)
    if session.app_name:
        session.app().agent(agent)
    with session.open(create=True) as store:
        added = store.schedules.add(
            agent,
            goal,
            name=name,
            cron=cron,
            every=None if every is None else duration(every, "--every"),
            time_zone=tz,
            missed=cast("Missed", missed),
            title=title,
            user_id=user,
            priority=priority,
        )
        _record(store, "add schedule", added)
    _show(session, added, "added")


@schedule.command("list", epilog=examples("lockstitch schedule list", "lockstitch schedule list --json"))
def list_(context: typer.Context) -> None:
    """List the schedules of the project with their next ticks."""
    session = session_of(context)
    with session.open() as store:
        schedules = store.schedules.all()
        project = store.project
    if session.json_output:
        session.out.json([each.as_json() for each in schedules])
        return
    if not schedules:
        session.out.note(f"Project {project} has no schedules. Add one with `lockstitch schedule add`.")
        return
    columns = [
        TableColumn("NAME", flexible=True),
        TableColumn("AGENT", flexible=True),
        TableColumn("TIMES"),
        TableColumn("MISSED"),
        TableColumn("NEXT"),
        TableColumn("LAST"),
    ]
    session.out.table(columns, [_row(each) for each in schedules])


@schedule.command(
    epilog=examples(
        'lockstitch schedule edit clerk --cron "30 6 * * 1-5"',
        'lockstitch schedule edit watch --every 30m --goal "Look for orders without a customer"',
    )
)
def edit(
    context: typer.Context,
    name: ScheduleName,
    agent: Annotated[
        str | None, typer.Option(metavar="AGENT", help="The agent of the threads.", show_default=False)
    ] = None,
    goal: Annotated[str | None, typer.Option(metavar="G", help="The goal of each thread.")] = None,
    cron: Annotated[
        str | None, typer.Option(metavar="EXPRESSION", help="A cron expression. It replaces an interval.")
    ] = None,
    every: Annotated[
        str | None, typer.Option(metavar="TIME", help="An interval. It replaces a cron expression.")
    ] = None,
    tz: Annotated[str | None, typer.Option(metavar="ZONE", help="The time zone of the cron expression.")] = None,
    missed: Annotated[
        str | None, typer.Option(metavar="|".join(get_args(Missed)), help="Threads for ticks that no worker saw.")
    ] = None,
    title: Annotated[str | None, typer.Option(metavar="T", help="The title of the threads. Empty: none.")] = None,
    priority: Annotated[int | None, typer.Option(metavar="N", help="Higher priorities come first.")] = None,
    user: Annotated[str | None, typer.Option(metavar="U", help="The user of the threads. Empty: none.")] = None,
) -> None:
    """Change a schedule. Only the values of the options that you pass change. Its threads do not change.

    If the times change, the next tick is the first one after now by the new times.
    """
    session = session_of(context)
    if missed is not None:
        _check_missed(missed)
    if agent is not None and session.app_name:
        session.app().agent(agent)
    fields = without_none(
        agent=agent, goal=goal, cron=cron, time_zone=tz, missed=missed, title=title, priority=priority, user_id=user
    )
    if every is not None:
        fields["every"] = duration(every, "--every")
    if not fields:
        raise Refused("Nothing to change. Pass at least one option, for example --cron or --goal.")
    with session.open() as store:
        edited = store.schedules.edit(name, **fields)
        _record(store, "edit schedule", edited)
    _show(session, edited, "changed")


@schedule.command(epilog=examples("lockstitch schedule pause clerk"))
def pause(context: typer.Context, name: ScheduleName) -> None:
    """Pause a schedule. Threads that it has started continue."""
    session = session_of(context)
    with session.open() as store:
        paused = store.schedules.pause(name)
        _record(store, "pause schedule", paused)
    _show(session, paused, "paused")


@schedule.command(epilog=examples("lockstitch schedule resume clerk"))
def resume(context: typer.Context, name: ScheduleName) -> None:
    """Resume a paused schedule with its next tick. The ticks of the pause do not count as missed."""
    session = session_of(context)
    with session.open() as store:
        resumed = store.schedules.resume(name)
        _record(store, "resume schedule", resumed)
    _show(session, resumed, "resumed")


@schedule.command(epilog=examples("lockstitch schedule run clerk"))
def run(context: typer.Context, name: ScheduleName) -> None:
    """Start a thread of a schedule now and print its id. The ticks do not change. A worker executes the thread."""
    session = session_of(context)
    with session.open() as store:
        thread = store.schedules.run_now(name)
    if session.json_output:
        session.out.json({"id": str(thread.id), "key": thread.key, "status": thread.status})
    else:
        session.out.line(str(thread.id))


@schedule.command(epilog=examples("lockstitch schedule remove clerk --yes"))
def remove(context: typer.Context, name: ScheduleName, yes: Yes = False) -> None:
    """Delete a schedule. Its threads stay."""
    session = session_of(context)
    with session.open() as store:
        if not confirm(f"Delete schedule {store.schedules.get(name).name}?", yes=yes):
            session.out.note("Nothing was deleted.")
            return
        removed = store.schedules.remove(name)
        _record(store, "remove schedule", removed)
    _show(session, removed, "deleted")


def _check_missed(missed: str) -> None:
    if missed not in get_args(Missed):
        raise Refused(f"--missed {missed!r} is not valid. Use one of: {', '.join(get_args(Missed))}.")


def _record(store: SyncStore, act: str, subject: Schedule) -> None:
    store.portal.call(store.async_store.audits.record(_ACTOR, act, subject.name))


def _show(session: Session, shown: Schedule, done: str) -> None:
    if session.json_output:
        session.out.json(shown.as_json())
        return
    following = f" Next tick: {time(shown.next_tick)}." if shown.next_tick is not None and done != "deleted" else ""
    session.out.line(f"Schedule {one_line(shown.name)} {done}.{following}")


def _row(shown: Schedule) -> list[str | Text]:
    following = Text("paused", style="yellow") if shown.paused else Text(time(shown.next_tick))
    last = age(shown.last_tick, now()) if shown.last_tick is not None else ""
    return [one_line(shown.name), one_line(shown.agent), shown.times, shown.missed, following, last]
