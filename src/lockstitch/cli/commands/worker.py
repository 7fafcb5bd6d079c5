"""`worker`, `watch`."""

import asyncio
from typing import Annotated

import typer

from lockstitch.cli.actions import actions_of
from lockstitch.cli.options import examples
from lockstitch.cli.references import find_thread
from lockstitch.cli.services.watch import dashboard_view
from lockstitch.cli.session import session_of

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
    concurrency: Annotated[
        int, typer.Option(min=1, max=10_000, metavar="N", help="Maximum number of threads at once.")
    ] = 10,
    deadline: Annotated[
        float | None,
        typer.Option(min=0.001, metavar="S", help="Timeout in seconds for tools without their own timeout."),
    ] = None,
    grace: Annotated[
        float,
        typer.Option(min=0.0, metavar="S", help="Seconds to wait for the next commit of each thread on shutdown."),
    ] = 30.0,
    until_idle: Annotated[bool, typer.Option("--until-idle", help="Stop when there is nothing left to do.")] = False,
) -> None:
    """Execute ready threads, many at once.

    A worker takes threads of all projects, or of the project that --project sets. It also takes the threads of dead
    workers. You can start many workers, on any machine that reaches the store.

    On SIGTERM or Ctrl-C it stops claiming threads, releases each thread at its next commit, and exits. A second signal,
    or the end of --grace, releases the other threads at once. The exit code is 0, and 130 after Ctrl-C. With --json it
    prints one object per line.
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
        typer.Argument(metavar="THREAD", help="Only this thread and its descendants.", show_default=False),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Print once and exit.")] = False,
) -> None:
    """Show open threads, their workers and their cost, live.

    It lists open threads, workers, waits with their age, and todo lists, of all projects or of the project that
    --project sets. Press q or Ctrl-C to quit. In a pipe, and with --once, it prints once. With --json it prints one
    object with the same facts.
    """
    from lockstitch.cli.services.watch import Watch

    session = session_of(context)
    with session.open() as store:
        session = session.of_store(store)
        wanted = None if thread is None else find_thread(store, thread).id
        reader = actions_of(store).dashboard(all_projects=not session.project_named, thread_id=wanted)
        if session.json_output:
            session.out.json(store.portal.call(reader.read()).as_json())
        elif once or session.out.width is None:
            for line in dashboard_view(session, store.portal.call(reader.read()), session.out.width):
                session.out.cropped(line)
        else:
            Watch(session, store, reader).run()
