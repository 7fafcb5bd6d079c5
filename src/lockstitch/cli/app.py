"""`command`: all commands of `lockstitch` and the global options.

The module of a command is imported when the command is called. So `--help` and shell completion stay fast.
"""

from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from lockstitch.cli.stdio import move_global_options
from lockstitch.version import VERSION

SECTIONS = {
    "Run agents": {
        "run": ("run", "Send a prompt to an agent and execute the run here to its end."),
        "chat": ("run", "Chat with an agent or a model, line by line."),
        "start": ("run", "Create threads with a goal and print their ids."),
        "resume": ("run", "Resume an interrupted thread, or a thread that has its reply."),
        "retry": ("run", "Retry failed or cancelled runs, each as a new run with its context."),
        "schedule": ("schedule", "Start threads by a cron expression or at an interval."),
        "cancel": ("run", "Cancel the open run of threads, also in another process."),
        "regenerate": ("run", "Answer the last turn again, in a fork that takes the thread's key."),
        "replay": ("replay", "Run a recorded thread or run again, and compare both."),
        "fork": ("run", "Create a thread from a position of another thread."),
        "worker": ("worker", "Execute ready threads, many at once."),
        "eval": ("evals", "Run a dataset against an agent and grade its answers."),
        "evals": ("evaluations", "List, show and compare evaluations."),
        "dataset": ("datasets", "Create, change and export datasets; add runs to them."),
        "prioritize": ("prioritize", "Order tasks towards an outcome, in waves of parallel tasks."),
        "serve": ("serve", "Serve the pages, the JSON API and the endpoints for traces."),
        "mcp": ("mcp", "Serve the record to an MCP client on stdin and stdout."),
        "demo": ("serve", "Kill an agent during a payment, then resume it."),
    },
    "Reply to waiting threads": {
        "inbox": ("replies", "List the calls and questions that wait for a person, with the commands that reply."),
        "approve": ("replies", "Approve the call that waits for approval, of one thread or of several."),
        "deny": ("replies", "Deny the call that waits for approval."),
        "settle": ("replies", "Settle the call that was interrupted and has an unknown outcome."),
        "answer": ("replies", "Answer the question that a thread asked during a run."),
        "submit": ("replies", "Submit the results of calls that a frontend executes."),
    },
    "Inspect threads": {
        "threads": ("threads", "List threads, the most recently active first."),
        "watch": ("worker", "Show open threads, their workers and their cost, live."),
        "show": ("show", "Show a thread, a run as a tree, or the difference of two runs."),
        "context": ("show", "Show the messages that the model would receive now."),
        "history": ("show", "Show finished turns, newest first."),
        "log": ("log", "Show all stitches of a run in order, or of the last run of a thread."),
        "request": ("log", "Print the exact request of a model call, as JSON."),
        "tail": ("log", "Show the newest stitches."),
    },
    "Search and report": {
        "search": ("log", "Search titles, messages, tool calls, tool results and errors."),
        "errors": ("log", "Show the failures of all threads and imported traces, grouped by cause."),
        "stats": ("stats", "Show usage, cost, latency and failures of the agents."),
        "alert": ("alerts", "Set, list and remove limits for cost, errors and latency."),
        "size": ("stats", "Show the stored bytes and the estimates of the three-table document."),
        "sql": ("sql", "Query the record with SQL, read-only."),
    },
    "Change": {
        "adopt": ("threads", "Create a thread from an existing conversation and print its id."),
        "title": ("threads", "Set the title of a thread."),
        "feedback": ("feedback", "List, add and delete feedback on threads, runs and stitches."),
        "delete": ("maintenance", "Delete threads, their descendants and all their data."),
    },
    "Import and export": {
        "import": ("transfer", "Import traces."),
        "export": ("transfer", "Export a lens, a run or a thread to a file."),
        "ingest": ("ingest", "Show the ingest queue; read bodies in quarantine again."),
    },
    "Maintain": {
        "copy": ("transfer", "Copy a store, or one tree of it, into another."),
        "lake": ("lake", "Write the history of a record to Delta Lake tables."),
        "backup": ("backup", "Take, list and restore snapshots of a SQLite store."),
        "archive": ("maintenance", "Compress old turns that no context needs."),
        "restore": ("maintenance", "Write archived turns back to the logs of their threads, also from a lake."),
        "purge": ("maintenance", "Delete whole trees of threads with all their data."),
        "migrate": ("maintenance", "Upgrade a store to this version in place, or create it."),
        "doctor": ("maintenance", "Check a store."),
        "token": ("serve", "Create, list and revoke tokens of a project."),
        "completion": ("completion", "Print the completion script of a shell."),
    },
}
"""The commands by section of the help: name, module in `lockstitch.cli.commands`, and first sentence of the help."""

COMMANDS = {name: module for section in SECTIONS.values() for name, (module, _) in section.items()}
"""The names of all commands, with their modules."""


class _Group(TyperGroup):
    """Accept global options before and after the command name, list the commands in sections, and load them late."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        # The parser suggests the closest of these names. `get_command` loads the command.
        self.commands = dict.fromkeys(COMMANDS) | dict(self.commands)  # type: ignore[assignment]
        return super().parse_args(ctx, move_global_options(args))

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        module = COMMANDS.get(cmd_name)
        if module is None:
            return None
        # The help of a command has the format of the Typer that it was added to.
        outer = typer.Typer(rich_markup_mode=None)
        outer.add_typer(import_module(f"lockstitch.cli.commands.{module}").app)
        return typer.main.get_group(outer).commands[cmd_name]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, text) for name, (_, text) in commands.items()])


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
        str, typer.Option(metavar="URL", envvar="LOCKSTITCH_STORE", help="URL of the store, or of a server.")
    ] = "sqlite:///lockstitch.db",
    app_name: Annotated[
        str | None,
        typer.Option(
            "--app",
            metavar="MODULE:NAME",
            envvar="LOCKSTITCH_APP",
            help="The app with your agents: a module or a file, such as ./shop.py:app.",
        ),
    ] = None,
    project: Annotated[str, typer.Option(metavar="P", help="The project.")] = "default",
    token: Annotated[
        str | None,
        typer.Option(metavar="TOKEN", envvar="LOCKSTITCH_TOKEN", help="Token, if the store is a server."),
    ] = None,
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
    # Imported here, because they import the store.
    from lockstitch.cli.render.output import Output
    from lockstitch.cli.session import Session, is_server
    from lockstitch.errors import Refused

    def is_stated(name: str) -> bool:
        source = context.get_parameter_source(name)
        return source is not None and source.name == "COMMANDLINE"

    if is_server(store) and is_stated("app_name"):
        raise Refused("--app needs the database URL of the store. The agents of a server run there.")
    context.obj = Session(
        url=store,
        project=project,
        out=Output(as_json=as_json),
        # The variable of the environment is for databases.
        app_name=None if is_server(store) else app_name,
        project_named=is_stated("project"),
        token=token,
    )


command = typer.main.get_command(app)
"""The command that `lockstitch` runs."""
