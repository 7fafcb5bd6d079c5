"""Options several commands share; times as people type them; confirmation."""

import re
import sys
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from lockstitch.errors import Refused


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


_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhdw])")
FORMS = "a duration like 90s, 15m, 12h, 7d or 2w, or a time like 2026-01-31 or 2026-01-31T12:00Z"


def moment(text: str, now: datetime, option: str) -> datetime:
    """The moment that `text` names: so long before now, or that very time. Without a zone it is UTC."""
    return _moment(text, now, option, -1)


def later(text: str, now: datetime, option: str) -> datetime:
    """The same, with durations from now on."""
    return _moment(text, now, option, 1)


def _moment(text: str, now: datetime, option: str, sign: int) -> datetime:
    text = text.strip()
    duration = _DURATION.fullmatch(text)
    try:
        if duration:
            return now + sign * timedelta(**{_UNITS[duration[2]]: float(duration[1])})
        # Dates alone have no digits in common with durations, so there is nothing to confuse.
        named = datetime.fromisoformat(text)
        return named.replace(tzinfo=UTC) if named.tzinfo is None else named.astimezone(UTC)
    except (ValueError, OverflowError):
        raise Refused(f"{option} {text!r} is no time. Write {FORMS}.") from None


def moment_or_none(text: str | None, now: datetime, option: str) -> datetime | None:
    return None if text is None else moment(text, now, option)


def confirm(question: str, *, yes: bool) -> bool:
    """Whether to go on. Where nobody can answer, --yes must have said so beforehand."""
    if yes:
        return True
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Refused(f"{question} Nobody is here to ask: say --yes.")
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    # An end of input is no answer, and no answer is no.
    return sys.stdin.readline().strip().lower() in ("y", "yes")
