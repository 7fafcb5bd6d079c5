"""Facts are read from answers in any form."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstitch.agents.memories import clean, parse, prompt, transcript
from tests.model.properties import quick


@pytest.mark.parametrize(
    "answer",
    [
        '["a", "b"]',
        ' \n["a","b"]\n',
        'Here you are:\n```json\n["a", "b"]\n```\nAnything else?',
        '{"facts": ["a", "b"]}',
        '[{"text": "a"}, {"fact": "b"}]',
        '["a", 3, null, "", "b", ["c"], {"weight": 1}]',
        '["a", "b", "A."]',
        'Of {"note": 1}: ["a", "b"]',
        'As [I said, {so to say: ["a", "b"]',
    ],
)
def test_finds_facts_in_answer(answer: str) -> None:
    assert parse(answer) == ["a", "b"]


@quick
@given(st.text() | st.text('[]{}",: ab\n'))
def test_accepts_any_answer(answer: str) -> None:
    assert all(isinstance(fact, str) and fact for fact in parse(answer))


def test_limits_number_and_length_of_facts() -> None:
    assert len(clean(f"fact {number}" for number in range(500))) == 20
    assert [len(fact) for fact in clean(["x" * 5_000])] == [1_000]


def test_long_conversation_keeps_start_and_end() -> None:
    messages = [{"role": "user", "content": f"number {number} {'x' * 90}"} for number in range(2_000)]
    text = transcript(messages)

    assert len(text) < 41_000
    assert "number 1 " in text
    assert "number 1999 " in text


def test_transcript_leaves_tools_out() -> None:
    result = {"type": "tool_result", "tool_use_id": "c", "content": "plum"}
    text = prompt([{"role": "user", "content": [result, {"type": "text", "text": "{curly}"}]}], ["x"])

    assert text is not None
    assert "user: {curly}" in text
    assert "plum" not in text
    assert prompt([{"role": "user", "content": [result]}], []) is None
