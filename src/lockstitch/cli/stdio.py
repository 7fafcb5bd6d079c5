"""Global options at any place in argv, and standard streams that may be closed."""

import os
import sys
from collections.abc import Sequence
from typing import TextIO, cast

from lockstitch.errors import Refused


def reopen_closed_streams() -> None:
    """Make the three standard streams usable even if the caller closed them.

    A closed stream is opened on the null device. Otherwise the next opened file, perhaps the store, would get the
    number of the stream, and printed text would be written into it.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # `open` returns the lowest free number, which is this one.
            os.open(os.devnull, os.O_RDWR)
    sys.stdin = _or_nothing(sys.stdin, "r")
    sys.stdout = _or_nothing(sys.stdout, "w")
    sys.stderr = _or_nothing(sys.stderr, "w")
    for stream in (sys.stdout, sys.stderr):
        # Content can contain any character. A terminal that cannot show it prints an escape instead of raising.
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def flush() -> None:
    """Flush stdout, so that a write error is raised while it can still be handled."""
    sys.stdout.flush()


def discard_output() -> None:
    """Discard buffered output if the reader is gone. Otherwise the interpreter would raise when it exits."""
    try:
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, sys.stdout.fileno())
        os.close(nothing)
    except (OSError, ValueError):
        pass


def print_error(line: str) -> None:
    """Print one line to stderr. Write errors are ignored, because there is no other place to report them."""
    try:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        pass


def _or_nothing(stream: TextIO | None, mode: str) -> TextIO:
    if stream is not None:
        return stream
    return cast("TextIO", open(os.devnull, mode, encoding="utf-8"))


WITH_VALUE = ("--store", "--app", "--project", "--token")
FLAGS = ("--json",)


def move_global_options(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with the global options first. Arguments after `--` stay unchanged."""
    hoisted: list[str] = []
    other_arguments: list[str] = []
    waiting = iter(arguments)
    for argument in waiting:
        if argument == "--":
            other_arguments += [argument, *waiting]
        elif argument in WITH_VALUE:
            # If the value is missing, the parser reports it.
            hoisted += [argument, *(value for value in [next(waiting, None)] if value is not None)]
        elif argument in FLAGS or argument.startswith(tuple(f"{name}=" for name in WITH_VALUE)):
            hoisted.append(argument)
        else:
            other_arguments.append(argument)
    return [*hoisted, *other_arguments]


def wants_json(arguments: Sequence[str]) -> bool:
    """True if the arguments contain --json. Works on invalid arguments too, so that their error is also JSON."""
    before = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in before


def check_encoding(arguments: Sequence[str]) -> None:
    """Raise `Refused` for an argument that is not valid UTF-8, before it reaches a database."""
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise Refused(f"An argument is not valid UTF-8: {argument.encode('utf-8', 'surrogateescape')!r}.") from None
