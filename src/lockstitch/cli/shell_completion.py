"""`candidates`: the words that can complete a command line. Shell scripts call it by `lockstitch --complete WORD…`."""

import os
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from lockstitch.cli.stdio import FLAGS, WITH_VALUE

FLAG: Final = "--complete"
"""First argument of a command line whose other arguments are the words before the cursor."""

_KEYS: Final = 50
"""Maximum number of thread keys."""
_RECENT: Final = 1000
"""Number of threads to search for keys."""
_DEFAULT_STORE: Final = "sqlite:///lockstitch.db"


class Candidate(NamedTuple):
    """A word, and its description."""

    word: str
    text: str = ""


def candidates(words: Sequence[str]) -> list[Candidate]:
    """Return the words that can replace the last one, which may be empty. Return an empty list after an error."""
    *typed, last = words or [""]
    try:
        return [candidate for candidate in _all(typed, last) if candidate.word.startswith(last)]
    except Exception:  # a shell must not show a traceback between prompts
        return []


def _all(typed: list[str], last: str) -> Iterator[Candidate]:
    from lockstitch.cli.app import COMMANDS, SECTIONS, command

    if typed and typed[-1] in WITH_VALUE:
        return
    values, arguments = _without_globals(typed)
    if not arguments:
        if last.startswith("-"):
            yield from _options(command)
            return
        for section in SECTIONS.values():
            for name, (_, text) in section.items():
                yield Candidate(name, text)
        return
    if arguments[0] not in COMMANDS:
        return
    root: Any = command
    chosen: Any = root.get_command(None, arguments.pop(0))
    while getattr(chosen, "commands", None):
        if not arguments or arguments[0] not in chosen.commands:
            for name, subcommand in chosen.commands.items():
                yield Candidate(name, subcommand.get_short_help_str(68))
            break
        chosen = chosen.commands[arguments.pop(0)]
    yield from _of_command(chosen, arguments, last, values)


def _of_command(chosen: Any, arguments: list[str], last: str, values: dict[str, str]) -> Iterator[Candidate]:
    from lockstitch.cli.app import command

    options = {option: parameter for parameter in chosen.params for option in parameter.opts if option[:1] == "-"}
    waiting = options.get(arguments[-1]) if arguments else None
    if waiting is not None and not waiting.is_flag:
        yield from _values(waiting, last, values)
    elif last.startswith("-"):
        yield from _options(chosen)
        yield from _options(command)
    else:
        places = [parameter for parameter in chosen.params if parameter.param_type_name == "argument"]
        if places:
            yield from _values(places[min(_position(arguments, options), len(places) - 1)], last, values)


def _position(arguments: list[str], options: dict[str, Any]) -> int:
    """Return the number of arguments that are neither options nor values of options."""
    number, skip = 0, False
    for argument in arguments:
        option = options.get(argument)
        if skip:
            skip = False
        elif option is not None:
            skip = not option.is_flag
        elif not argument.startswith("-"):
            number += 1
    return number


def _options(chosen: Any) -> Iterator[Candidate]:
    for parameter in chosen.params:
        for option in parameter.opts:
            if option.startswith("--"):
                yield Candidate(option, getattr(parameter, "help", None) or "")


def _values(parameter: Any, last: str, values: dict[str, str]) -> Iterator[Candidate]:
    if parameter.metavar == "SHELL":
        yield from map(Candidate, ("bash", "zsh", "fish"))
    if "THREAD" in str(parameter.metavar):
        yield from _keys(last, values)


def _keys(last: str, values: dict[str, str]) -> Iterator[Candidate]:
    """Return the keys of recent threads that start with the last word, with the titles of the threads."""
    from lockstitch.cli.render.output import Output
    from lockstitch.cli.session import Session

    url = values.get("--store") or os.environ.get("LOCKSTITCH_STORE") or _DEFAULT_STORE
    session = Session(
        url=url,
        project=values.get("--project", "default"),
        out=Output(as_json=True),
        project_named="--project" in values,
        token=values.get("--token") or os.environ.get("LOCKSTITCH_TOKEN"),
    )
    with session.open() as store:
        heads = [head for head in store.threads(limit=_RECENT) if head.key and head.key.startswith(last)]
    for head in heads[:_KEYS]:
        yield Candidate(str(head.key), head.title or head.status)


def _without_globals(typed: list[str]) -> tuple[dict[str, str], list[str]]:
    """Return the values of the global options, and the other words."""
    values: dict[str, str] = {}
    arguments: list[str] = []
    waiting = iter(typed)
    for word in waiting:
        name, equals, value = word.partition("=")
        if name in WITH_VALUE:
            values[name] = value if equals else next(waiting, "")
        elif word not in FLAGS:
            arguments.append(word)
    return values, arguments
