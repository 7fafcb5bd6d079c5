"""Conversion of foreign values to values that every store accepts.

A trace is never rejected because of a value. Values that no store accepts are replaced: NUL and lone surrogates by
U+FFFD, non-finite numbers by null, values nested too deeply by their text, and names that are too long for an index by
their start and a digest.
"""

import ast
import json
import math
import re
import warnings
from datetime import date, datetime
from decimal import Decimal
from hashlib import sha256
from typing import Any, Final, cast
from uuid import UUID

import orjson

from lockstitch.model import codec
from lockstitch.model.clock import format_time

DEPTH = 100
"""Levels of nesting that stay of a value with too many levels. The codec accepts 250."""

LONGEST_NAME = 512
"""Maximum characters of an id or a name. PostgreSQL rejects an index entry of more than 2,704 bytes."""

# A value is wrapped a few times before it is stored.
_HEADROOM = 10
_STRICT = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def storable(value: Any, *, parsed: bool = False) -> Any:
    """Return `value` as JSON that every store accepts. Return the same object if it already is.

    `parsed` means that `parse` returned the value, so that all its numbers are finite.
    """
    return value if _is_storable(value, parsed) else _stored(value, 0)


def parse(text: str | bytes) -> Any:
    """Parse a JSON text. Also accept NaN and lone surrogates, which some parsers reject."""
    return DECODER.decode(text if isinstance(text, str) else text.decode(errors="replace"))


def _finite(digits: str) -> float | None:
    number = float(digits)
    return number if math.isfinite(number) else None


def _nothing(_: str) -> None:
    """Return None for NaN and Infinity."""


DECODER = json.JSONDecoder(strict=False, parse_float=_finite, parse_constant=_nothing)
"""Accepts more than orjson, and reads integers of any length exactly."""


def name(value: Any) -> str | None:
    """Return an id or a name as text of limited length, or None if there is none."""
    if value is None:
        return None
    if type(value) is str and len(value) <= LONGEST_NAME and value.isascii() and "\x00" not in value:
        return value.strip() or None
    if isinstance(value, bytes):
        value = UUID(bytes=value) if len(value) == 16 else value.decode(errors="replace")
    if isinstance(value, bool) or not isinstance(value, str | int | UUID):
        return None
    text = _UNSTORABLE.sub("\ufffd", str(value).strip())
    if len(text) > LONGEST_NAME:
        # Surrogates are replaced by now, so this can be encoded.
        text = f"{text[:200]}…{sha256(text.encode()).hexdigest()}"
    return text or None


def as_text(value: Any) -> str:
    """Return text unchanged, and any other value as JSON."""
    if isinstance(value, str):
        return value
    return codec.dumps(storable(value)).decode()


def _is_storable(value: Any, parsed: bool) -> bool:
    """True if the codec accepts the value. orjson decides, because it is fast and nearly every value is valid."""
    wrapped = value
    for _ in range(_HEADROOM):
        wrapped = [wrapped]
    try:
        written = orjson.dumps(wrapped, option=_STRICT)
    except TypeError:
        return False
    # orjson writes null for non-finite numbers, and a NUL as an escape.
    return b"\\u0000" not in written and (parsed or b"null" not in written or _is_finite(value))


def _is_finite(value: Any) -> bool:
    level: list[Any] = [value]
    while level:
        each = level.pop()
        if type(each) is dict:
            level.extend(cast("dict[str, Any]", each).values())
        elif type(each) is list:
            level.extend(cast("list[Any]", each))
        elif type(each) is float and not math.isfinite(each):
            return False
    return True


def _stored(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return _UNSTORABLE.sub("\ufffd", value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float | Decimal):
        number = float(value)
        return number if math.isfinite(number) else None
    if isinstance(value, dict):
        if depth >= DEPTH:
            return _flat(cast("Any", value))
        members = cast("dict[Any, Any]", value).items()
        return {str(_stored(str(key), depth)): _stored(member, depth + 1) for key, member in members}
    if isinstance(value, list | tuple | set | frozenset):
        return (
            _flat(cast("Any", value)) if depth >= DEPTH else [_stored(each, depth + 1) for each in cast("Any", value)]
        )
    return _UNSTORABLE.sub("\ufffd", _written(value))


def _flat(value: Any) -> str:
    """Return a value that is nested too deeply as text."""
    try:
        return _UNSTORABLE.sub("\ufffd", json.dumps(value, default=str, ensure_ascii=False))
    except (RecursionError, TypeError, ValueError):
        return "(nested too deeply)"


def _written(value: Any) -> str:
    if isinstance(value, datetime):
        return format_time(value) if value.tzinfo else value.isoformat()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(cast("bytes", value)).decode(errors="replace")
    return str(value)


LONGEST: Final = 100_000
"""Maximum characters of a text that is parsed as a literal."""


def literal(words: str) -> Any:
    """Parse a Python literal and return it as JSON, or None if it is not a literal."""
    if len(words) > LONGEST:
        return None
    try:
        with warnings.catch_warnings():
            # A stray backslash in foreign text is not an error of this program.
            warnings.simplefilter("ignore")
            literal_eval = ast.literal_eval(words)
        # Written and parsed again, because tuples and sets of Python are lists in JSON.
        return literal_eval if isinstance(literal_eval, str) else parse(as_text(literal_eval))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
