"""`lake`: write the history of a record to Delta Lake tables."""

from typing import TYPE_CHECKING, Annotated

import typer

from lockstitch.cli.options import examples
from lockstitch.cli.render.output import plural
from lockstitch.cli.session import session_of
from lockstitch.errors import Refused, missing_extra
from lockstitch.model.moment import duration

if TYPE_CHECKING:
    from lockstitch.lake.sync import SyncReport

app = typer.Typer()
lake = typer.Typer(
    name="lake",
    help="Write the history of a record to Delta Lake tables.",
    rich_markup_mode=None,
)
app.add_typer(lake)

Target = Annotated[
    str,
    typer.Argument(metavar="TARGET", help="A folder, or a URL such as s3://bucket/folder.", show_default=False),
]


@lake.command("sync", epilog=examples("lockstitch lake sync ./lake", "lockstitch lake sync s3://bucket/lake"))
def lake_sync(context: typer.Context, target: Target) -> None:
    """Bring a lake to the state of the record: all projects, new and changed threads, and deletions.

    The first sync writes the whole record. A sync that was stopped continues with the next call. Query the lake with
    `lockstitch sql --lake TARGET`.
    """
    session = session_of(context)
    try:
        from lockstitch.lake.sync import sync
    except ModuleNotFoundError as exc:
        raise missing_extra(exc, "The lake", "lake") from exc
    with session.open() as store:
        if not store.async_store.has_sql:
            raise Refused("A lake needs a store on SQLite or PostgreSQL. Copy this one with `lockstitch copy`.")
        with store.lens("three_table") as connection:
            report: SyncReport = sync(connection, target)
    if session.json_output:
        session.out.json(
            {
                "log_id": report.log_id,
                "stitches": report.stitches,
                "threads": report.threads,
                "removed": report.removed,
            }
        )
    elif report.changed:
        removed = f", removed {plural(report.removed, 'thread')}" if report.removed else ""
        written = f"{plural(report.stitches, 'stitch', 'stitches')} of {plural(report.threads, 'changed thread')}"
        session.out.line(f"Wrote {written}{removed}.")
    else:
        session.out.line("The lake has all changes.")


@lake.command("compact", epilog=examples("lockstitch lake compact ./lake", "lockstitch lake compact ./lake --keep 0s"))
def lake_compact(
    context: typer.Context,
    target: Target,
    keep: Annotated[
        str, typer.Option(metavar="TIME", help="Keep replaced files for this time, for queries that read them.")
    ] = "7d",
) -> None:
    """Join small files, and delete files that no current row needs.

    Rows of deleted threads are in old files until then.
    """
    session = session_of(context)
    seconds = duration(keep, "--keep").total_seconds()
    try:
        from lockstitch.lake.target import Lake
    except ModuleNotFoundError as exc:
        raise missing_extra(exc, "The lake", "lake") from exc
    joined, deleted = Lake(target).compact(seconds)
    if session.json_output:
        session.out.json({"joined": joined, "deleted": deleted})
    else:
        session.out.line(f"Joined {plural(joined, 'file')}, deleted {plural(deleted, 'file')}.")
