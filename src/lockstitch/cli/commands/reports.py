"""`size`: what keeping the record takes."""

from collections.abc import Sequence
from typing import Annotated

import typer

from lockstitch.cli.parameters import examples
from lockstitch.cli.session import session_of
from lockstitch.cli.table import Column
from lockstitch.cli.text import plural, size
from lockstitch.records import Json
from lockstitch.sync import SyncStore

app = typer.Typer()

# Bytes, from the document: one config per agent, conversation and log per run.
_ESTIMATES = {
    "config": (10_000, 50_000),
    "conversation": (50_000, 200_000),
    "log": (500_000, 2_000_000),
}
# Which of our parts hold what the document's three stores hold. Content stands once, in the stitches.
_PARTS = {"config": ("heads",), "conversation": ("runs",), "log": ("stitches", "blobs", "archives")}


@app.command("size", epilog=examples("lockstitch size", "lockstitch size customer-42 --json"))
def size_of(
    context: typer.Context,
    thread: Annotated[str | None, typer.Argument(metavar="THREAD", help="Only of this thread.")] = None,
) -> None:
    """Show the bytes kept, beside the estimates of the document.

    The three-table document estimates what its own shape takes; here content stands once.
    """
    session = session_of(context)
    with session.open() as store:
        report = _report(store, thread)
    if session.as_json:
        session.out.json(report)
        return
    rows = [
        [name, " + ".join(_PARTS[name]), size(part["bytes"]), _range(part["estimate"])]
        for name, part in report["stores"].items()
    ]
    rows.append(["total", "", size(report["total"]), _range(report["estimate"])])
    columns = [Column("STORE"), Column("HOLDS"), Column("BYTES", right=True)]
    session.out.table([*columns, Column("ESTIMATE OF THE DOCUMENT", right=True)], rows)
    scope = f"{plural(report['threads'], 'thread')}, {plural(report['runs'], 'run')}"
    disk = f", {size(report['disk'])} on disk" if report["disk"] is not None else ""
    session.out.line()
    session.out.line(f"{scope}{disk}.", style="dim")


def _range(ends: Sequence[int]) -> str:
    return " to ".join(map(size, ends))


def _report(store: SyncStore, name: str | None) -> Json:
    """Bytes per store of the document, and its estimate for so many threads and runs."""
    thread = store.thread(name) if name else None
    sizes = store.size(thread)
    counted = store.glance()
    threads, runs = (1, thread.last_sequence) if thread else (counted.threads, counted.runs)
    stores: Json = {}
    for part, (low, high) in _ESTIMATES.items():
        number = threads if part == "config" else runs
        stores[part] = {
            "bytes": sum(sizes.get(piece, 0) for piece in _PARTS[part]),
            "estimate": [number * low, number * high],
        }
    return {
        "thread": str(thread.id) if thread else None,
        "threads": threads,
        "runs": runs,
        "stores": stores,
        "total": sum(part["bytes"] for part in stores.values()),
        "estimate": [sum(part["estimate"][end] for part in stores.values()) for end in (0, 1)],
        "parts": {part: number for part, number in sizes.items() if part != "disk"},
        "disk": sizes.get("disk"),
    }
