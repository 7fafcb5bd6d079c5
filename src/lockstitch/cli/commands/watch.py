"""`watch`: what is going on, live."""

from typing import Annotated

import typer

from lockstitch.cli.parameters import examples
from lockstitch.cli.scene import scene
from lockstitch.cli.session import session_of
from lockstitch.store.picture import Painter

app = typer.Typer()


@app.command(
    epilog=examples("lockstitch watch", "lockstitch watch customer-42", "lockstitch watch --json | jq .workers")
)
def watch(
    context: typer.Context,
    thread: Annotated[
        str | None,
        typer.Argument(metavar="THREAD", help="Only this one and what is below it.", show_default=False),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="One picture, and that is it.")] = False,
) -> None:
    """See live what is going on, who does it and what it costs.

    Open threads, the workers that hold them, whom the others wait for since when, todo lists. Of all projects, or of
    the one that --project names. q or Ctrl-C ends it. In a pipe, and with --once, it is one picture; with --json one
    object of the same facts.
    """
    from lockstitch.cli.watching import Watch

    session = session_of(context)
    with session.open() as store:
        wanted = None if thread is None else store.thread(thread).id
        painter = Painter(store.awaited, all_projects=not session.project_named, thread_id=wanted)
        if session.as_json:
            session.out.json(store.portal.call(painter.paint()).as_json())
        elif once or session.out.width is None:
            for line in scene(session, store.portal.call(painter.paint()), session.out.width):
                session.out.cropped(line)
        else:
            Watch(session, store, painter).go_on()
