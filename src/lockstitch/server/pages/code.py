"""Content as code: JSON in pieces that a template prints one by one, each escaped. Syntax is weight and shade."""

from collections.abc import Iterator
from typing import Any, Final, cast

from lockstitch.records import Json, codec, text_of
from lockstitch.records.message import blocks

WIDTH: Final = 88
"""Characters of a line; what is shorter stays on one."""

DEEPEST: Final = 40
"""Levels that are broken into lines; what lies below stays on one."""

LIMIT: Final = 20_000
"""Characters shown at once. The whole is never far, and a browser that lays out megabytes is."""

Piece = tuple[str, str]
"""A class, `k` for keys, `p` for punctuation or none, and the text."""


def json_pieces(value: Any, limit: int = LIMIT) -> list[Piece]:
    """A value as pieces. Texts are shown as JSON has them, so that nothing is ambiguous."""
    pieces: list[Piece] = []
    size = 0
    for kind, text in _pieces(value, 0):
        size += len(text)
        if size > limit:
            pieces.append((kind, text[: max(0, len(text) - (size - limit))]))
            pieces.append(("p", " …"))
            break
        pieces.append((kind, text))
    return pieces


def _pieces(value: Any, level: int) -> Iterator[Piece]:
    if not value or not isinstance(value, dict | list):
        yield ("", codec.dumps(value).decode())
        return
    line = codec.dumps(cast("Any", value)).decode() if level >= DEEPEST or _small(value) else None
    if level >= DEEPEST and line is not None:
        yield ("", line)
        return
    flat = line is not None and len(line) + level * 2 <= WIDTH
    opening, closing = ("{", "}") if isinstance(value, dict) else ("[", "]")
    inner = "" if flat else "\n" + "  " * (level + 1)
    items: list[tuple[str | None, Any]]
    if isinstance(value, dict):
        items = [(str(key), one) for key, one in cast("dict[Any, Any]", value).items()]
    else:
        items = [(None, one) for one in cast("list[Any]", value)]
    yield ("", opening + inner)
    for number, (key, one) in enumerate(items):
        if number:
            yield ("p", ", " if flat else ",")
            if not flat:
                yield ("", inner)
        if key is not None:
            yield ("k", codec.dumps(key).decode())
            yield ("p", ": ")
        yield from _pieces(one, level + 1)
    yield ("", closing if flat else "\n" + "  " * level + closing)


def _small(value: Any) -> bool:
    """Whether it may fit on a line, without writing all of it to find out."""
    left = WIDTH
    waiting: list[Any] = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            left -= len(one) + 2
        elif isinstance(one, dict):
            known = cast("dict[Any, Any]", one)
            left -= 2 + sum(len(str(key)) + 4 for key in list(known)[:WIDTH])
            waiting += list(known.values())[:WIDTH]
        elif isinstance(one, list):
            known_list = cast("list[Any]", one)
            left -= 2 + len(known_list)
            waiting += known_list[:WIDTH]
        else:
            left -= 1
        if left < 0:
            return False
    return True


def arguments(value: Any, limit: int = 160) -> str:
    """The input of a call on one line: names and values, without the braces."""
    if not isinstance(value, dict):
        return cut(codec.dumps(value).decode(), limit) if value else ""
    said = ""
    for key, one in cast("dict[str, Any]", value).items():
        shown = one[:limit] if isinstance(one, str) else one
        said += f"{', ' if said else ''}{key} {codec.dumps(shown).decode()}"
        if len(said) > limit:
            return cut(said, limit)
    return said


def cut(text: str, limit: int) -> str:
    """The beginning of a text, and a sign that there is more."""
    return text if len(text) <= limit else text[:limit].rstrip() + "…"


def one_line(text: str, limit: int = 200) -> str:
    """The beginning of a text without line breaks."""
    return cut(" ".join(text[: limit * 4].split()), limit)


def answer_line(text: str, limit: int = 200) -> str:
    """The beginning of an answer without line breaks; one that is JSON by its names, not by what lies deeper."""
    given = text.strip().removeprefix("```json").removesuffix("```").strip()
    if not given.startswith("{") or len(given) > LIMIT * 10:
        return one_line(text, limit)
    try:
        value = cast("dict[str, Any]", codec.loads(given))
    except ValueError:
        return one_line(text, limit)
    told = ((one_line(name.replace("_", " "), 40), _told(one)) for name, one in value.items())
    return one_line(" · ".join(f"{name} {said}" for name, said in told if said), limit) or one_line(text, limit)


def _told(value: Any) -> str:
    """A text or a number as it is, and how many there are of what is many."""
    if isinstance(value, dict | list):
        return f"{len(cast('list[Any]', value)):,}"
    return one_line(value) if isinstance(value, str) else "" if value is None else codec.dumps(value).decode()


def json_text(value: Any) -> str:
    return codec.dumps(value).decode()


def message_line(message: Json) -> str:
    """A message on one line: what it says, what it calls, what it answers."""
    said: list[str] = []
    for block in blocks(message)[:20]:
        match block.get("type"):
            case "text":
                said.append(one_line(str(block.get("text"))))
            case "tool_use":
                said.append(f"{block.get('name')}({arguments(block.get('input'), 60)})")
            case "tool_result":
                content: Any = block.get("content")
                said.append("result: " + one_line(content if isinstance(content, str) else text_of(block), 80))
            case kind:
                said.append(f"[{kind}]")
    return " ".join(said)
