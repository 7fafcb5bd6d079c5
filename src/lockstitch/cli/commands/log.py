"""`log`, `errors` and `request`: what a run did, what went wrong, what was sent."""

from typing import Annotated

import typer
from rich.text import Text

from lockstitch.cli import stitches, times
from lockstitch.cli.output import Output
from lockstitch.cli.parameters import Limit, RunName, Since, examples
from lockstitch.cli.session import now, session_of
from lockstitch.cli.text import one_line, time
from lockstitch.errors import NotFound
from lockstitch.records import Stitch, codec
from lockstitch.sync import SyncStore

app = typer.Typer()


@app.command(
    epilog=examples(
        "lockstitch log 0198c0de-0000-7000-8000-000000000000",
        "lockstitch log 0198c0de-0000-7000-8000-000000000000 --json | jq '.[].duration_ms'",
    )
)
def log(context: typer.Context, run: RunName) -> None:
    """Show everything a run did, in order."""
    session = session_of(context)
    with session.open() as store:
        found = _log(store, run)
    if session.as_json:
        session.out.json([stitch.as_json() for stitch in found])
    else:
        session.out.table(stitches.COLUMNS, [stitches.row(stitch) for stitch in found])


def _log(store: SyncStore, name: str) -> list[Stitch]:
    try:
        return store.log(name)
    except NotFound as exc:
        try:
            thread = store.thread(name)
        except NotFound:
            raise exc from None
        raise NotFound(f"{name} is a thread; `lockstitch show {thread.id}` lists its runs.") from None


@app.command(epilog=examples("lockstitch errors --since 12h", "lockstitch errors --limit 5 --json"))
def errors(context: typer.Context, since: Since = None, limit: Limit = 50) -> None:
    """Show the latest errors of all threads, the newest first."""
    session = session_of(context)
    with session.open() as store:
        found = store.errors(limit=limit, since=times.moment_or_none(since, now(), "--since"))
    if session.as_json:
        session.out.json([stitch.as_json() for stitch in found])
        return
    for number, stitch in enumerate(found):
        if number:
            session.out.line()
        _show_error(session.out, stitch)
    if not found:
        session.out.note("No errors.")


def _show_error(out: Output, stitch: Stitch) -> None:
    name = [Text(one_line(stitch.name))] if stitch.name else []
    out.line(Text("  ").join([Text(time(stitch.at), style="dim"), stitches.kind(stitch), *name]))
    out.line(f"thread {stitch.thread_id}:{stitch.position}", style="dim", indent=4)
    if stitch.run_id:
        out.line(f"run    {stitch.run_id}", style="dim", indent=4)
    words = stitches.complaint(stitch) or (codec.dumps(stitch.data).decode() if stitch.data else "")
    if words:
        out.line(words, indent=4)


@app.command(
    epilog=examples(
        "lockstitch request customer-42:7",
        "lockstitch request 0198c0de-0000-7000-8000-000000000000 > request.json",
    )
)
def request(
    context: typer.Context,
    stitch: Annotated[
        str, typer.Argument(metavar="STITCH", help="A stitch's id, or THREAD:POSITION.", show_default=False)
    ],
) -> None:
    """Print the exact request of a model call, as JSON."""
    session = session_of(context)
    with session.open() as store:
        found = store.request(_stitch_id(store, stitch))
    session.out.json(found)


def _stitch_id(store: SyncStore, name: str) -> str:
    """The id that `name` is or stands for."""
    thread, colon, position = name.rpartition(":")
    if not colon or not (position.isascii() and position.isdigit()) or len(position) > 18:
        return name
    found = store.stitches(thread, int(position), int(position))
    if not found:
        raise NotFound(f"Thread {thread} has no position {position}.")
    return str(found[0].id)
