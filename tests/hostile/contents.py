"""Hostile content: values that every store keeps exactly, and values that every store rejects."""

import math
from datetime import UTC, datetime
from typing import Any

from lockstitch.model import Entry, codec


def nested(depth: int) -> Any:
    """Return nested lists and objects of this depth."""
    value: Any = "bottom"
    for level in range(depth):
        value = [value] if level % 2 else {"k": value}
    return value


KEPT: dict[str, Any] = {
    "NUL": "a\x00b",
    "a NUL as a key": {"\x00": "\x00"},
    "control characters": "".join(map(chr, range(32))) + "\x7f\x80\x9f",
    "what looks like an escape": "\\u0000 \\ud800 \\x00 \\n %00 &#0; \\",
    "line ends that JSON allows": "\r\n \u2028 \u2029 \x85",
    "emoji and marks": "😀👩‍👩‍👧‍👦 \u202eright to left \ufeff e\u0301 é \U0010ffff \ufffe \uffff",
    "nothing": [None, "", {}, [], [[]], {"": None}, False, 0],
    "200 levels": nested(200),
    "200 levels and a long number": [2**70, nested(200)],
    "the 64 bits": [2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, -(2**64)],
    "long numbers": [2**1000, -(10**4000), {"n": 10**30}],
    "long digits in text": "9" * 5000,
    "floats": [-0.0, 0.0, 1e308, -1e308, 5e-324, 0.1, 1e16, 123456789012345680.0, 1.7976931348623157e308],
    "numbers that look alike": [1, 1.0, True, 0, 0.0, False, -0.0, "1", 10**17, 1e17],
    "floats next to long numbers": [2**64, 1e16, -0.0, 5e-324, 1e308, 1.0],
    "empty keys": {"": {"": {"": ""}}},
    "keys with a meaning elsewhere": {
        "a.b": 1, "$where": 2, "$": 3, '"quoted"': 4, "it's": 5, "größe": 6, "😀": 7, "a\nb": 8, "__proto__": 9,
        "../..": 10, "id": 11, "type": 12, "thread_id": 13, "position": 14, "é": 15, "e\u0301": 16, " ": 17, "%s": 18,
    },
    "order of keys": {"z": 1, "a": 2, "10": 3, "9": 4, "Z": 5},
    "what looks like ours": [{"type": "lockstitch:blob", "sha256": "0" * 64}, {"type": "base64", "data": "eA=="}],
    "many small values": [{"n": number, "t": "ä"} for number in range(100)],
}  # fmt: skip

REFUSED: dict[str, Any] = {
    "a lone surrogate": "\ud800",
    "the other half": "a\udfffb",
    "a surrogate as a key": {"\ud800": 1},
    "a surrogate next to a long number": [2**70, "\ud800"],
    "300 levels": nested(300),
    "300 levels next to a long number": [2**70, nested(2000)],
    "no number": math.nan,
    "infinity": math.inf,
    "minus infinity next to nulls": [None, {"n": None}, -math.inf],
    "no number next to a long number": [None, 2**70, math.nan],
    "5,000 digits": 10**5000,
    "minus 5,000 digits": [-(10**5000)],
    "bytes": b"bytes",
    "bytes in an array": bytearray(b"bytes"),
    "a time": datetime(2026, 1, 1, tzinfo=UTC),
    "a day": datetime(2026, 1, 1, tzinfo=UTC).date(),
    "a set": {1, 2},
    "numbers as keys": {1: "one"},
    "nothing as a key": {None: 1},
    "a bool as a key next to a long number": {True: 2**70},
    "an object": object(),
    "a complex number": 1j,
}

TEXTS: dict[str, str] = {
    "up": "..",
    "far up": "../../../../etc/passwd",
    "here": ".",
    "a root": "/",
    "a path": "/etc/passwd",
    "another system's": "C:\\Windows\\..\\x",
    "a device": "NUL",
    "hidden": ".lock",
    "one of ours": "store.json",
    "a line end": "a\nb\r\nc",
    "a tab": "\t",
    "an escaped NUL": "%00",
    "a percent": "100%",
    "SQL": "'; DROP TABLE threads; --",
    "marks of parameters": "$1 %s :name ? {} ${x}",
    "quotes": "\"'`",
    "an option": "-rf",
    "a glob": "*?[a-z]",
    "control characters": "\x01\x1b[31m\x7f",
    "emoji": "😀👩‍👩‍👧‍👦",
    "right to left": "\u202egnp.exe",
    "composed": "é",
    "decomposed": "e\u0301",
    "upper": "KEY",
    "lower": "key",
    "a space": " ",
    "a space after": "key ",
    "a space before": " key",
    "sharp s": "straße",
    "double s": "strasse",
    "no characters at all": "\ufeff\ufffe\uffff",
    "255 characters": "x" * 255,
    "255 emoji": "😀" * 255,
    "255 dots": "." * 255,
}

REFUSED_TEXTS: dict[str, Any] = {
    "NUL": "\x00",
    "a NUL inside": "a\x00b",
    "a lone surrogate": "\ud800",
    "a surrogate inside": "a\udfffb",
    "256 characters": "x" * 256,
    "256 emoji": "😀" * 256,
    "bytes": b"key",
    "a number": 5,
}
"""Values for every plain text with a maximum length."""


def entry(value: Any, **more: Any) -> Entry:
    """Return an entry with a value in its message, in a content block, and in its data."""
    block = {"type": "text", "text": "x", "value": value}
    return Entry(type="input", message={"role": "user", "content": [block]}, data={"value": value}, **more)


def assert_same(actual: Any, expected: Any, name: str = "") -> None:
    """True if equal with the same bytes: -0.0 equals 0.0, and 1 equals 1.0 and True."""
    assert actual == expected, name
    assert codec.dumps(actual) == codec.dumps(expected), name
