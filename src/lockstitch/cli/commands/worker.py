"""worker, watch."""

import asyncio
from typing import Annotated

import typer

from lockstitch.cli.options import examples
from lockstitch.cli.services.watch import scene
from lockstitch.cli.session import session_of
from lockstitch.store.reports.dashboard import DashboardReader

app = typer.Typer()


@app.command(
    epilog=examples(
        "lockstitch worker --app shop:app --store postgresql://agents@db/agents",
        "lockstitch worker --concurrency 50 --deadline 600 --grace 60",
        "lockstitch worker --project acme --until-idle --json",
    )
)
def worker(
    context: typer.Context,
    concurrency: Annotated[int, typer.Option(min=1, max=10_000, metavar="N", help="So many threads at once.")] = 10,
    deadline: Annotated[
        float | None, typer.Option(min=0.001, metavar="S", help="Seconds for a tool that has no limit of its own.")
    ] = None,
    grace: Annotated[
        float, typer.Option(min=0.0, metavar="S", help="Seconds that threads get to come to a commit when it leaves.")
    ] = 30.0,
    until_idle: Annotated[bool, typer.Option("--until-idle", help="Leave when nothing is left to do.")] = False,
) -> None:
    """Drive whatever threads are ready, many at once.

    Also those that a dead worker held. Of all projects, or of the one that --project names. Start as many as you like,
    on as many machines as reach the store. SIGTERM or Ctrl-C: it takes no more, gives back each thread at its next
    commit, and leaves; a second one, or the end of --grace, gives back the rest at once. Exit code 0, and 130 after
    Ctrl-C. With --json an object a line.
    """
    from lockstitch.cli.services.worker import WorkerProcess

    session = session_of(context)
    code = session.app()
    shift = WorkerProcess(
        session, code, concurrency=concurrency, default_tool_timeout=deadline, grace=grace, until_idle=until_idle
    )
    left = asyncio.run(shift.work())
    if left:
        raise typer.Exit(left)


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
    from lockstitch.cli.services.watch import Watch

    session = session_of(context)
    with session.open() as store:
        wanted = None if thread is None else store.thread(thread).id
        painter = DashboardReader(store.async_store, all_projects=not session.project_named, thread_id=wanted)
        if session.json_output:
            session.out.json(store.portal.call(painter.read()).as_json())
        elif once or session.out.width is None:
            for line in scene(session, store.portal.call(painter.read()), session.out.width):
                session.out.cropped(line)
        else:
            Watch(session, store, painter).go_on()
