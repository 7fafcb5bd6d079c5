"""Arguments of a call, as the tool got them, from however they were written down."""

import re
from typing import Any, Final, cast

from lockstitch.bridges.langsmith.values import bag
from lockstitch.bridges.literal import LONGEST, literal
from lockstitch.bridges.storable import parse, storable

_DEEPEST_ARGUMENTS: Final = 60
_REPR: Final = re.compile(
    r"""content=(?P<content>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")(?=\s|$)(?:.*\bname='(?P<name>[^']*)')?""", re.DOTALL
)
_REPR_ID: Final = re.compile(r"""\btool_call_id='([^']*)'""")
_REPR_STATUS: Final = re.compile(r"""\bstatus='([^']*)'""")


def arguments(value: Any) -> Any:
    """What a model asked with. Text that is no JSON object is kept under `__invalid_json`, as our providers do."""
    if not isinstance(value, str):
        return value
    if not value.strip():
        return {}
    try:
        parsed = storable(parse(value), parsed=True)
    except (ValueError, RecursionError):
        return {"__invalid_json": value}
    return bag(parsed) if isinstance(parsed, dict) else {"__invalid_json": value}


def tool_input(inputs: Any) -> Any:
    """What a tool run was given: {"input": "{'a': 2}"} of older versions is a Python object's text.

    Read as a literal, never evaluated; then as JSON; else it stays the text that it is, since a tool may well take one.
    """
    given = bag(inputs)
    if set(given) == {"input"}:
        only = given["input"]
        return _literal(only) if isinstance(only, str) else bag(only) or given
    if given.get("type") == "tool_call" and isinstance(given.get("args"), dict):
        return given["args"]
    return given


def tool_message(words: str) -> dict[str, Any] | None:
    """The fields of a ToolMessage that an old version wrote down as Python prints it; None if it is none."""
    if len(words) > LONGEST or not words.startswith("content=") or not (called := _REPR_ID.search(words)):
        return None
    match = _REPR.match(words)
    if match is None:
        return None
    content = literal(match["content"])
    if content is None:
        return None
    status = _REPR_STATUS.search(words)
    fields = {"content": content, "tool_call_id": called[1], "name": match["name"], "status": status and status[1]}
    return {key: value for key, value in storable(fields).items() if value is not None}


def _literal(words: str) -> Any:
    start = words.strip()
    if start[:1] not in ("{", "[") or len(words) > LONGEST or _depth(start) > _DEEPEST_ARGUMENTS:
        return _json(words)
    found = literal(start)
    return cast("Any", found) if isinstance(found, dict | list) else _json(words)


def _json(words: str) -> Any:
    try:
        found = storable(parse(words), parsed=True)
    except (ValueError, RecursionError):
        return words
    return cast("Any", found) if isinstance(found, dict | list) else words


def _depth(words: str) -> int:
    """No deeper than this: an upper bound, cheap, and enough to keep a parser that recurses out of trouble."""
    deepest = level = 0
    for character in words:
        if character in "[({":
            level += 1
            deepest = max(deepest, level)
        elif character in "])}":
            level -= 1
    return deepest
