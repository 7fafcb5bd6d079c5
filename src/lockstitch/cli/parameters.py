"""Arguments and options that several commands take, worded once."""

from typing import Annotated

import typer


def _bounded(value: int | None) -> int | None:
    """Whoever asks for more than fits a database's integers asks for everything."""
    return value if value is None else min(value, 2**31 - 1)


ThreadName = Annotated[str, typer.Argument(metavar="THREAD", help="A thread's id or key.", show_default=False)]
AgentName = Annotated[str, typer.Argument(metavar="AGENT", help="An agent of your app.", show_default=False)]
CallName = Annotated[
    str, typer.Argument(metavar="CALL", help="The call's id, as `show` has it, or its key.", show_default=False)
]
RunName = Annotated[str, typer.Argument(metavar="RUN", help="A run's id.", show_default=False)]
Limit = Annotated[int, typer.Option(min=1, callback=_bounded, metavar="N", help="At most so many.")]
Offset = Annotated[int, typer.Option(min=0, callback=_bounded, metavar="N", help="Pass over so many first.")]
Before = Annotated[
    int | None,
    typer.Option(min=0, callback=_bounded, metavar="NUMBER", help="Only turns before this one, fast at any depth."),
]
Lines = Annotated[int, typer.Option("--lines", "-n", min=0, callback=_bounded, metavar="N", help="Begin so many back.")]
Since = Annotated[str | None, typer.Option(metavar="TIME", help="Only since then: 90s, 15m, 12h, 7d ago, or a date.")]
Force = Annotated[bool, typer.Option("--force", help="Also what a worker holds just now.")]
User = Annotated[str | None, typer.Option(metavar="U", help="Whose thread it is.")]
NoResume = Annotated[bool, typer.Option("--no-resume", help="Do not go on with it here, even with --app.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def examples(*lines: str) -> str:
    """The end of a command's help: how it is called."""
    shown = "\n".join(f"  {line}" for line in lines)
    return (
        f"\b\n{'Examples' if len(lines) > 1 else 'Example'}:\n{shown}\n\n"
        "\b\nAlso takes --store, --project and --json: see `lockstitch --help`."
    )
