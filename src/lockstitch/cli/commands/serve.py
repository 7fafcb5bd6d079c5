"""serve, token, demo."""

import asyncio
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from lockstitch.cli.options import examples, later
from lockstitch.cli.render.output import TableColumn, one_line, time
from lockstitch.cli.session import now, session_of
from lockstitch.errors import Refused
from lockstitch.model import Json
from lockstitch.model.side_records import Token
from lockstitch.store.tables import SCOPES

app = typer.Typer()
token = typer.Typer(
    name="token",
    help="Make, list and revoke the tokens of a project.",
    rich_markup_mode=None,
)
app.add_typer(token)

_ACTOR = "command line"


@token.command(
    epilog=examples(
        "lockstitch token create ci --scope ingest",
        "lockstitch token create ada --scope read --scope write --expires 90d --project acme",
    )
)
def create(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What it is for.", show_default=False)],
    scope: Annotated[
        list[str], typer.Option(metavar="|".join(SCOPES), help="What it allows; may be given several times.")
    ],
    expires: Annotated[
        str | None, typer.Option(metavar="TIME", help="When it ends: 90d, or 2027-01-31.", show_default=False)
    ] = None,
) -> None:
    """Make a token for the project and show it, this once: only its hash is kept.

    read looks, write acts on threads and starts runs, ingest sends traces in, admin does all of it and asks in SQL.
    """
    session = session_of(context)
    until = None if expires is None else later(expires, now(), "--expires")
    with session.open(create=True) as store:
        made, secret = store.portal.call(store.async_store.tokens.create(name, scope, expires_at=until))
        store.portal.call(store.async_store.audits.record(_ACTOR, "token created", made.name, scopes=made.scopes))
    if session.json_output:
        session.out.json({**_shown(made), "token": secret})
        return
    session.out.line(secret)
    session.out.note(f"Token {made.name} of project {made.project}: {', '.join(made.scopes)}. It is not shown again.")


@token.command("list", epilog=examples("lockstitch token list --project acme"))
def list_(context: typer.Context) -> None:
    """List the tokens of the project. What they are cannot be shown, only what they allow."""
    session = session_of(context)
    with session.open() as store:
        found = store.portal.call(store.async_store.tokens.all())
    if session.json_output:
        session.out.json([_shown(one) for one in found])
        return
    if not found:
        session.out.note(f"Project {session.project} has no tokens.")
        return
    columns = [
        TableColumn("NAME", flexible=True),
        TableColumn("SCOPES"),
        TableColumn("MADE"),
        TableColumn("ENDS"),
        TableColumn("STATE"),
    ]
    session.out.table(columns, [_row(one) for one in found])


@token.command(epilog=examples("lockstitch token revoke ci"))
def revoke(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The token's name.", show_default=False)],
) -> None:
    """Have a token open nothing any more, from the next request on."""
    session = session_of(context)
    with session.open() as store:
        revoked = store.portal.call(store.async_store.tokens.revoke(name))
        store.portal.call(store.async_store.audits.record(_ACTOR, "token revoked", revoked.name))
    if session.json_output:
        session.out.json(_shown(revoked))
    else:
        session.out.line(f"Token {one_line(revoked.name)} of project {one_line(revoked.project)} is revoked.")


def _shown(one: Token) -> Json:
    """A token without its hash: nobody needs that."""
    return {name: value for name, value in one.as_json().items() if name != "sha256"}


def _row(one: Token) -> list[str | Text]:
    state = "live"
    if one.revoked_at is not None:
        state = "revoked"
    elif one.expires_at is not None and one.expires_at <= now():
        state = "expired"
    scopes = ", ".join(one.scopes)
    shown = Text(state, style="green" if state == "live" else "dim")
    return [one_line(one.name), scopes, time(one.created_at, seconds=False), time(one.expires_at, seconds=False), shown]


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
        from lockstitch.cli.services.serve import Service
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


@app.command(epilog=examples("lockstitch demo", "lockstitch demo --model anthropic:claude-sonnet-5"))
def demo(
    context: typer.Context,
    model: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="A real model, with its key in the environment; else a scripted one."),
    ] = None,
) -> None:
    """Kill an agent in the middle of a payment, and go on with it.

    Needs no key and no store: everything happens in a temporary folder, which is gone afterwards.
    """
    from lockstitch.cli.demo.crash_story import Story

    session = session_of(context)
    if model:
        _require(model)
    with tempfile.TemporaryDirectory(prefix="lockstitch-demo-") as folder:
        facts = Story(Path(folder), model, quiet=session.json_output).tell()
    if session.json_output:
        session.out.json(facts)


def _require(model: str) -> None:
    """Say what is missing before anything begins: the key, the SDK, or a model of this name."""
    import asyncio

    from lockstitch.agents.registry import resolve_provider

    async def close_again() -> None:
        provider, _ = resolve_provider(model)
        await provider.close()

    asyncio.run(close_again())
