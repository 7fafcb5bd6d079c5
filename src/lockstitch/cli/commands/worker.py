"""`worker`: a process that drives whatever threads are ready, until it is told to leave."""

import asyncio
from typing import Annotated

import typer

from lockstitch.cli.parameters import examples
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
    from lockstitch.cli.working import Shift

    session = session_of(context)
    code = session.app()
    shift = Shift(session, code, concurrency=concurrency, deadline=deadline, grace=grace, until_idle=until_idle)
    left = asyncio.run(shift.work())
    if left:
        raise typer.Exit(left)
