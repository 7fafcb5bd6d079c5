"""Filter expressions of LangSmith."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstitch.integrations.langsmith.filters import Bounds, FilterError, RunFilter
from lockstitch.model import parse_time

SPAN: dict[str, Any] = {
    "id": "0190a1b2-c3d4-7ef0-a5b6-6ea3a82e9328",
    "name": 'the "best" answer',
    "run_type": "chain",
    "status": "success",
    "error": None,
    "start_time": "2026-03-05T14:00:00Z",
    "end_time": "2026-03-05T14:00:03.5Z",
    "first_token_time": None,
    "parent_run_id": None,
    "trace_id": "0190a1b2-c3d4-7ef0-a5b6-6ea3a82e9328",
    "thread_id": "ada-1",
    "session_id": "s",
    "tags": ["beta", "eu"],
    "total_tokens": 30,
    "total_cost": None,
    "inputs": {"question": "Is there tea?", "messages": [{"role": "user", "content": "Tea"}]},
    "outputs": {"answer": "Yes, on aisle 3.", "found": True},
    "extra": {"metadata": {"user": "ada", "team": "tea", "level": 3, "place": {"city": "Bonn"}}},
}
FEEDBACK = [
    {"key": "helpful", "score": 1.0, "value": None, "comment": "good", "feedback_source": {"type": "api"}},
    {"key": "polite", "score": 0.0, "value": "no", "comment": None, "feedback_source": {"type": "model"}},
]


@pytest.mark.parametrize(
    "text",
    [
        'eq(run_type, "chain")',
        "eq(run_type, 'chain')",
        'eq("run_type", "chain")',
        r'eq(name, "the \"best\" answer")',
        r'eq(name, "the \u0022best\u0022 answer")',
        'and(eq(status, "success"), gt(latency, 3), lt(latency, 4))',
        'or(eq(name, "x"), has(tags, "eu"))',
        'not(eq(name, "x"))',
        "eq(error, null)",
        'neq(name, "x")',
        "neq(total_cost, 3)",
        f"neq(total_tokens, {'9' * 5000})",
        "gte(total_tokens, 30)",
        'gt(start_time, "2026-03-05T13:59:00")',
        'lte(start_time, "2026-03-05T15:00:00+01:00")',
        "eq(is_root, true)",
        'in(name, ["x", "the \\"best\\" answer"])',
        'nin(run_type, ["llm", "tool"])',
        'like(name, "the%answer")',
        'ilike(name, "THE%")',
        'nlike(name, "a%")',
        'search("TEA aisle")',
        'search(outputs, "aisle 3")',
        'has(metadata, \'{"user": "ada", "place": {"city": "Bonn"}}\')',
        'exists(metadata, "user")',
        'and(eq(metadata_key, "user"), eq(metadata_value, "ada"))',
        'and(eq(metadata_key, "level"), gt(metadata_value, 2))',
        'and(eq(metadata_key, "level"), eq(metadata_value, "3"))',
        'and(in(metadata_key, ["session_id", "user"]), eq(metadata_value, "ada"))',
        'and(eq(metadata_key, "place.city"), eq(metadata_value, "Bonn"))',
        'and(eq(input_key, "messages.content"), eq(input_value, "Tea"))',
        'and(eq(output_key, "found"), eq(output_value, true))',
        'and(eq(feedback_key, "helpful"), eq(feedback_score, 1))',
        'and(eq(feedback_key, "helpful"), and(gt(feedback_score, 0.5), eq(feedback_source, "api")))',
        'and(eq(name, "x"), eq(feedback_key, "helpful"))'.replace('"x"', '"the \\"best\\" answer"'),
        'or(eq(feedback_key, "rude"), eq(feedback_score, 0))',
        '  EQ ( run_type , "chain" )  ',
    ],
)
def test_matches_span(text: str) -> None:
    assert RunFilter.parse(text).matches(SPAN, FEEDBACK)


@pytest.mark.parametrize(
    "text",
    [
        'eq(run_type, "llm")',
        "gt(latency, 4)",
        "neq(error, null)",
        "gt(total_cost, 0)",
        "lt(total_cost, 5)",
        "eq(is_root, false)",
        'has(tags, "us")',
        'search("coffee")',
        'search(name, "aisle")',
        'has(metadata, \'{"user": "bob"}\')',
        'exists(metadata, "colour")',
        'and(eq(metadata_key, "user"), eq(metadata_value, "tea"))',
        'and(eq(feedback_key, "helpful"), eq(feedback_score, 0))',
        'and(eq(feedback_key, "polite"), gt(feedback_score, 0.5), eq(run_type, "chain"))',
        'not(and(eq(metadata_key, "user"), eq(metadata_value, "ada")))',
        'gt(end_time, "2026-03-06T00:00:00Z")',
    ],
)
def test_does_not_match_span(text: str) -> None:
    assert not RunFilter.parse(text).matches(SPAN, FEEDBACK)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "cannot be read at its end"),
        ("name", "must be a call"),
        ('eq(name, "x"', "cannot be read at its end"),
        ('eq(name "x")', "a comma or ) is expected"),
        ('eq(name, "x") and', "the end of the filter is expected"),
        ("eq(name, x)", 'needs quotes: "x"'),
        ('near(name, "x")', "Function near is not supported in a filter. Use and, or, not, eq"),
        ('eq(colour, "x")', "Field colour is not known. Fields are id, name"),
        ("and()", "and needs calls"),
        ('and(eq(name, "x"), true)', "and needs calls"),
        ('not(eq(name, "x"), eq(name, "y"))', "not needs one call"),
        ('gt(latency, "long")', "needs a number, not 'long'"),
        ('gt(start_time, "yesterday")', "needs a time"),
        ('in(name, "x")', "needs a list"),
        ('eq(name, ["x"])', "needs a text, a number, true, false or null"),
        ('in(name, [eq(name, "x")])', "A list in a filter on name"),
        ("has(metadata, 3)", "needs a JSON object"),
        ("search(3)", "search needs a text"),
        ("like(name, 3)", "needs a text with %"),
        ("eq(name)", "eq needs a field and a value"),
        ("and(" * 60, "nested more than 50 levels"),
        ("a" * 30_000, "more than 20,000 characters"),
        ('eq(latency, "' + "9" * 5000 + 'x")', "needs a number"),
    ],
)
def test_refuses_wrong_expression_with_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(FilterError) as caught:
        RunFilter.parse(text)
    assert sentence in str(caught.value)
    assert str(caught.value).endswith(".")


def test_bounds_are_conditions_of_every_match() -> None:
    text = (
        'and(gt(start_time, "2026-03-05T14:00:00Z"), and(eq(thread_id, "t"), lt(start_time, "2026-03-06T00:00:00Z")))'
    )
    assert RunFilter.parse(text).bounds == Bounds(
        since=parse_time("2026-03-05T14:00:00Z"), until=parse_time("2026-03-06T00:00:00Z"), thread_id="t"
    )
    assert RunFilter.parse('or(eq(trace_id, "a"), eq(trace_id, "b"))').bounds == Bounds()
    assert RunFilter.parse('not(eq(trace_id, "a"))').bounds == Bounds()
    assert RunFilter.parse('eq(trace_id, "a")').bounds == Bounds(trace_id="a")


_LITERALS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False) | st.just(10**400),
    st.text(max_size=5),
)
_VALUES = st.recursive(
    _LITERALS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner)
)


@given(
    text=st.sampled_from(
        [
            'eq(metadata_value, "x")',
            "gt(metadata_value, 1)",
            'search("x")',
            'like(name, "%x%")',
            'gt(start_time, "2026-03-05T14:00:00Z")',
            "has(inputs, '{\"a\": 1}')",
            'in(input_value, ["x", 1, null])',
            'and(eq(feedback_key, "k"), gt(feedback_score, 0))',
        ]
    ),
    value=_VALUES,
)
def test_parsed_filter_never_fails_on_a_span(text: str, value: Any) -> None:
    span = {**SPAN, "name": value, "inputs": value, "error": value, "tags": value, "extra": {"metadata": {"a": value}}}
    feedback = [{"key": value, "score": value, "value": value, "comment": value, "feedback_source": value}]
    RunFilter.parse(text).matches(span, feedback)


@given(st.text(alphabet="eqandor(),\"'[]\\ 1.-nametrue", max_size=40))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    with suppress(FilterError):
        RunFilter.parse(text)
