"""Options that several commands share, and confirmation."""

import sys
from typing import Annotated

import typer

from lockstitch.errors import Refused


def _bounded(value: int | None) -> int | None:
    """Limit a number to the range of the integers of a database."""
    return value if value is None else min(value, 2**31 - 1)


ThreadName = Annotated[
    str, typer.Argument(metavar="THREAD", help="A thread's key, id or short id.", show_default=False)
]
AgentName = Annotated[str, typer.Argument(metavar="AGENT", help="An agent of your app.", show_default=False)]
CallName = Annotated[
    str | None,
    typer.Argument(metavar="CALL", help="The id or key of the call, if several wait.", show_default=False),
]
RunName = Annotated[
    str,
    typer.Argument(metavar="RUN", help="A run's id or short id. A thread: its last run.", show_default=False),
]
Limit = Annotated[int, typer.Option(min=1, callback=_bounded, metavar="N", help="Maximum number of results.")]
Offset = Annotated[int, typer.Option(min=0, callback=_bounded, metavar="N", help="Number of results to skip.")]
Before = Annotated[
    int | None,
    typer.Option(min=0, callback=_bounded, metavar="NUMBER", help="Only turns before this number. Fast at any depth."),
]
Lines = Annotated[int, typer.Option("--lines", "-n", min=0, callback=_bounded, metavar="N", help="Stitches to show.")]
Since = Annotated[str | None, typer.Option(metavar="TIME", help="Only since: 90s, 15m, 12h or 7d ago, or a date.")]
Force = Annotated[bool, typer.Option("--force", help="Also delete threads that a worker holds.")]
User = Annotated[str | None, typer.Option(metavar="U", help="The user of the thread.")]
NoResume = Annotated[bool, typer.Option("--no-resume", help="Do not resume the thread here, even with --app.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


AgentOrModel = Annotated[
    str, typer.Argument(metavar="AGENT", help="An agent of your app, or a model like openai:gpt-5.", show_default=False)
]
BaseUrl = Annotated[
    str | None, typer.Option(metavar="URL", help="URL of the model server, if AGENT is a model.", show_default=False)
]
ApiKey = Annotated[
    str | None,
    typer.Option(metavar="KEY", help="Key of the model server. Default: from the environment.", show_default=False),
]
Mcp = Annotated[
    list[str] | None,
    typer.Option(metavar="COMMAND|URL", help="MCP server whose tools the model gets. Repeatable.", show_default=False),
]
System = Annotated[
    str | None, typer.Option(metavar="TEXT|@FILE", help="System text, if AGENT is a model.", show_default=False)
]
MaxTokens = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Maximum tokens of an answer, if AGENT is a model.")
]


def examples(*lines: str) -> str:
    """Return the end of a command's help: examples and the global options."""
    shown = "\n".join(f"  {line}" for line in lines)
    return (
        f"\b\n{'Examples' if len(lines) > 1 else 'Example'}:\n{shown}\n\n"
        "\b\nAlso takes --store, --project and --json: see `lockstitch --help`."
    )


def confirm(question: str, *, yes: bool) -> bool:
    """Return True if the user confirms. Raises `Refused` without a terminal, unless `yes` is set."""
    if yes:
        return True
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Refused(f"{question} Not a terminal: pass --yes to confirm.")
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    # End of input counts as no.
    return sys.stdin.readline().strip().lower() in ("y", "yes")
