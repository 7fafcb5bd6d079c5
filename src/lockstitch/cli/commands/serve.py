"""`serve`, `token`, `demo`."""

import asyncio
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from lockstitch.cli.options import examples
from lockstitch.cli.render.output import TableColumn, one_line, time
from lockstitch.cli.session import now, session_of
from lockstitch.errors import Refused, missing_extra
from lockstitch.model import Json
from lockstitch.model.moment import later
from lockstitch.model.side_records import Token
from lockstitch.store.tables import SCOPES

app = typer.Typer()
token = typer.Typer(
    name="token",
    help="Create, list and revoke tokens of a project.",
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
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the token.", show_default=False)],
    scope: Annotated[list[str], typer.Option(metavar="|".join(SCOPES), help="A scope. Can be repeated.")],
    expires: Annotated[
        str | None, typer.Option(metavar="TIME", help="Expiry: in 90d, or a date like 2027-01-31.", show_default=False)
    ] = None,
) -> None:
    """Create a token for the project and print it. It is shown only once, because only its hash is stored.

    The scope read allows reading, write allows control of threads and new runs, ingest allows sending traces, and admin
    allows all of these and SQL.
    """
    session = session_of(context)
    until = None if expires is None else later(expires, now(), "--expires")
    with session.open(create=True) as store:
        result, secret = store.portal.call(store.async_store.tokens.create(name, scope, expires_at=until))
        store.portal.call(store.async_store.audits.record(_ACTOR, "token created", result.name, scopes=result.scopes))
    if session.json_output:
        session.out.json({**_shown(result), "token": secret})
        return
    session.out.line(secret)
    session.out.note(
        f"Token {result.name} of project {result.project}: {', '.join(result.scopes)}. It is not shown again."
    )


@token.command("list", epilog=examples("lockstitch token list --project acme"))
def list_(context: typer.Context) -> None:
    """List the tokens of the project with their scopes. The secrets are not stored."""
    session = session_of(context)
    with session.open() as store:
        tokens = store.portal.call(store.async_store.tokens.all())
    if session.json_output:
        session.out.json([_shown(token) for token in tokens])
        return
    if not tokens:
        session.out.note(f"Project {store.project} has no tokens.")
        return
    columns = [
        TableColumn("NAME", flexible=True),
        TableColumn("SCOPES"),
        TableColumn("CREATED"),
        TableColumn("EXPIRES"),
        TableColumn("STATE"),
    ]
    session.out.table(columns, [_row(token) for token in tokens])


@token.command(epilog=examples("lockstitch token revoke ci"))
def revoke(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The token's name.", show_default=False)],
) -> None:
    """Revoke a token. The next request with it is rejected."""
    session = session_of(context)
    with session.open() as store:
        revoked = store.portal.call(store.async_store.tokens.revoke(name))
        store.portal.call(store.async_store.audits.record(_ACTOR, "token revoked", revoked.name))
    if session.json_output:
        session.out.json(_shown(revoked))
    else:
        session.out.line(f"Token {one_line(revoked.name)} of project {one_line(revoked.project)} is revoked.")


def _shown(token: Token) -> Json:
    """Return a token as JSON without its hash."""
    return {name: value for name, value in token.as_json().items() if name != "sha256"}


def _row(token: Token) -> list[str | Text]:
    state = "live"
    if token.revoked_at is not None:
        state = "revoked"
    elif token.expires_at is not None and token.expires_at <= now():
        state = "expired"
    scopes = ", ".join(token.scopes)
    shown = Text(state, style="green" if state == "live" else "dim")
    return [
        one_line(token.name),
        scopes,
        time(token.created_at, seconds=False),
        time(token.expires_at, seconds=False),
        shown,
    ]


@app.command(
    epilog=examples(
        "lockstitch serve",
        "lockstitch serve --app shop:app --port 9000",
        "lockstitch serve --host 0.0.0.0 --host-name agents.example.org",
        "lockstitch serve --otlp-grpc 4317",
        "lockstitch serve --demo",
    )
)
def serve(
    context: typer.Context,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, metavar="N", help="The port. 0 chooses a free one.")] = 8765,
    otlp_grpc: Annotated[
        str | None,
        typer.Option(
            metavar="[ADDRESS:]PORT",
            help="Also accept OTLP over gRPC. Default address: that of --host.",
            show_default=False,
        ),
    ] = None,
    tokens: Annotated[bool, typer.Option("--tokens", help="Require tokens, also on loopback.")] = False,
    host_name: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="An allowed host name, for example behind a proxy.")
    ] = None,
    work: Annotated[
        bool, typer.Option("--work/--no-work", help="Also execute the app's threads in this process.")
    ] = True,
    concurrency: Annotated[
        int, typer.Option(min=1, max=10_000, metavar="N", help="Maximum number of threads at once.")
    ] = 10,
    grace: Annotated[
        float, typer.Option(min=0.0, metavar="S", help="Seconds for requests and threads to finish on shutdown.")
    ] = 30.0,
    redact: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A key in trace metadata. Its value is redacted.")
    ] = None,
    keep_secrets: Annotated[bool, typer.Option("--keep-secrets", help="Redact nothing in traces.")] = False,
    force_sql: Annotated[
        bool,
        typer.Option("--force-sql", help="Use the store's own user for SQL if there is no read-only login."),
    ] = False,
    act: Annotated[
        bool, typer.Option("--act", help="Let MCP clients with the scope write approve, deny, answer, fork and retry.")
    ] = False,
    demo: Annotated[bool, typer.Option("--demo", help="Serve demo data from a temporary store.")] = False,
) -> None:
    """Serve the pages, the JSON API and the endpoints for traces.

    The pages are at /, the JSON API is under /api, MCP clients use /mcp, and LangSmith and OpenTelemetry clients use
    their usual paths. On loopback, no token is required. Any other address requires tokens: `lockstitch token create`.
    With --app, this process also executes the threads of the agents, unless --no-work leaves them to workers. On
    SIGTERM or Ctrl-C the server stops accepting requests, finishes current ones and exits. --otlp-grpc needs the extra
    grpc, /mcp the extra mcp.
    """
    try:
        from lockstitch.cli.services.serve import Service
        from lockstitch.server import Settings
    except ModuleNotFoundError as exc:
        raise missing_extra(exc, "`lockstitch serve`", "server") from exc

    session = session_of(context)
    if not demo:
        session.require_database("serve")
    settings = Settings(
        tokens_needed=tokens,
        hosts=tuple(name.lower() for name in host_name or ()),
        redact=tuple(redact or ()),
        keep_secrets=keep_secrets,
        work=work,
        concurrency=concurrency,
        sql_force=force_sql,
        mcp_acts=act,
    )
    grpc_address = None if otlp_grpc is None else _address(otlp_grpc, host)
    service = Service(session, settings, host=host, port=port, grace=grace, demo=demo, grpc_address=grpc_address)
    left = asyncio.run(service.serve())
    if left:
        raise typer.Exit(left)


def _address(text: str, host: str) -> tuple[str, int]:
    """Return the address and the port in `[ADDRESS:]PORT`. `host` is the default address."""
    address, _, port = text.rpartition(":")
    address = address or host
    if ":" in address:
        # Only brackets distinguish the port from the last part of an IPv6 address.
        address = (
            address[1:-1] if text.startswith("[") and address.endswith("]") else address if address == host else ""
        )
    if not address or not port.isdecimal() or int(port) > 65_535:
        raise Refused(f"--otlp-grpc {text!r} is not valid. Use a port or address:port, such as 4317 or [::1]:4317.")
    return address, int(port)


@app.command(epilog=examples("lockstitch demo", "lockstitch demo --model anthropic:claude-sonnet-5"))
def demo(
    context: typer.Context,
    model: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="A real model, with its key in the environment. Default: scripted."),
    ] = None,
) -> None:
    """Kill an agent during a payment, then resume it.

    Needs no key and no store. Everything happens in a temporary folder that is deleted afterwards.
    """
    from lockstitch.cli.demo.crash_story import CrashDemo

    session = session_of(context)
    if model:
        _require(model)
    with tempfile.TemporaryDirectory(prefix="lockstitch-demo-") as folder:
        facts = CrashDemo(Path(folder), model, quiet=session.json_output).run()
    if session.json_output:
        session.out.json(facts)


def _require(model: str) -> None:
    """Raise an error before the demonstration starts if the key, the SDK or the model is missing."""
    import asyncio

    from lockstitch.agents.registry import resolve_provider

    async def close_again() -> None:
        provider, _ = resolve_provider(model)
        await provider.close()

    asyncio.run(close_again())
