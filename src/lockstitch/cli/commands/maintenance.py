"""`archive`, `restore`, `purge`, `delete`, `migrate`, `doctor`."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated

import typer

from lockstitch.cli.exit_codes import ExitCode
from lockstitch.cli.options import Force, Yes, confirm, examples
from lockstitch.cli.references import find_thread
from lockstitch.cli.render.output import TableColumn, age, plural, time
from lockstitch.cli.render.threads import name_of, shown_id, status_word
from lockstitch.cli.selection import DryRun, Outcome, Selection, SinceFilter, StatusFilter, ThreadNames, finish
from lockstitch.cli.session import Session, now, session_of
from lockstitch.errors import NotFound, Refused
from lockstitch.model import Thread
from lockstitch.model.moment import moment, moment_or_none
from lockstitch.store import DoctorReport, LakeArchiveReport
from lockstitch.sync import SyncStore

app = typer.Typer()


@app.command(
    epilog=examples("lockstitch archive --older-than 30d", "lockstitch archive --older-than 90d --to s3://bucket/lake")
)
def archive(
    context: typer.Context,
    older_than: Annotated[
        str,
        typer.Option(metavar="TIME", help="Turns that ended before: 12h or 30d ago, or a date.", show_default=False),
    ],
    to: Annotated[
        str | None,
        typer.Option(
            metavar="TARGET", help="Remove the turns that this lake has: a folder, or a URL such as s3://bucket/folder."
        ),
    ] = None,
) -> None:
    """Compress old turns that no context needs. All commands can still read them.

    With --to, only the lake keeps the turns. Run `lockstitch lake sync TARGET` before: turns that the lake does not
    have exactly stay in the store. `lockstitch restore` brings turns back.
    """
    session = session_of(context)
    before = moment(older_than, now(), "--older-than")
    with session.open() as store:
        if to is not None:
            _archived_to_lake(session, to, store.archive_to_lake(to, before))
            return
        turns = store.archive(before)
    if session.json_output:
        session.out.json({"turns": turns})
    else:
        session.out.line(f"Archived {plural(turns, 'turn')}.")


def _archived_to_lake(session: Session, target: str, report: LakeArchiveReport) -> None:
    if session.json_output:
        session.out.json({"turns": report.turns, "remaining": report.remaining})
        return
    session.out.line(f"Archived {plural(report.turns, 'turn')} to the lake.")
    if report.remaining:
        turns = plural(report.remaining, "turn")
        session.out.note(f"{turns} not archived: the lake does not have them. Run: lockstitch lake sync {target}")


@app.command(epilog=examples("lockstitch restore customer-42", "lockstitch restore --all"))
def restore(
    context: typer.Context,
    threads: ThreadNames = None,
    everything: Annotated[bool, typer.Option("--all", help="All threads of the project.")] = False,
) -> None:
    """Write archived turns back to the logs of their threads, also from a lake."""
    session = session_of(context)
    if bool(threads) == everything:
        raise Refused("Choose the threads to restore: THREAD, or --all.")
    turns = 0
    with session.open() as store:
        heads = store.threads(limit=None) if everything else [find_thread(store, name) for name in threads or []]
        for head in heads:
            turns += store.restore(head.id) if head.first_position > 1 else 0
    if session.json_output:
        session.out.json({"turns": turns})
    else:
        session.out.line(f"Restored {plural(turns, 'turn')}.")


@app.command(
    epilog=examples(
        "lockstitch purge --older-than 90d --dry-run", "lockstitch purge --user ada --yes", "lockstitch purge --expired"
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
    dry_run: DryRun = False,
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
    before = moment_or_none(older_than, now(), "--older-than")
    what = f"all data of user {user}" if user else f"threads idle since {time(before)}" if before else "expired threads"
    with session.open() as store:
        if dry_run:
            _preview(session, store.purge_preview(before=before, user_id=user))
            return
        if not confirm(f"Delete {what} in project {session.project}?", yes=yes):
            _nothing(session)
            return
        threads = store.purge(before=before, user_id=user, force=force)
    _deleted(session, threads)


@app.command(
    epilog=examples(
        "lockstitch delete customer-42",
        "lockstitch delete customer-42 --yes",
        "lockstitch delete --status cancelled --since 12h --dry-run",
    )
)
def delete(
    context: typer.Context,
    threads: ThreadNames = None,
    status: StatusFilter = None,
    since: SinceFilter = None,
    force: Force = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Delete threads, their descendants and all their data.

    With --yes, a short id must be complete.
    """
    session = session_of(context)
    selection = Selection(threads or [], status, since, dry_run, yes, traces=True)
    with session.open() as store:
        if selection.single is None:

            def amount(heads: Sequence[Thread]) -> str:
                ids = {thread.id for head in heads for thread in store.tree(head)}
                descendants = len(ids) - len(heads)
                below = f" and {plural(descendants, 'descendant')}" if descendants else ""
                return f"{plural(len(heads), 'thread')}{below}"

            heads = selection.confirmed(session, store, "Delete", amount=amount)
            if heads:
                finish(session, "Deleted", [_delete(store, head, force) for head in heads])
            return
        tree = store.tree(find_thread(store, selection.single, complete=yes))
        name = f" ({name_of(tree[0])})" if name_of(tree[0]) else ""
        below = f" and {plural(len(tree) - 1, 'descendant')}" if len(tree) > 1 else ""
        if not confirm(f"Delete thread {tree[0].id}{name}{below}?", yes=yes):
            _nothing(session)
            return
        number = store.delete(tree[0], force=force)
    _deleted(session, number)


def _delete(store: SyncStore, head: Thread, force: bool) -> Outcome:
    def act() -> str:
        # A thread may be a descendant of one that was deleted before.
        with suppress(NotFound):
            store.delete(head, force=force)
        return "deleted"

    return Outcome.of(head, act)


def _preview(session: Session, threads: Sequence[Thread]) -> None:
    """Show the threads that a purge would delete."""
    if session.json_output:
        session.out.json({"dry_run": True, "threads": [str(thread.id) for thread in threads]})
        return
    moment = now()
    rows = [
        [shown_id(session.out, thread.id), status_word(thread.status), age(thread.updated_at, moment), name_of(thread)]
        for thread in threads
    ]
    if rows:
        columns = [TableColumn("THREAD"), TableColumn("STATUS"), TableColumn("AGE", right=True)]
        session.out.table([*columns, TableColumn("NAME", flexible=True)], rows)
    session.out.note(f"Dry run: delete {plural(len(threads), 'thread')}. Nothing was changed.")


def _deleted(session: Session, threads: int) -> None:
    if session.json_output:
        session.out.json({"threads": threads})
    else:
        session.out.line(f"Deleted {plural(threads, 'thread')}.")


def _nothing(session: Session) -> None:
    session.out.note("Nothing was deleted.")
    raise typer.Exit(ExitCode.FAILED)


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


@app.command(
    epilog=examples(
        "lockstitch doctor --verify", "lockstitch doctor --verify --json | jq .problems", "lockstitch doctor --repair"
    )
)
def doctor(
    context: typer.Context,
    verify: Annotated[bool, typer.Option("--verify", help="Read and check all data.")] = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="Like --verify, and repair what the logs of the threads answer.")
    ] = False,
) -> None:
    """Check a store. The exit code is 1 if there is a problem.

    With --verify it checks that positions have no gaps, fences never decrease, each call has one result, and contexts
    can be computed. In a file store it also rebuilds the readable files from the log.

    With --repair it also writes the heads of threads again that are behind their logs. It changes no log and no thread
    that a worker holds. For all other problems, restore a backup.
    """
    session = session_of(context)
    with session.open() as store:
        report = store.verify(repair=repair) if verify or repair else store.counts()
        rebuilt = store.rebuild_files()
    if session.json_output:
        session.out.json(report.as_json())
    else:
        _print(session, report, verified=verify or repair, rebuilt=rebuilt)
    if not report.ok:
        raise typer.Exit(ExitCode.FAILED)


def _print(session: Session, report: DoctorReport, *, verified: bool, rebuilt: bool) -> None:
    out = session.out
    scope = f"{plural(report.threads, 'thread')}, {plural(report.stitches, 'stitch', 'stitches')}"
    for problem in report.repaired or ():
        out.line(f"{problem['thread']}  {problem['kind']}  repaired", style="yellow")
        out.line(str(problem["detail"]), indent=4)
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
