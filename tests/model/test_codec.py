"""Exact JSON: a value is read back unchanged, or rejected before anything is written."""

import json
import math
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import StrEnum
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lockstitch.errors import LockstitchError, Refused
from lockstitch.model import codec
from tests.model.properties import quick

edges = [2**63 - 1, 2**63, 2**64 - 1, 2**64, 2**64 + 1, -(2**63), -(2**63) - 1, 10**400]
integers = st.integers() | st.integers(-(2**80), 2**80) | st.sampled_from(edges)
texts = st.text() | st.sampled_from(["\x00", "\u2028", "ß\U0001f600", "1234567890123456789012", "null", "NaN"])
scalars = st.none() | st.booleans() | integers | st.floats(allow_nan=False, allow_infinity=False) | texts
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(texts, inner, max_size=5), max_leaves=25
)


def same(value: Any, other_value: Any) -> bool:
    """True if equal, where True is not 1, 1.0 is not 1, -0.0 is not 0.0, and keys have the same order."""
    if type(value) is not type(other_value):
        return False
    if isinstance(value, dict):
        return list(value) == list(other_value) and all(same(value[key], other_value[key]) for key in value)
    if isinstance(value, list):
        return len(value) == len(other_value) and all(map(same, value, other_value))
    if isinstance(value, float):
        return value == other_value and math.copysign(1, value) == math.copysign(1, other_value)
    return value == other_value


@quick
@given(values)
@example({"b": 1, "a": [2**64, -0.0, 1e16, 1e-7, True, None, "null"]})
def test_json_round_trip_is_exact(value: Any) -> None:
    text = codec.dumps(value)

    assert same(codec.loads(text), value)
    assert same(codec.loads(text.decode()), value)
    # It is valid JSON for other parsers too.
    assert same(json.loads(text), value)


@quick
@given(values)
def test_json_text_is_stable_when_written_again(value: Any) -> None:
    text = codec.dumps(value)

    assert codec.dumps(codec.loads(text)) == text


def test_digest_is_sha256_of_json_text() -> None:
    assert codec.digest({"b": 2**64, "a": None}) == sha256(b'{"b":18446744073709551616,"a":null}').hexdigest()


@pytest.mark.parametrize("number", edges)
def test_integers_of_any_size_are_exact(number: int) -> None:
    assert codec.dumps({"n": number}) == b'{"n":%d}' % number
    assert same(codec.loads(codec.dumps([number, -number])), [number, -number])


@quick
@given(values, st.sampled_from([math.nan, math.inf, -math.inf]), st.booleans())
def test_rejects_nan_and_infinity_at_any_depth(value: Any, number: float, big: bool) -> None:
    hidden = {"a": value, "b": [None, {"c": [number]}], "d": 2**70 if big else 1}

    with pytest.raises(Refused, match="is not a JSON number"):
        codec.dumps(hidden)


@dataclass
class _Point:
    x: int = 1


@pytest.mark.parametrize("other_value", [1, 2**64], ids=["fast", "slow"])
@pytest.mark.parametrize(
    "wrong",
    [
        "\ud800",
        {"\udfff": 1},
        {1: "one"},
        {None: 1},
        {(1, 2): 1},
        datetime(2026, 1, 1, tzinfo=UTC),
        date(2026, 1, 1),
        Decimal("1.5"),
        b"bytes",
        {1, 2},
        _Point(),
        pytest.param(object(), id="object"),
    ],
    ids=repr,
)
def test_rejects_values_that_are_not_json(wrong: Any, other_value: int) -> None:
    with pytest.raises(Refused, match="Nothing was written"):
        codec.dumps({"other_value": other_value, "wrong": wrong})


def test_error_names_the_problem() -> None:
    with pytest.raises(Refused, match="lone surrogate"):
        codec.dumps("\ud800")
    with pytest.raises(Refused, match="nested deeper"):
        codec.dumps(_nested(300))
    with pytest.raises(Refused, match="datetime"):
        codec.dumps([datetime(2026, 1, 1, tzinfo=UTC)])


def test_deep_content_is_exact_or_rejected() -> None:
    assert codec.loads(codec.dumps(_nested(200))) == _nested(200)
    with pytest.raises(Refused):
        codec.dumps([2**64, _nested(200_000)])


def test_rejects_integer_that_cannot_be_read_again() -> None:
    with pytest.raises(Refused):
        codec.dumps(10**5_000)


def test_key_order_and_escapes_survive() -> None:
    text = b'{"z":1,"a":{"y":"\\u0000","b":"\xc3\x9f"},"10":[],"9":{}}'

    assert codec.dumps(codec.loads(text)) == text


def test_check_text_rejects_nul_and_surrogates() -> None:
    assert codec.check_text("größer \U0001f600", "A title") == "größer \U0001f600"
    with pytest.raises(Refused, match="A title contains a NUL"):
        codec.check_text("a\x00b", "A title")
    with pytest.raises(LockstitchError, match="A title contains a lone surrogate"):
        codec.check_text("a\ud800", "A title")


def _nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


class Loud(str):
    """Text with another representation."""

    def __str__(self) -> str:
        return "LOUD"


class Colour(StrEnum):
    RED = "red"


def test_subclasses_of_text_are_stored_as_plain_text() -> None:
    value = {Loud("a"): [Loud("b"), Colour.RED, (Loud("c"),)], Colour.RED: {Loud("d"): 2**70, "n": None}}
    text = codec.dumps(value)
    assert text == b'{"a":["b","red",["c"]],"red":{"d":1180591620717411303424,"n":null}}'
    plain = codec.loads(text)
    assert same(plain, {"a": ["b", "red", ["c"]], "red": {"d": 2**70, "n": None}})


@pytest.mark.parametrize("value", [{Loud("a"): math.nan}, {Loud("a"): 1, 2: 3}, {Loud("a"): "\ud800"}, {1: "a"}])
def test_rejects_what_json_lacks_beside_subclasses_of_text(value: Any) -> None:
    with pytest.raises(Refused):
        codec.dumps(value)
