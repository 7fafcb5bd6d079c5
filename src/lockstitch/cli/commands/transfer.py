"""`copy`, `import`, `export`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from lockstitch.cli.actions import actions_of
from lockstitch.cli.exit_codes import ExitCode
from lockstitch.cli.options import examples
from lockstitch.cli.references import find_run, find_thread
from lockstitch.cli.render.output import one_line, plural
from lockstitch.cli.session import Session, session_of
from lockstitch.errors import NotFound, Refused
from lockstitch.model import Json, codec
from lockstitch.store import CopyReport

if TYPE_CHECKING:
    from lockstitch.integrations.importer import Report

app = typer.Typer()

_SHOWN: Final = 20
"""Maximum number of skipped entries that are printed without --json."""


@app.command(
    name="import",
    epilog=examples(
        "lockstitch import langsmith exports/",
        "lockstitch import otel traces.jsonl",
        "lockstitch import langfuse export.csv",
        "curl … | lockstitch import langsmith -",
        "lockstitch import bundle customer-42.zip",
    ),
)
def import_(
    context: typer.Context,
    source: Annotated[
        str, typer.Argument(metavar="langsmith|otel|langfuse|bundle", help="The format.", show_default=False)
    ],
    path: Annotated[str, typer.Argument(metavar="PATH", help="A file, a folder, or - for stdin.", show_default=False)],
    replace: Annotated[
        bool,
        typer.Option("--replace", help="The traces are complete: remove stored spans that they no longer contain."),
    ] = False,
    keep_secrets: Annotated[
        bool, typer.Option("--keep-secrets", help="Do not redact values in metadata that look like secrets.")
    ] = False,
) -> None:
    """Import traces. Traces that are already stored are completed, not duplicated.

    A folder is imported file by file. Each file is committed before the next one is read, and a file that fails does
    not affect the other files. The content of a file decides its format: JSON, JSONL, CSV, request bodies or Parquet,
    compressed or not. Values in metadata that look like secrets are replaced by [redacted]. The report lists items that
    could not be read or written. A bundle is a file from `export --thread`.
    """
    from lockstitch.integrations.importer import open_source

    session = session_of(context)
    if source == "bundle":
        _import_bundle(session, path)
        return
    opened = open_source(source, path, sys.stdin.buffer)
    with session.open(create=True) as store, ImportProgress() as following:
        importing = opened.into(store.async_store, replace=replace, keep_secrets=keep_secrets, progress=following.show)
        report = store.portal.call(importing)
    if session.json_output:
        session.out.json(report.as_json())
    else:
        if report.files > 1:
            for file in report.each:
                session.out.note(_file_line(file.as_json()))
        session.out.line(_summary(report))
        if not report.files:
            session.out.note(f"No files found in {one_line(path)}.")
        for skipped in report.skipped[:_SHOWN]:
            session.out.note(f"Skipped: {one_line(str(skipped['why']))}")
        if len(report.skipped) > _SHOWN:
            session.out.note(f"… and {len(report.skipped) - _SHOWN:,} more. Use --json to list all.")
    if report.skipped:
        raise typer.Exit(ExitCode.PARTLY if report.spans else ExitCode.FAILED)


def _file_line(file: Json) -> str:
    """Return one line about an imported file."""
    counts = f"{plural(file['traces'], 'trace')}, {plural(file['runs'], 'run')}"
    skipped = f", {file['skipped']:,} skipped" if file["skipped"] else ""
    return f"{one_line(file['file'])}: {counts}{skipped}"


def _import_bundle(session: Session, path: str) -> None:
    """Import threads from a bundle that `export --thread` wrote."""
    from lockstitch.integrations.export.bundle import import_bundle

    if not Path(path).is_file():
        raise NotFound(f"File {path} not found.")
    with session.open(create=True) as store:
        copied = store.portal.call(import_bundle(store.async_store, Path(path)))
    if session.json_output:
        session.out.json({"threads": copied.threads, "stitches": copied.stitches, "records": copied.records})
    else:
        new = plural(copied.stitches, "stitch", "stitches")
        session.out.line(f"Imported {plural(copied.threads, 'thread')}, {new} of them new.")


def _summary(report: "Report") -> str:
    counts = report.as_json()
    figures = (
        plural(counts["traces"], "trace"),
        plural(counts["runs"], "run"),
        plural(counts["llm_calls"], "model call"),
        plural(counts["tool_calls"], "tool call"),
        f"{counts['tokens']:,} tokens",
    )
    missing = ", ".join(f"{name} {count:,}x" for name, count in counts["missing"].items())
    removed = f" {plural(report.removed, 'span')} removed." if report.removed else ""
    return f"Imported {', '.join(figures)}.{removed}" + (f" Missing values: {missing}." if missing else "")


class ImportProgress:
    """Progress on stderr, only on a terminal."""

    def __init__(self) -> None:
        # Imported here because loading rich.progress is slow and only this class needs it.
        from rich.console import Console
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        console = Console(stderr=True)
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        self._bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._bar.add_task("reading")

    def __enter__(self) -> "ImportProgress":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def show(self, report: "Report", file: str) -> None:
        description = f"{plural(report.traces, 'trace')}, {plural(report.spans, 'run')} · {one_line(file)}"
        self._bar.update(self._task, description=description)


@app.command(
    epilog=examples(
        "lockstitch export --lens langsmith traces.db",
        "lockstitch export --run 01890000-0000-7000-8000-000000000000 --as langsmith run.json",
        "lockstitch export --thread customer-42 customer-42.zip",
    )
)
def export(
    context: typer.Context,
    path: Annotated[
        str, typer.Argument(metavar="FILE", help="The file to write. - is stdout, for a run only.", show_default=False)
    ],
    lens: Annotated[str | None, typer.Option(metavar="L", help="Export the whole store through this lens.")] = None,
    update: Annotated[bool, typer.Option("--update", help="With --lens: update an existing file.")] = False,
    run: Annotated[
        str | None, typer.Option(metavar="ID", help="Export one run, by its id or its id in the source.")
    ] = None,
    form: Annotated[str, typer.Option("--as", metavar="F", help="The format for --run: langsmith.")] = "langsmith",
    thread: Annotated[str | None, typer.Option(metavar="T", help="Export one thread with its descendants.")] = None,
) -> None:
    """Export a lens, a run or a thread to a file.

    A lens becomes a SQLite file with tables, keys and indexes. A run becomes a list of LangSmith run objects. A thread
    becomes a zip of plain files with a manifest.
    """
    session = session_of(context)
    chosen = [name for name, value in (("--lens", lens), ("--run", run), ("--thread", thread)) if value is not None]
    if len(chosen) != 1:
        raise Refused(
            f"Pass exactly one of --lens, --run and --thread{', not ' + ' and '.join(chosen) if chosen else ''}."
        )
    if update and lens is None:
        raise Refused("--update needs --lens.")
    if path == "-" and run is None:
        raise Refused("Only a run can be written to stdout. Pass a file name.")
    if run is None:
        session.require_database(f"export {chosen[0]}")
    if lens is not None:
        _lens(session, lens, path, update)
    elif run is not None:
        _run(session, run, form, path)
    elif thread is not None:
        _thread(session, thread, path)


def _lens(session: Session, lens: str, path: str, update: bool) -> None:
    from lockstitch.integrations.export.lens_tables import export_lens

    with session.open() as store:
        exported = store.portal.call(export_lens(store.async_store, lens, Path(path), update=update))
    if session.json_output:
        report = {"path": path, "rows": exported.rows, "renamed": exported.renamed, "removed": exported.removed}
        session.out.json(report)
        return
    counts = ", ".join(f"{number:,} {table}" for table, number in exported.rows.items())
    session.out.line(f"Wrote {path}: {counts}.")
    if exported.removed:
        session.out.line(f"Removed {plural(exported.removed, 'row')} that the store no longer has.")
    if exported.renamed:
        session.out.note(f"{plural(exported.renamed, 'row')} got a longer id, because another row has the same id.")


def _run(session: Session, run: str, form: str, path: str) -> None:
    if form != "langsmith":
        raise Refused(f"--as {form!r} is not valid. Use langsmith.")
    with session.open() as store:
        messages = actions_of(store).export_run(find_run(store, run).id)
    text = codec.dumps(messages)
    if path == "-":
        sys.stdout.write(text.decode() + "\n")
        return
    try:
        with open(path, "xb") as file:
            file.write(text + b"\n")
    except FileExistsError as exc:
        raise Refused(f"{path} already exists. Choose another file.") from exc
    except OSError as exc:
        raise Refused(f"{path} cannot be written: {exc.strerror}.") from exc
    if session.json_output:
        session.out.json({"path": path, "runs": len(messages)})
    else:
        session.out.line(f"Wrote {path}: {plural(len(messages), 'run')}.")


def _thread(session: Session, thread: str, path: str) -> None:
    from lockstitch.integrations.export.bundle import export_bundle

    with session.open() as store:
        manifest = store.portal.call(export_bundle(store.async_store, find_thread(store, thread).id, Path(path)))
    counts = manifest["counts"]
    if session.json_output:
        session.out.json({"path": path, "thread": manifest["thread"], **counts, "files": len(manifest["files"])})
        return
    session.out.line(
        f"Wrote {path}: {plural(counts['threads'], 'thread')}, {plural(counts['runs'], 'run')}, "
        f"{plural(counts['stitches'], 'stitch', 'stitches')}."
    )


@app.command(
    epilog=examples(
        "lockstitch copy sqlite:///lockstitch.db postgresql://localhost/agents",
        "lockstitch copy sqlite:///lockstitch.db file:export --tree customer-42",
    )
)
def copy(
    context: typer.Context,
    source: Annotated[str, typer.Argument(metavar="FROM", help="The URL of a store.", show_default=False)],
    target: Annotated[
        str, typer.Argument(metavar="TO", help="The URL of the target store. Created if needed.", show_default=False)
    ],
    tree: Annotated[str | None, typer.Option(metavar="THREAD", help="Only this thread and its descendants.")] = None,
) -> None:
    """Copy a store, or one tree of it, into another.

    Threads that the target already has are not copied again, so an interrupted copy can continue. Every thread is
    verified.
    """
    session = session_of(context)
    for url in (source, target):
        session.require_database("copy", url)
    with session.open_database(source) as here:
        root = find_thread(here, tree) if tree else None
        with session.open_database(target, create=True) as sync_store:
            total = len(here.tree(root)) if root else here.count(all_projects=True)
            with CopyProgress(total) as following:
                copied = here.copy_to(sync_store, tree=root, progress=following.show)
    report = {
        "copied": copied.total,
        "threads": copied.threads,
        "stitches": copied.stitches,
        "records": copied.records,
        "verified": copied.verified,
    }
    if session.json_output:
        session.out.json(report)
        return
    session.out.line(
        f"Copied {plural(copied.stitches, 'stitch', 'stitches')} and {plural(copied.records, 'other record')}; "
        f"verified {copied.verified:,} of {plural(copied.threads, 'thread')}."
    )


class CopyProgress:
    """A progress bar on stderr, only on a terminal."""

    def __init__(self, total: int) -> None:
        # Imported here because loading rich.progress is slow and only this class needs it.
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total} threads"))
        self._bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._bar.add_task("copying", total=total)

    def __enter__(self) -> "CopyProgress":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def show(self, copied: CopyReport) -> None:
        self._bar.update(
            self._task, completed=copied.threads, description=f"{plural(copied.stitches, 'stitch', 'stitches')}"
        )
