"""`tail`: the newest stitches, and the next ones as they come."""

import sys
from collections.abc import Iterator
from typing import Annotated
from uuid import UUID

import typer

from lockstitch.cli import stitches
from lockstitch.cli.parameters import Lines, examples
from lockstitch.cli.session import Session, session_of
from lockstitch.records import Stitch
from lockstitch.sync import SyncStore

app = typer.Typer()


@app.command(epilog=examples("lockstitch tail --follow", "lockstitch tail customer-42 --lines 50"))
def tail(
    context: typer.Context,
    thread: Annotated[
        str | None, typer.Argument(metavar="THREAD", help="A thread's id or key; else all threads.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes, until Ctrl-C.")] = False,
    lines: Lines = 10,
) -> None:
    """Show the newest stitches, and with --follow what comes. With --json an object a line."""
    session = session_of(context)
    with session.open() as store:
        printer = _Printer(session)
        for stitch in _stitches(store, thread, lines, follow):
            printer.show(stitch)


def _stitches(store: SyncStore, name: str | None, lines: int, follow: bool) -> Iterator[Stitch]:
    if name is None:
        if follow:
            return store.watch(recent=lines)
        return reversed(store.latest(limit=lines) if lines else [])
    thread = store.thread(name)
    first = max(thread.position - lines, 0)
    if follow:
        return store.watch(thread.id, after=first)
    return iter(store.stitches(thread, first + 1) if lines else [])


class _Printer:
    """Prints stitches. In a pipe each line names its thread; a terminal is told when another thread comes."""

    def __init__(self, session: Session) -> None:
        self._out = session.out
        self._thread: UUID | None = None

    def show(self, stitch: Stitch) -> None:
        out = self._out
        if out.as_json:
            out.json(stitch.as_json())
        elif out.width is None:
            out.cropped(stitches.line(stitch, whole=True))
        else:
            if stitch.thread_id != self._thread:
                out.line(f"thread {stitch.thread_id}", style="bold")
            out.cropped(stitches.line(stitch))
        self._thread = stitch.thread_id
        # Whoever follows through a pipe wants each as it comes.
        sys.stdout.flush()
