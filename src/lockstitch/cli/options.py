"""Options that several commands share, parsing of times, and confirmation."""

import re
import sys
from datetime import UTC, datetime, timedelta
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


_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhdw])")
FORMS = "a duration like 90s, 15m, 12h, 7d or 2w, or a time like 2026-01-31 or 2026-01-31T12:00Z"


def moment(text: str, now: datetime, option: str) -> datetime:
    """Parse a point in time. A duration counts back from `now`. A time without a zone is UTC.

    Raises `Refused` if `text` is neither a duration nor a time. `option` names the option in that error.
    """
    return _moment(text, now, option, -1)


def later(text: str, now: datetime, option: str) -> datetime:
    """Parse a point in time like `moment`, but count a duration forward from `now`."""
    return _moment(text, now, option, 1)


def _moment(text: str, now: datetime, option: str, sign: int) -> datetime:
    text = text.strip()
    duration = _DURATION.fullmatch(text)
    try:
        if duration:
            return now + sign * timedelta(**{_UNITS[duration[2]]: float(duration[1])})
        # A date cannot match the pattern of a duration, so the two forms are never confused.
        named = datetime.fromisoformat(text)
        return named.replace(tzinfo=UTC) if named.tzinfo is None else named.astimezone(UTC)
    except (ValueError, OverflowError):
        raise Refused(f"{option} {text!r} is not a time. Use {FORMS}.") from None


def moment_or_none(text: str | None, now: datetime, option: str) -> datetime | None:
    return None if text is None else moment(text, now, option)


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
