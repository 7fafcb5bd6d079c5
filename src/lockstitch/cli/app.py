"""`app`: all commands of `lockstitch` and the global options."""

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from lockstitch.cli.commands import (
    evals,
    ingest,
    log,
    maintenance,
    prioritize,
    replies,
    run,
    serve,
    show,
    sql,
    stats,
    threads,
    transfer,
    worker,
)
from lockstitch.cli.render.output import Output
from lockstitch.cli.session import Session
from lockstitch.cli.stdio import move_global_options
from lockstitch.version import VERSION

SECTIONS = {
    "Run agents": (
        *(
            "run",
            "chat",
            "start",
            "resume",
            "retry",
            "cancel",
            "regenerate",
            "fork",
            "worker",
            "eval",
            "prioritize",
            "serve",
            "demo",
        ),
    ),
    "Reply to waiting threads": ("approve", "deny", "settle", "answer", "submit"),
    "Inspect threads": ("threads", "watch", "show", "context", "history", "log", "request", "tail"),
    "Search and report": ("search", "errors", "stats", "size", "sql"),
    "Change": ("adopt", "title", "delete"),
    "Import and export": ("import", "export", "ingest"),
    "Maintain": ("copy", "archive", "purge", "migrate", "doctor", "token"),
}


class _Group(TyperGroup):
    """Accept global options before and after the command name, and list the commands in sections."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, move_global_options(args))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        commands = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        for title, names in SECTIONS.items():
            rows = [(name, command.get_short_help_str(68)) for name in names if (command := commands.get(name))]
            with formatter.section(title):
                formatter.write_dl(rows)


app = typer.Typer(
    name="lockstitch",
    cls=_Group,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _version(requested: bool) -> None:
    if requested:
        typer.echo(f"lockstitch {VERSION}")
        raise typer.Exit


@app.callback()
def globals_of(
    context: typer.Context,
    store: Annotated[
        str, typer.Option(metavar="URL", envvar="LOCKSTITCH_STORE", help="URL of the store.")
    ] = "sqlite:///lockstitch.db",
    app_name: Annotated[
        str | None,
        typer.Option("--app", metavar="MODULE:NAME", envvar="LOCKSTITCH_APP", help="The app with your agents."),
    ] = None,
    project: Annotated[str, typer.Option(metavar="P", help="The project.")] = "default",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, also for errors.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """One durable record of everything AI agents do.

    Global options can come before or after the command name.

    \b
    Exit codes: 0 success, 1 failure, 2 invalid usage, 3 not found,
    4 busy, conflict or waiting, 5 store unreachable, damaged or newer,
    6 partial success, 130 interrupted.
    """
    source = context.get_parameter_source("project")
    context.obj = Session(
        url=store,
        project=project,
        out=Output(as_json=as_json),
        app_name=app_name,
        project_named=source is not None and source.name != "DEFAULT",
    )


for group in (
    *(run, worker, evals, prioritize, serve, replies),
    *(threads, show, log),
    *(stats, sql),
    *(transfer, ingest, maintenance),
):
    app.add_typer(group.app)

command = typer.main.get_command(app)
"""The command that `lockstitch` runs."""
