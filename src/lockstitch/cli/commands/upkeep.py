"""`migrate` and `doctor`: whether a store fits this code, and whether it is sound."""

from typing import Annotated

import typer

from lockstitch.cli.parameters import examples
from lockstitch.cli.session import Session, session_of
from lockstitch.cli.text import plural
from lockstitch.store import Report

app = typer.Typer()


@app.command(epilog=examples("lockstitch migrate --store postgresql://localhost/agents"))
def migrate(context: typer.Context) -> None:
    """Bring a store to this version in place, or make it."""
    session = session_of(context)
    with session.open(create=True) as store:
        version = store.migrate()
    if session.as_json:
        session.out.json({"version": version})
    else:
        session.out.line(f"The store is at schema version {version}.")


@app.command(epilog=examples("lockstitch doctor --verify", "lockstitch doctor --verify --json | jq .problems"))
def doctor(
    context: typer.Context,
    verify: Annotated[bool, typer.Option("--verify", help="Read everything and check it.")] = False,
) -> None:
    """Say how a store is; exit code 1 on any problem.

    With --verify: positions without a gap, fences that never fall, one answer per call, contexts that can be folded.
    In a store of files the files for people are made anew from the log.
    """
    session = session_of(context)
    with session.open() as store:
        report = store.verify() if verify else store.glance()
        rebuilt = store.rebuild()
    if session.as_json:
        session.out.json(report.as_json())
    else:
        _print(session, report, verified=verify, rebuilt=rebuilt)
    if not report.ok:
        raise typer.Exit(1)


def _print(session: Session, report: Report, *, verified: bool, rebuilt: bool) -> None:
    out = session.out
    scope = f"{plural(report.threads, 'thread')}, {plural(report.stitches, 'stitch', 'stitches')}"
    for problem in report.problems:
        out.line(f"{problem['thread']}  {problem['kind']}", style="bold red")
        out.line(str(problem["detail"]), indent=4)
    if not verified:
        out.line(f"{scope}. Not read; --verify checks them.")
    elif report.ok:
        out.line(f"All well: {scope} read.", style="green")
    else:
        out.line(f"{plural(len(report.problems), 'problem')} in {scope}.", style="red")
    if rebuilt:
        out.line("The files agent_config and conversation_history were made anew from the log.", style="dim")
