"""Global options anywhere in argv; standard streams that may be closed."""

import os
import sys
from collections.abc import Sequence
from typing import TextIO, cast

from lockstitch.errors import Refused


def mend() -> None:
    """Make the three streams usable whatever the caller left of them.

    A closed one is opened on nothing: otherwise the next file that is opened, perhaps a store, would get its number
    and what is printed would be written into it.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number is taken, which is this one.
            os.open(os.devnull, os.O_RDWR)
    sys.stdin = _or_nothing(sys.stdin, "r")
    sys.stdout = _or_nothing(sys.stdout, "w")
    sys.stderr = _or_nothing(sys.stderr, "w")
    for stream in (sys.stdout, sys.stderr):
        # Content may hold anything; a terminal that cannot show it gets an escape instead of an error.
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def flush() -> None:
    """Write out what is buffered, so that what goes wrong with it is seen while somebody can still handle it."""
    sys.stdout.flush()


def abandon() -> None:
    """Forget what is still buffered for a reader that is gone; the interpreter would stumble over it at its end."""
    try:
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, sys.stdout.fileno())
        os.close(nothing)
    except (OSError, ValueError):
        pass


def say(line: str) -> None:
    """One line on stderr; when even that cannot be written there is nobody to tell."""
    try:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        pass


def _or_nothing(stream: TextIO | None, mode: str) -> TextIO:
    if stream is not None:
        return stream
    return cast("TextIO", open(os.devnull, mode, encoding="utf-8"))


WITH_VALUE = ("--store", "--app", "--project")
FLAGS = ("--json",)


def move_global_options(arguments: Sequence[str]) -> list[str]:
    """The arguments with the global options first. What follows `--` is left alone."""
    hoisted: list[str] = []
    rest: list[str] = []
    waiting = iter(arguments)
    for argument in waiting:
        if argument == "--":
            rest += [argument, *waiting]
        elif argument in WITH_VALUE:
            # A value that is missing is missed by the parser, in its own words.
            hoisted += [argument, *(value for value in [next(waiting, None)] if value is not None)]
        elif argument in FLAGS or argument.startswith(tuple(f"{name}=" for name in WITH_VALUE)):
            hoisted.append(argument)
        else:
            rest.append(argument)
    return [*hoisted, *rest]


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether JSON is asked for, also where the rest makes no sense: that error is to be JSON too."""
    before = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in before


def check_encoding(arguments: Sequence[str]) -> None:
    """Refuse bytes that are no text before they reach a database that refuses them with more noise."""
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise Refused(f"An argument is not valid UTF-8: {argument.encode('utf-8', 'surrogateescape')!r}.") from None
