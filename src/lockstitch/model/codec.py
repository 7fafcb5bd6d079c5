"""Exact JSON, and text that every store can keep.

orjson does the work. Guards prevent the two cases in which it changes a value silently: it writes NaN as null and reads
integers outside 64 bits as floats. Text that this module wrote, read and written again, has the same bytes. Values that
JSON does not have are converted: tuples to lists, UUIDs, enumerations and subclasses of `str` to text.
"""

import json
import math
import re
from hashlib import sha256
from typing import Any, Final, cast

import orjson

from lockstitch.errors import Refused, wire_name_of

# orjson rejects the types that it passes through. A datetime or dataclass would be written, but not read back as such.
_OPTIONS = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS
_WRONG_KEY: Final = "Dict key must be str"
_DIGITS: Final = bytes(48 if 48 <= byte <= 57 else 32 for byte in range(256))
_LONG_NUMBER: Final = b"0" * 19


def dumps(value: Any) -> bytes:
    """Return the JSON text of `value`. Raises `Refused` if JSON cannot represent it exactly."""
    try:
        text = orjson.dumps(value, _plain_text, _OPTIONS)
    except TypeError as exc:
        return _dumps_slowly(value, exc)
    if b"null" in text:
        _refuse_nan(value)
    return text


def loads(text: bytes | str) -> Any:
    """Return the value of a JSON text. Integers of any size are exact."""
    return json.loads(text) if has_long_number(text) else orjson.loads(text)


def has_long_number(text: bytes | str) -> bool:
    """True if a text has 19 digits in a row, so that it may contain an integer outside 64 bits."""
    if len(text) < len(_LONG_NUMBER):
        return False
    # This takes a tenth of the time of a regular expression.
    content = text if isinstance(text, bytes) else text.encode(errors="replace")
    return _LONG_NUMBER in content.translate(_DIGITS)


def digest(value: Any) -> str:
    """Return the sha256 of the value's JSON text, in hex."""
    return sha256(dumps(value)).hexdigest()


def check_text(text: str, what: str) -> str:
    """Return `text` if every store can keep it in a plain column.

    Raises `Refused` if it contains NUL or a lone surrogate. `what` names the text in the message.
    """
    if "\x00" in text:
        raise Refused(f"{what} contains a NUL character, which cannot be stored there. Nothing was written.")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as exc:
            raise Refused(f"{what} contains a lone surrogate, which is not text. Nothing was written.") from exc
    return text


def _plain_text(value: Any) -> str:
    """Return the text of an instance of a subclass of `str`. orjson reports the type of any other value."""
    if isinstance(value, str):
        # Not str(value): the subclass may override it.
        return str.__str__(value)
    raise TypeError


def _with_plain_keys(value: Any) -> Any:
    """Return the value with plain text as keys of its objects. A key that is no text stays."""
    if type(value) is dict:
        items = cast("dict[Any, Any]", value).items()
        return {str.__str__(key) if isinstance(key, str) else key: _with_plain_keys(item) for key, item in items}
    if type(value) in (list, tuple):
        return [_with_plain_keys(item) for item in cast("list[Any]", value)]
    return value


def _dumps_slowly(value: Any, cause: TypeError) -> bytes:
    """Serialise integers beyond 64 bits, and keys of a subclass of `str`. Raises `Refused` for all other values that
    orjson rejects."""
    problem = str(cause)
    if problem == _WRONG_KEY:
        try:
            value = _with_plain_keys(value)
            text = orjson.dumps(value, _plain_text, _OPTIONS)
        except (TypeError, RecursionError) as exc:
            problem = str(exc)
        else:
            _refuse_nan(value)
            return text
    if "Integer exceeds" not in problem:
        if "surrogates" in problem:
            problem = "it contains a lone surrogate, which is not text"
        elif "Recursion" in problem:
            problem = "it is nested deeper than 250 levels"
        raise Refused(f"This content cannot be stored: {problem}. Nothing was written.") from cause
    _refuse_nan(value)
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as exc:
        raise Refused(f"This content cannot be stored: {exc}. Nothing was written.") from exc
    if json.loads(text) != value:
        raise Refused("This content cannot be stored exactly: it is not plain JSON. Nothing was written.")
    return text


def _refuse_nan(value: Any) -> None:
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, float):
            if not math.isfinite(item):
                raise Refused(f"This content cannot be stored: {item} is not a JSON number. Nothing was written.")
        elif isinstance(item, dict):
            waiting.extend(cast("dict[Any, Any]", item).values())
        elif isinstance(item, list | tuple):
            waiting.extend(cast("list[Any]", item))


_SURROGATES: Final = re.compile("[\ud800-\udfff]")


def storable_text(text: str) -> str:
    """Return `text` with a replacement character for each lone surrogate."""
    return text if text.isascii() else _SURROGATES.sub("\ufffd", text)


def error_text(problem: BaseException) -> str:
    """Return the message of an exception, or the name of its class if it has none."""
    try:
        text = str(problem)
    except Exception:  # str() of a faulty exception class may raise
        text = ""
    return storable_text(text) or wire_name_of(problem)
