"""`sql`: read-only statements over the core tables, or over those of a lens."""

import sys
from typing import Annotated

import typer

from lockstitch.cli.options import Limit, examples
from lockstitch.cli.render import output
from lockstitch.cli.services.sql_shell import Asking, Shell, left_off
from lockstitch.cli.session import session_of
from lockstitch.errors import Refused
from lockstitch.lenses import catalog

app = typer.Typer()


@app.command(
    epilog=examples(
        'lockstitch sql "SELECT status, count(*) FROM threads GROUP BY status"',
        'lockstitch sql --lens three_table "SELECT title, total_runs FROM agent_config"',
        'lockstitch sql "SELECT id, input_tokens FROM runs" --format csv > runs.csv',
        "lockstitch sql --lens agentic_threads",
    )
)
def sql(
    context: typer.Context,
    query: Annotated[
        str | None, typer.Argument(metavar="QUERY", help="One SELECT; without it a shell, or what stdin says.")
    ] = None,
    lens: Annotated[str | None, typer.Option(metavar="L", help=f"{', '.join(catalog.NAMES)}.")] = None,
    limit: Limit = 1000,
    seconds: Annotated[float, typer.Option(min=0.001, max=86_400, metavar="S", help="Stop it after so long.")] = 10.0,
    force: Annotated[
        bool, typer.Option("--force", help="Ask as the store's own user if no login can only read.")
    ] = False,
    form: Annotated[str, typer.Option("--format", metavar="F", help="table, json or csv.")] = "table",
) -> None:
    """Ask the record in SQL. It cannot write.

    The tables are threads, runs, stitches and what hangs off them, or those of another system that a lens shows. Of a
    store of files a copy is asked. All projects are seen. On PostgreSQL a login that can only read asks; --force allows
    the store's own user where there is none.
    """
    session = session_of(context)
    output.check_form(form)
    if lens is not None:
        catalog.check(lens)
    asking = Asking(lens, limit, seconds, "json" if session.json_output else form, force)
    if query is None and sys.stdin.isatty():
        with session.open() as store:
            Shell(session.out, store, asking).run()
        return
    text: str = sys.stdin.read() if query is None else query
    if not text.strip():
        raise Refused("There is no query. Write a SELECT.")
    with session.open() as store:
        answer = store.sql(text, limit=limit, seconds=seconds, lens=lens, force=force)
    output.show(session.out, answer, asking.form)
    if answer.truncated:
        session.out.note(left_off(answer, limit, "; --limit gives more"))
