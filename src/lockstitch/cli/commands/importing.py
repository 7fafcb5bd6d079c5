"""`import`: other systems' traces, into the record."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from lockstitch.cli.failure import FAILED, PARTLY
from lockstitch.cli.parameters import examples
from lockstitch.cli.session import Session, session_of
from lockstitch.cli.text import one_line, plural
from lockstitch.errors import NotFound
from lockstitch.records import Json

if TYPE_CHECKING:
    from lockstitch.bridges.importing import Report

app = typer.Typer()

_SHOWN: Final = 20
"""Skipped files that are named, where nobody asked for all of them."""


@app.command(
    name="import",
    epilog=examples(
        "lockstitch import langsmith exports/",
        "lockstitch import otel traces.jsonl",
        "curl … | lockstitch import langsmith -",
        "lockstitch import bundle customer-42.zip",
    ),
)
def import_(
    context: typer.Context,
    source: Annotated[str, typer.Argument(metavar="langsmith|otel|bundle", help="Who wrote it.", show_default=False)],
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="A file, a folder, or - for what is piped in.", show_default=False)
    ],
    replace: Annotated[
        bool, typer.Option("--replace", help="The traces are whole: remove spans that are in them no more.")
    ] = False,
    keep_secrets: Annotated[
        bool, typer.Option("--keep-secrets", help="Keep values in metadata that look like secrets.")
    ] = False,
) -> None:
    """Import traces. What is there already is completed, never doubled.

    A folder is imported file by file: each is committed before the next one is read, and a file that fails does not
    affect the others. The content of a file decides about its format: JSON, JSONL, request bodies, Parquet, packed or
    not. Values in metadata that look like secrets are replaced by [redacted]. The report names what cannot be read or
    written. A bundle is what `export --thread` wrote.
    """
    from lockstitch.bridges.registry import open_bridge

    session = session_of(context)
    if source == "bundle":
        _import_bundle(session, path)
        return
    opened = open_bridge(source, path, sys.stdin.buffer)
    with session.open(create=True) as store, ImportProgress() as following:
        importing = opened.into(store.awaited, replace=replace, keep_secrets=keep_secrets, progress=following.show)
        report = store.portal.call(importing)
    if session.as_json:
        session.out.json(report.as_json())
    else:
        if report.files > 1:
            for file in report.each:
                session.out.note(_file_line(file.as_json()))
        session.out.line(_summary(report))
        if not report.files:
            session.out.note(f"There is no file in {one_line(path)}.")
        for skipped in report.skipped[:_SHOWN]:
            session.out.note(f"Skipped: {one_line(str(skipped['why']))}")
        if len(report.skipped) > _SHOWN:
            session.out.note(f"… and {len(report.skipped) - _SHOWN:,} more; --json names them all.")
    if report.skipped:
        raise typer.Exit(PARTLY if report.spans else FAILED)


def _file_line(file: Json) -> str:
    """Return one line about an imported file."""
    counts = f"{plural(file['traces'], 'trace')}, {plural(file['runs'], 'run')}"
    skipped = f", {file['skipped']:,} skipped" if file["skipped"] else ""
    return f"{one_line(file['file'])}: {counts}{skipped}"


def _import_bundle(session: Session, path: str) -> None:
    """Threads that `export --thread` took home."""
    from lockstitch.bridges.outgoing.bundle import import_bundle

    if not Path(path).is_file():
        raise NotFound(f"There is no file {path}.")
    with session.open(create=True) as store:
        copied = store.portal.call(import_bundle(store.awaited, Path(path)))
    if session.as_json:
        session.out.json({"threads": copied.threads, "stitches": copied.stitches, "records": copied.records})
    else:
        new = plural(copied.stitches, "stitch", "stitches")
        session.out.line(f"Imported {plural(copied.threads, 'thread')}, {new} of them new here.")


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
    return f"Imported {', '.join(figures)}.{removed}" + (f" Not given: {missing}." if missing else "")


class ImportProgress:
    """How far it is, on stderr, where somebody looks at it."""

    def __init__(self) -> None:
        # Nobody else needs these, and loading them takes as long as many a command.
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
