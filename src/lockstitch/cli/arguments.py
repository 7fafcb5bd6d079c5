"""Global options anywhere: `lockstitch threads --json` is `lockstitch --json threads`."""

from collections.abc import Sequence

from lockstitch.errors import Refused

WITH_VALUE = ("--store", "--app", "--project")
FLAGS = ("--json",)


def hoist(arguments: Sequence[str]) -> list[str]:
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
