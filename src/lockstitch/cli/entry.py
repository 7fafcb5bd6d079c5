"""The edge: from what was typed to an exit code, with no traceback for anything a user can cause."""

import os
from collections.abc import Sequence

from lockstitch.cli import errors, stdio
from lockstitch.cli.stdio import check_encoding, wants_json

NAME = "lockstitch"


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    stdio.mend()
    as_json = wants_json(arguments)
    try:
        check_encoding([*arguments, os.environ.get("LOCKSTITCH_STORE", "")])
        code = _invoke(list(arguments) or ["--help"])
        stdio.flush()
    except BrokenPipeError:
        # The reader has seen what it wanted; `| head` is no failure.
        stdio.abandon()
        return 0
    except (Exception, KeyboardInterrupt) as exc:
        code = _after(errors.report(exc, as_json=as_json))
    return code


def _invoke(arguments: list[str]) -> int:
    import typer

    from lockstitch.cli.app import command

    # Not through typer's own entry, which turns a broken pipe and an interrupt into exit codes of its own.
    try:
        with command.make_context(NAME, arguments) as context:
            command.invoke(context)
    except typer.Exit as done:
        return done.exit_code
    return 0


def _after(code: int) -> int:
    """Bring out what a failed command had said already, if it can be."""
    try:
        stdio.flush()
    except OSError:
        stdio.abandon()
    return code
