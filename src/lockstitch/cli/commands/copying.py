"""`copy`: everything of one store into another."""

from typing import Annotated

import typer

from lockstitch.cli.parameters import examples
from lockstitch.cli.session import session_of
from lockstitch.cli.text import plural
from lockstitch.store import Copied

app = typer.Typer()


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
        str, typer.Argument(metavar="TO", help="The URL of another; it is made if need be.", show_default=False)
    ],
    tree: Annotated[str | None, typer.Option(metavar="THREAD", help="Only this thread and its descendants.")] = None,
) -> None:
    """Copy a store, or one tree of it, into another.

    What is there already is not copied again, so a copy that was cut short goes on. Every thread is verified.
    """
    session = session_of(context)
    with session.open(url=source) as here:
        root = here.thread(tree) if tree else None
        with session.open(url=target, create=True) as there:
            total = len(here.tree(root)) if root else here.count(all_projects=True)
            with CopyProgress(total) as following:
                copied = here.copy_to(there, tree=root, progress=following.show)
    report = {
        "copied": copied.total,
        "threads": copied.threads,
        "stitches": copied.stitches,
        "records": copied.records,
        "verified": copied.verified,
    }
    if session.as_json:
        session.out.json(report)
        return
    session.out.line(
        f"Copied {plural(copied.stitches, 'stitch', 'stitches')} and {plural(copied.records, 'other record')}; "
        f"verified {copied.verified:,} of {plural(copied.threads, 'thread')}."
    )


class CopyProgress:
    """A bar on stderr, where somebody looks at it."""

    def __init__(self, total: int) -> None:
        # Nobody else needs these, and loading them takes as long as many a command.
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

    def show(self, copied: Copied) -> None:
        self._bar.update(
            self._task, completed=copied.threads, description=f"{plural(copied.stitches, 'stitch', 'stitches')}"
        )
