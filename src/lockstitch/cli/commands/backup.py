"""`backup`: take, list and restore snapshots of a SQLite store."""

from pathlib import Path
from typing import Annotated

import typer

from lockstitch.cli.options import examples
from lockstitch.cli.render.output import TableColumn, age, plural, size, time
from lockstitch.cli.session import now, session_of
from lockstitch.errors import Refused
from lockstitch.model import Json, format_time
from lockstitch.model.moment import duration, moment_or_none
from lockstitch.store.maintenance.snapshots import Snapshot, Snapshots
from lockstitch.store.open import sqlite_file

app = typer.Typer()
backup = typer.Typer(name="backup", help="Take, list and restore snapshots of a SQLite store.", rich_markup_mode=None)
app.add_typer(backup)

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of the snapshots.", show_default=False)]


@backup.command(epilog=examples("lockstitch backup create /backup/agents", "lockstitch backup create snaps --keep 14d"))
def create(
    context: typer.Context,
    folder: Folder,
    keep: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Delete snapshots that are older than this: 12h, 7d.", show_default=False),
    ] = None,
) -> None:
    """Copy the store into the folder, with all commits up to now. Other processes continue to use the store.

    For PostgreSQL, use pg_dump or the archive of its write-ahead log. For a folder of files, use tar.
    """
    session = session_of(context)
    session.require_database("backup create")
    period = None if keep is None else duration(keep, "--keep")
    # Another file, or a store of a newer version, is not copied.
    with session.open():
        path = sqlite_file(session.url)
    if path is None:
        raise Refused(
            "`lockstitch backup` copies SQLite files. For PostgreSQL use pg_dump or the archive of its write-ahead "
            "log, for a folder of files use tar: see docs/howto/deploying.md."
        )
    snapshots = Snapshots(folder)
    snapshot = snapshots.take(path)
    deleted = [] if period is None else snapshots.prune(period)
    if session.json_output:
        session.out.json({**_as_json(snapshot), "deleted": [str(old.path) for old in deleted]})
        return
    removed = f" Deleted {plural(len(deleted), 'old snapshot')}." if deleted else ""
    session.out.line(f"Wrote {snapshot.path}, {size(snapshot.size)}.{removed}")


@backup.command("list", epilog=examples("lockstitch backup list /backup/agents"))
def list_(context: typer.Context, folder: Folder) -> None:
    """List the snapshots in the folder, oldest first."""
    session = session_of(context)
    found = Snapshots(folder).all()
    if session.json_output:
        session.out.json([_as_json(snapshot) for snapshot in found])
    elif not found:
        session.out.note(f"{folder} has no snapshots. Take one with `lockstitch backup create {folder}`.")
    else:
        columns = [TableColumn("TIME"), TableColumn("AGE"), TableColumn("SIZE"), TableColumn("FILE", flexible=True)]
        rows = [
            [time(snapshot.at), age(snapshot.at, now()), size(snapshot.size), snapshot.path.name] for snapshot in found
        ]
        session.out.table(columns, rows)


@backup.command(
    epilog=examples(
        "lockstitch backup restore /backup/agents restored.db --at 2026-03-05T14:00Z",
        "lockstitch backup restore /backup/agents agents.db",
    )
)
def restore(
    context: typer.Context,
    folder: Folder,
    target: Annotated[
        Path, typer.Argument(metavar="FILE", help="The file to write. It must not exist.", show_default=False)
    ],
    at: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="The last snapshot up to this time: 2h ago, or a date.", show_default=False),
    ] = None,
) -> None:
    """Write the last snapshot, or the last one up to a time, to a new file.

    It has no commit after that time. Stop all processes of the store first, and check the file with
    `lockstitch doctor --verify` before you start workers.
    """
    session = session_of(context)
    snapshot = Snapshots(folder).restore(moment_or_none(at, now(), "--at"), target)
    if session.json_output:
        session.out.json({**_as_json(snapshot), "target": str(target)})
    else:
        session.out.line(f"Restored {target} as of {time(snapshot.at)}.")


def _as_json(snapshot: Snapshot) -> Json:
    return {"at": format_time(snapshot.at), "file": str(snapshot.path), "bytes": snapshot.size}
