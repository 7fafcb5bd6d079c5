"""`sql`: read-only statements over the core tables or a lens."""

import sys
from typing import Annotated

import typer

from lockstitch.cli.options import Limit, examples
from lockstitch.cli.render import output
from lockstitch.cli.services.sql_shell import QueryOptions, Shell, ask, is_command, truncation_note
from lockstitch.cli.session import Session, session_of
from lockstitch.errors import Refused, missing_extra
from lockstitch.lenses import catalog

app = typer.Typer()


@app.command(
    epilog=examples(
        'lockstitch sql "SELECT status, count(*) FROM threads GROUP BY status"',
        'lockstitch sql --lens three_table "SELECT title, total_runs FROM agent_config"',
        'lockstitch sql "SELECT id, input_tokens FROM runs" --format csv > runs.csv',
        "lockstitch sql .schema runs",
        "lockstitch sql --lens agentic_threads",
        'lockstitch sql --lake ./lake --lens langsmith "SELECT model_name, count(*) FROM llm_calls GROUP BY 1"',
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
    lake: Annotated[
        str | None, typer.Option(metavar="TARGET", help="Query this lake instead of the store, with DuckDB.")
    ] = None,
) -> None:
    """Query the record with SQL, read-only.

    The tables are threads, runs, stitches and their side tables, or the tables of a lens. `.tables` lists them, and
    `.schema TABLE` their columns. For a file store, the query runs on a copy. All projects are visible. On PostgreSQL,
    the query uses a login that can only read. If there is none, --force allows the store's own user.
    """
    session = session_of(context)
    output.check_form(form)
    if lens is not None:
        catalog.check(lens)
    asking = QueryOptions(lens, limit, seconds, "json" if session.json_output else form, force)
    if query is None and sys.stdin.isatty():
        if lake is not None:
            raise Refused("The shell needs a store. Pass a SELECT with --lake.")
        with session.open() as store:
            Shell(session.out, store, asking).run()
        return
    text: str = sys.stdin.read() if query is None else query
    if not text.strip():
        raise Refused("The query is empty. Pass a SELECT.")
    if lake is not None:
        _ask_lake(session, lake, text, asking)
        return
    with session.open() as store:
        if is_command(text):
            Shell(session.out, store, asking).command(text)
            return
        answer = ask(store, text, asking)
    output.show(session.out, answer, asking.form)
    if answer.truncated:
        session.out.note(truncation_note(answer, limit, "; use --limit for more"))


def _ask_lake(session: Session, target: str, text: str, asking: QueryOptions) -> None:
    try:
        from lockstitch.lake.query import LakeReader
    except ModuleNotFoundError as exc:
        raise missing_extra(exc, "The lake", "lake") from exc
    with LakeReader(target, asking.lens) as reader:
        if is_command(text):
            _describe(session, text, reader.tables())
            return
        answer = reader.query(text, limit=asking.limit, seconds=asking.seconds)
    output.show(session.out, answer, asking.form)
    if answer.truncated:
        session.out.note(truncation_note(answer, asking.limit, "; use --limit for more"))


def _describe(session: Session, text: str, tables: dict[str, dict[str, str]]) -> None:
    """Execute `.tables` or `.schema [TABLE]` on a lake."""
    name, *values = text.split()
    if name[1:] == "tables" and not values:
        for table in tables:
            session.out.line(table)
        return
    if name[1:] != "schema" or len(values) > 1:
        raise Refused(f"{text.strip()} is not a command for a lake. Use .tables or .schema TABLE.")
    if values and values[0] not in tables:
        raise Refused(f"Table {values[0]} does not exist. The tables are: {', '.join(tables)}.")
    for table in values or tables:
        session.out.line(f"{table}: {', '.join(f'{column} {kind}' for column, kind in tables[table].items())}")
