"""`mcp`."""

import asyncio
from typing import Annotated

import typer

from lockstitch.cli.agent_choice import app_or_stored
from lockstitch.cli.options import examples
from lockstitch.cli.session import session_of
from lockstitch.errors import Refused, missing_extra

app = typer.Typer()


@app.command(
    epilog=examples(
        "lockstitch mcp --store sqlite:////srv/agents/lockstitch.db",
        "claude mcp add lockstitch -- lockstitch mcp --store sqlite:////srv/agents/lockstitch.db",
    )
)
def mcp(
    context: typer.Context,
    act: Annotated[bool, typer.Option("--act", help="Also offer to approve, deny, answer, fork and retry.")] = False,
    force_sql: Annotated[
        bool,
        typer.Option("--force-sql", help="Use the store's own user for SQL if there is no read-only login."),
    ] = False,
) -> None:
    """Serve the record to an MCP client on stdin and stdout.

    The client is a program with a model, such as Claude Code or Cursor. It starts this command. The tools list, search
    and read threads, runs, failures and statistics of the project, and run read-only SQL. With --act, the model can
    also reply to waiting calls, and fork and retry threads, which workers execute. Needs the extra mcp.
    """
    try:
        from lockstitch.cli.services.mcp import serve_stdio
    except ModuleNotFoundError as exc:
        raise missing_extra(exc, "`lockstitch mcp`", "mcp") from exc

    session = session_of(context)
    if session.is_remote:
        raise Refused(f"A server is an MCP server itself: add {session.url.rstrip('/')}/mcp to the MCP client.")
    asyncio.run(serve_stdio(session, app_or_stored(session), act=act, force_sql=force_sql))
