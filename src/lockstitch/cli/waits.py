"""What a thread waits for, and what to type so that it goes on."""

import shlex
from collections.abc import Sequence
from typing import Any

from lockstitch.cli.text import one_line
from lockstitch.records import Json
from lockstitch.records.thread import open_waits

__all__ = ["explain", "open_waits"]


def explain(name: str, waits: Sequence[Json]) -> str:
    """The sentences that tell a person what to do."""
    return " ".join([f"Thread {one_line(name)} waits.", *(f"{_what(one)}: {_commands(name, one)}." for one in waits)])


def _what(wait: Json) -> str:
    kind = str(wait.get("kind"))
    call = " ".join(one_line(str(part)) for part in (wait.get("name"), wait.get("id")) if part)
    match kind:
        case "approval":
            return f"A person must agree to {call}"
        case "doubt":
            return f"Nobody knows whether {call} took effect before it was cut off"
        case "frontend_tools":
            return f"A browser must execute {call}"
        case "input":
            return "It asked something"
        case "retry":
            return f"It cannot go on with {call} ({one_line(str(wait.get('reason') or 'no reason given'))})"
        case _:
            until: Any = wait.get("until")
            return f"It waits for {one_line(kind)}{f' until {until}' if until else ''}"


def _commands(name: str, wait: Json) -> str:
    thread, call = shlex.quote(one_line(name)), shlex.quote(one_line(str(wait.get("id"))))
    match wait.get("kind"):
        case "approval":
            return f"`lockstitch approve {thread} {call}` or `lockstitch deny {thread} {call}`"
        case "doubt":
            return f'`lockstitch settle {thread} {call} --done "what it gave"` or `… --redo`'
        case "frontend_tools":
            return f"hand in its result with submit_results, or in `lockstitch chat AGENT --thread {thread}`"
        case "input":
            return f'`lockstitch answer {thread} "…"`'
        case _:
            return f"`lockstitch resume {thread}` looks again, `lockstitch cancel {thread}` ends it"
