"""`export`: a lens as a SQLite file, a run as another system has it, a tree of threads as a bundle."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from lockstitch.cli.parameters import examples
from lockstitch.cli.session import Session, session_of
from lockstitch.cli.text import plural
from lockstitch.errors import Refused
from lockstitch.records import codec

app = typer.Typer()


@app.command(
    epilog=examples(
        "lockstitch export --lens langsmith traces.db",
        "lockstitch export --run 01890000-0000-7000-8000-000000000000 --as langsmith run.json",
        "lockstitch export --thread customer-42 customer-42.zip",
    )
)
def export(
    context: typer.Context,
    path: Annotated[str, typer.Argument(metavar="FILE", help="Where to; - is stdout, for a run.", show_default=False)],
    lens: Annotated[str | None, typer.Option(metavar="L", help="All of the store, through this lens.")] = None,
    update: Annotated[
        bool, typer.Option("--update", help="With --lens: the file may be there, and is updated.")
    ] = False,
    run: Annotated[str | None, typer.Option(metavar="ID", help="One run, by its id or its source's own.")] = None,
    form: Annotated[str, typer.Option("--as", metavar="F", help="With --run: langsmith.")] = "langsmith",
    thread: Annotated[str | None, typer.Option(metavar="T", help="One thread with everything below it.")] = None,
) -> None:
    """Write what is in the store into a file that others can read.

    A lens becomes a SQLite file with real tables, keys and indexes; a run a list of LangSmith's run objects; a thread
    a zip of plain files, with a manifest.
    """
    session = session_of(context)
    chosen = [name for name, value in (("--lens", lens), ("--run", run), ("--thread", thread)) if value is not None]
    if len(chosen) != 1:
        raise Refused(f"Say one of --lens, --run and --thread{', not ' + ' and '.join(chosen) if chosen else ''}.")
    if update and lens is None:
        raise Refused("--update goes with --lens.")
    if path == "-" and run is None:
        raise Refused("Only a run can be written to stdout. Name a file.")
    if lens is not None:
        _lens(session, lens, path, update)
    elif run is not None:
        _run(session, run, form, path)
    elif thread is not None:
        _thread(session, thread, path)


def _lens(session: Session, lens: str, path: str, update: bool) -> None:
    from lockstitch.bridges.outgoing.tables import export_lens

    with session.open() as store:
        exported = store.portal.call(export_lens(store.awaited, lens, Path(path), update=update))
    if session.as_json:
        report = {"path": path, "rows": exported.rows, "renamed": exported.renamed, "removed": exported.removed}
        session.out.json(report)
        return
    counts = ", ".join(f"{number:,} {table}" for table, number in exported.rows.items())
    session.out.line(f"Wrote {path}: {counts}.")
    if exported.removed:
        session.out.line(f"Removed {plural(exported.removed, 'row')} that the store no longer has.")
    if exported.renamed:
        session.out.note(f"{plural(exported.renamed, 'row')} got a longer id, since another row has theirs.")


def _run(session: Session, run: str, form: str, path: str) -> None:
    from lockstitch.bridges.outgoing.langsmith import export_run

    if form != "langsmith":
        raise Refused(f"--as {form!r} is unknown; it is langsmith.")
    with session.open() as store:
        told = store.portal.call(export_run(store.awaited, run))
    text = codec.dumps(told)
    if path == "-":
        sys.stdout.write(text.decode() + "\n")
        return
    try:
        with open(path, "xb") as file:
            file.write(text + b"\n")
    except FileExistsError as exc:
        raise Refused(f"{path} is there already. Name another file.") from exc
    except OSError as exc:
        raise Refused(f"{path} cannot be written: {exc.strerror}.") from exc
    if session.as_json:
        session.out.json({"path": path, "runs": len(told)})
    else:
        session.out.line(f"Wrote {path}: {plural(len(told), 'run')}.")


def _thread(session: Session, thread: str, path: str) -> None:
    from lockstitch.bridges.outgoing.bundle import export_bundle

    with session.open() as store:
        manifest = store.portal.call(export_bundle(store.awaited, thread, Path(path)))
    counts = manifest["counts"]
    if session.as_json:
        session.out.json({"path": path, "thread": manifest["thread"], **counts, "files": len(manifest["files"])})
        return
    session.out.line(
        f"Wrote {path}: {plural(counts['threads'], 'thread')}, {plural(counts['runs'], 'run')}, "
        f"{plural(counts['stitches'], 'stitch', 'stitches')}."
    )
