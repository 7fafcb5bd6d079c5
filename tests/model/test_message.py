"""Messages: their texts and their tool calls."""

from typing import Any

import pytest

from lockstitch.model import answer_of, text_of, tool_result, tool_uses
from lockstitch.model.message import blocks, user

TEXT = {"type": "text", "text": "Let me look. "}
MORE = {"type": "text", "text": "Found it."}
CALL = {"type": "tool_use", "id": "c1", "name": "look", "input": {}}
SERVER_CALL = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
SERVER_RESULT = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}
THINKING = {"type": "thinking", "thinking": "hm", "signature": "x"}
IMAGE = {"type": "image", "source": {"type": "base64", "data": "AA=="}}


def message_with(*content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(content)}


def test_text_of_message_joins_all_text_blocks() -> None:
    assert text_of({"role": "user", "content": "Hello"}) == "Hello"
    assert text_of(message_with(THINKING, TEXT, CALL, MORE)) == "Let me look. Found it."
    assert text_of(message_with(IMAGE)) == ""
    assert text_of(None) == ""


@pytest.mark.parametrize("content", [None, [], "", 5, [None, "text", 1]])
def test_unusual_content_has_no_text(content: Any) -> None:
    message = {"role": "user", "content": content}

    assert text_of(message) == answer_of(message) == ""
    assert tool_uses(message) == []
    assert text_of({"role": "user"}) == ""


@pytest.mark.parametrize(
    ("message", "answer"),
    [
        (message_with(MORE), "Found it."),
        (message_with(TEXT, MORE), "Let me look. Found it."),
        (message_with(TEXT, CALL, MORE), "Found it."),
        (message_with(TEXT, SERVER_CALL, SERVER_RESULT, MORE), "Found it."),
        (message_with(SERVER_CALL, TEXT, SERVER_RESULT, THINKING, MORE), "Found it."),
        (message_with(TEXT, CALL), ""),
        ({"role": "assistant", "content": "plain"}, "plain"),
        (None, ""),
    ],
)
def test_answer_is_the_text_after_the_last_tool_block(message: Any, answer: str) -> None:
    assert answer_of(message) == answer


def test_tool_uses_returns_client_calls_in_order() -> None:
    other_call = {**CALL, "id": "c2"}

    assert tool_uses(message_with(TEXT, other_call, SERVER_CALL, CALL)) == [other_call, CALL]
    assert tool_uses(None) == []


def test_tool_result_returns_block() -> None:
    assert tool_result("c1", "done") == {"type": "tool_result", "tool_use_id": "c1", "content": "done"}
    assert tool_result("c1", [TEXT], is_error=True) == {
        "type": "tool_result",
        "tool_use_id": "c1",
        "content": [TEXT],
        "is_error": True,
    }


def test_plain_text_is_one_block() -> None:
    assert blocks(user("Hello")) == [{"type": "text", "text": "Hello"}]
    assert blocks(user([TEXT, IMAGE])) == [TEXT, IMAGE]
