"""`sql`: read-only statements over the core tables or a lens."""

import sys
from typing import Annotated

import typer

from lockstitch.cli.options import Limit, examples
from lockstitch.cli.render import output
from lockstitch.cli.services.sql_shell import QueryOptions, Shell, ask, is_command, truncation_note
from lockstitch.cli.session import session_of
from lockstitch.errors import Refused
from lockstitch.lenses import catalog

app = typer.Typer()


@app.command(
    epilog=examples(
        'lockstitch sql "SELECT status, count(*) FROM threads GROUP BY status"',
        'lockstitch sql --lens three_table "SELECT title, total_runs FROM agent_config"',
        'lockstitch sql "SELECT id, input_tokens FROM runs" --format csv > runs.csv',
        "lockstitch sql .schema runs",
        "lockstitch sql --lens agentic_threads",
    )
)
def sql(
    context: typer.Context,
    query: Annotated[
        str | None, typer.Argument(metavar="QUERY", help="One SELECT. Without it: a shell, or stdin in a pipe.")
    ] = None,
    lens: Annotated[str | None, typer.Option(metavar="L", help=f"{', '.join(catalog.NAMES)}.")] = None,
    limit: Limit = 1000,
    seconds: Annotated[float, typer.Option(min=0.001, max=86_400, metavar="S", help="Timeout in seconds.")] = 10.0,
    force: Annotated[
        bool, typer.Option("--force", help="Use the store's own user if there is no read-only login.")
    ] = False,
    form: Annotated[str, typer.Option("--format", metavar="F", help="table, json or csv.")] = "table",
) -> None:
    """Query the record with SQL, read-only.

    The tables are threads, runs, stitches and their side tables, or the tables of a lens. `.tables` lists them, and
    `.schema TABLE` their columns. For a file store, the query
    runs on a copy. All projects are visible. On PostgreSQL, the query uses a login that can only read. If there is
    none, --force allows the store's own user.
    """
    session = session_of(context)
    output.check_form(form)
    if lens is not None:
        catalog.check(lens)
    asking = QueryOptions(lens, limit, seconds, "json" if session.json_output else form, force)
    if query is None and sys.stdin.isatty():
        with session.open() as store:
            Shell(session.out, store, asking).run()
        return
    text: str = sys.stdin.read() if query is None else query
    if not text.strip():
        raise Refused("The query is empty. Pass a SELECT.")
    with session.open() as store:
        if is_command(text):
            Shell(session.out, store, asking).command(text)
            return
        answer = ask(store, text, asking)
    output.show(session.out, answer, asking.form)
    if answer.truncated:
        session.out.note(truncation_note(answer, limit, "; use --limit for more"))
