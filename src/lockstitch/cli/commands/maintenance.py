"""`archive`, `purge`, `delete`, `migrate`, `doctor`."""

from typing import Annotated

import typer

from lockstitch.cli import options
from lockstitch.cli.options import Force, ThreadName, Yes, confirm, examples
from lockstitch.cli.render.output import plural, time
from lockstitch.cli.render.threads import name_of
from lockstitch.cli.session import Session, now, session_of
from lockstitch.errors import Refused
from lockstitch.store import DoctorReport

app = typer.Typer()


@app.command(epilog=examples("lockstitch archive --older-than 30d"))
def archive(
    context: typer.Context,
    older_than: Annotated[
        str,
        typer.Option(metavar="TIME", help="Turns that ended before: 12h or 30d ago, or a date.", show_default=False),
    ],
) -> None:
    """Compress old turns that no context needs. All commands can still read them."""
    session = session_of(context)
    before = options.moment(older_than, now(), "--older-than")
    with session.open() as store:
        turns = store.archive(before)
    if session.json_output:
        session.out.json({"turns": turns})
    else:
        session.out.line(f"Archived {plural(turns, 'turn')}.")


@app.command(
    epilog=examples(
        "lockstitch purge --older-than 90d", "lockstitch purge --user ada --yes", "lockstitch purge --expired"
    )
)
def purge(
    context: typer.Context,
    older_than: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Trees idle since: 12h or 90d ago, or a date. Includes expired trees."),
    ] = None,
    user: Annotated[
        str | None, typer.Option(metavar="U", help="All data of this user, also of active threads.")
    ] = None,
    expired: Annotated[bool, typer.Option("--expired", help="Idle trees that have expired.")] = False,
    force: Force = False,
    yes: Yes = False,
) -> None:
    """Delete whole trees of threads with all their data. The daily totals keep their figures."""
    session = session_of(context)
    if user is not None and (older_than or expired):
        raise Refused("--user cannot be combined with --older-than or --expired.")
    if force and user is None:
        raise Refused("--force needs --user. Active threads are never purged by age.")
    if user is None and not older_than and not expired:
        raise Refused("Choose what to purge: --older-than TIME, --expired or --user U.")
    before = options.moment_or_none(older_than, now(), "--older-than")
    what = f"all data of user {user}" if user else f"threads idle since {time(before)}" if before else "expired threads"
    with session.open() as store:
        if not confirm(f"Delete {what} in project {session.project}?", yes=yes):
            _nothing(session)
            return
        threads = store.purge(before=before, user_id=user, force=force)
    _deleted(session, threads)


@app.command(epilog=examples("lockstitch delete customer-42", "lockstitch delete customer-42 --yes"))
def delete(context: typer.Context, thread: ThreadName, force: Force = False, yes: Yes = False) -> None:
    """Delete a thread, its descendants and all their data."""
    session = session_of(context)
    with session.open() as store:
        tree = store.tree(thread)
        name = f" ({name_of(tree[0])})" if name_of(tree[0]) else ""
        below = f" and {plural(len(tree) - 1, 'descendant')}" if len(tree) > 1 else ""
        if not confirm(f"Delete thread {tree[0].id}{name}{below}?", yes=yes):
            _nothing(session)
            return
        threads = store.delete(tree[0], force=force)
    _deleted(session, threads)


def _deleted(session: Session, threads: int) -> None:
    if session.json_output:
        session.out.json({"threads": threads})
    else:
        session.out.line(f"Deleted {plural(threads, 'thread')}.")


def _nothing(session: Session) -> None:
    session.out.note("Nothing was deleted.")
    raise typer.Exit(1)


@app.command(epilog=examples("lockstitch migrate --store postgresql://localhost/agents"))
def migrate(context: typer.Context) -> None:
    """Upgrade a store to this version in place, or create it."""
    session = session_of(context)
    with session.open(create=True) as store:
        version = store.migrate()
    if session.json_output:
        session.out.json({"version": version})
    else:
        session.out.line(f"The store is at schema version {version}.")


@app.command(epilog=examples("lockstitch doctor --verify", "lockstitch doctor --verify --json | jq .problems"))
def doctor(
    context: typer.Context,
    verify: Annotated[bool, typer.Option("--verify", help="Read and check all data.")] = False,
) -> None:
    """Check a store. The exit code is 1 if there is a problem.

    With --verify it checks that positions have no gaps, fences never decrease, each call has one result, and contexts
    can be computed. In a file store it also rebuilds the readable files from the log.
    """
    session = session_of(context)
    with session.open() as store:
        report = store.verify() if verify else store.counts()
        rebuilt = store.rebuild_files()
    if session.json_output:
        session.out.json(report.as_json())
    else:
        _print(session, report, verified=verify, rebuilt=rebuilt)
    if not report.ok:
        raise typer.Exit(1)


def _print(session: Session, report: DoctorReport, *, verified: bool, rebuilt: bool) -> None:
    out = session.out
    scope = f"{plural(report.threads, 'thread')}, {plural(report.stitches, 'stitch', 'stitches')}"
    for problem in report.problems:
        out.line(f"{problem['thread']}  {problem['kind']}", style="bold red")
        out.line(str(problem["detail"]), indent=4)
    if not verified:
        out.line(f"{scope}. Use --verify to check them.")
    elif report.ok:
        out.line(f"No problems found in {scope}.", style="green")
    else:
        out.line(f"{plural(len(report.problems), 'problem')} in {scope}.", style="red")
    if rebuilt:
        out.line("Rebuilt agent_config and conversation_history from the log.", style="dim")
