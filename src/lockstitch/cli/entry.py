"""`run`: execute one command line and turn every error into a message and an exit code."""

import os
import sys
from collections.abc import Sequence

from lockstitch.cli import errors, shell_completion, stdio
from lockstitch.cli.render.text import one_line
from lockstitch.cli.stdio import check_encoding, wants_json
from lockstitch.version import VERSION

NAME = "lockstitch"


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    stdio.reopen_closed_streams()
    as_json = wants_json(arguments)
    try:
        check_encoding([*arguments, os.environ.get("LOCKSTITCH_STORE", "")])
        code = _invoke(list(arguments) or ["--help"])
        stdio.flush()
    except BrokenPipeError:
        # The reader has closed the pipe, as `| head` does. That is not a failure.
        stdio.discard_output()
        return 0
    except (Exception, KeyboardInterrupt) as exc:
        code = _after(errors.report(exc, as_json=as_json))
    return code


def _invoke(arguments: list[str]) -> int:
    if arguments == ["--version"]:
        # Needs no parser, whose import takes longer than everything else here.
        sys.stdout.write(f"{NAME} {VERSION}\n")
        return 0
    if arguments[0] == shell_completion.FLAG:
        for word, text in shell_completion.candidates(arguments[1:]):
            sys.stdout.write(f"{one_line(word)}\t{one_line(text)}\n")
        return 0
    import typer

    from lockstitch.cli.app import command

    # Typer's own entry point would turn a broken pipe and an interrupt into its own exit codes.
    try:
        with command.make_context(NAME, arguments) as context:
            command.invoke(context)
    except typer.Exit as done:
        return done.exit_code
    return 0


def _after(code: int) -> int:
    """Flush the output that a failed command has already written, if possible, and return `code`."""
    try:
        stdio.flush()
    except OSError:
        stdio.discard_output()
    return code
