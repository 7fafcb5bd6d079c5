"""`serve`: the record over HTTP, traces in, and pages."""

import asyncio
from typing import Annotated

import typer

from lockstitch.cli.parameters import examples
from lockstitch.cli.session import session_of
from lockstitch.errors import Refused

app = typer.Typer()


@app.command(
    epilog=examples(
        "lockstitch serve",
        "lockstitch serve --app shop:app --port 9000",
        "lockstitch serve --host 0.0.0.0 --host-name agents.example.org",
        "lockstitch serve --demo",
    )
)
def serve(
    context: typer.Context,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, metavar="N", help="0 takes a free one.")] = 8765,
    tokens: Annotated[
        bool, typer.Option("--tokens", help="Let nobody in without a token, on loopback neither.")
    ] = False,
    host_name: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A name by which it is called, as behind a proxy.")
    ] = None,
    work: Annotated[bool, typer.Option("--work/--no-work", help="Drive the app's threads here too.")] = True,
    concurrency: Annotated[int, typer.Option(min=1, max=10_000, metavar="N", help="So many threads at once.")] = 10,
    grace: Annotated[
        float, typer.Option(min=0.0, metavar="S", help="Seconds that requests and threads get when it leaves.")
    ] = 30.0,
    redact: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A name in metadata of traces whose value is not kept.")
    ] = None,
    keep_secrets: Annotated[bool, typer.Option("--keep-secrets", help="Redact nothing in traces.")] = False,
    force_sql: Annotated[
        bool,
        typer.Option("--force-sql", help="Run SQL as the store's own user if no login can only read."),
    ] = False,
    demo: Annotated[
        bool, typer.Option("--demo", help="Show threads of a demonstration, in a store of their own.")
    ] = False,
) -> None:
    """Serve the record: pages, JSON, and traces in.

    Pages are at /, JSON under /api; LangSmith and OpenTelemetry clients find their own paths. On loopback anybody on
    this machine is let in. Any other address needs tokens: `lockstitch token create`. With --app this process also
    drives the agents' threads, unless --no-work leaves that to workers. SIGTERM or Ctrl-C: it takes no more, ends what
    it is in, and leaves.
    """
    try:
        from lockstitch.cli.serving import Service
        from lockstitch.server import Settings
    except ModuleNotFoundError as exc:
        raise Refused(f"{exc.name} is missing: pip install 'lockstitch[server]'") from exc

    session = session_of(context)
    settings = Settings(
        tokens_needed=tokens,
        hosts=tuple(name.lower() for name in host_name or ()),
        redact=tuple(redact or ()),
        keep_secrets=keep_secrets,
        work=work,
        concurrency=concurrency,
        sql_force=force_sql,
    )
    service = Service(session, settings, host=host, port=port, grace=grace, demo=demo)
    left = asyncio.run(service.serve())
    if left:
        raise typer.Exit(left)
