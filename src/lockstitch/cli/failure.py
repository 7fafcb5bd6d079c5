"""What went wrong, as one line for people or one JSON object for programs, and as an exit code."""

import os
import traceback

from lockstitch.cli import streams
from lockstitch.cli.text import safe
from lockstitch.errors import LockstitchError
from lockstitch.records import codec

FAILED = 1
USAGE = 2
PARTLY = 6
INTERRUPTED = 130

DEBUG = "LOCKSTITCH_DEBUG"
"""With this in the environment an unexpected error shows where it comes from."""


def report(exc: BaseException, *, as_json: bool) -> int:
    """Say what went wrong and return the exit code."""
    code, kind, message = explain(exc)
    if os.environ.get(DEBUG):
        streams.say("".join(traceback.format_exception(exc)).rstrip())
    if as_json:
        streams.say(codec.dumps({"error": kind, "message": message}).decode())
    else:
        streams.say(f"lockstitch: {safe(message)}")
    return code


def explain(exc: BaseException) -> tuple[int, str, str]:
    """The exit code, the name and the message of an error."""
    kind = type(exc).__name__
    if isinstance(exc, LockstitchError):
        return exc.exit_code, kind, _one_line(str(exc))
    if isinstance(exc, KeyboardInterrupt):
        return INTERRUPTED, "Interrupted", str(exc) or "interrupted"
    # What typer raises for wrong options and arguments; its classes have moved between versions, this has not.
    format_message = getattr(exc, "format_message", None)
    if format_message is not None:
        return getattr(exc, "exit_code", USAGE), "Usage", _usage(exc, str(format_message()))
    if isinstance(exc, OSError) and exc.strerror:
        where = f"{exc.filename}: " if exc.filename else ""
        return FAILED, kind, f"{where}{exc.strerror}"
    return FAILED, kind, f"unexpected {kind}: {_one_line(str(exc))} (set {DEBUG}=1 to see where; please report it)"


def _usage(exc: BaseException, message: str) -> str:
    context = getattr(exc, "ctx", None)
    command = getattr(context, "command_path", None)
    hint = f" Try `{command} --help`." if command else ""
    return f"{_one_line(message).rstrip('.')}.{hint}"


def _one_line(message: str) -> str:
    return " ".join(message.split())
