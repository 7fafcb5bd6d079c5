"""Events as entries of a log, and back."""

from typing import Any
from uuid import UUID

import pytest

from lockstitch.integrations.adk.events import Call, calls_of, entries_of, events_of, is_final
from lockstitch.model import Entry, Stitch
from lockstitch.model.stitch import at_position
from tests.integrations.adk.events import answered, call, event, response, said, sum_of

CALLS = {"a": Call(3, 0, "add"), "b": Call(3, 1, "add")}


def logged(entries: list[Entry]) -> list[Stitch]:
    return [
        at_position(entry, UUID(int=1), position, None, 0, entry.at) for position, entry in enumerate(entries, start=1)
    ]


PARTS: dict[str, list[dict[str, Any]]] = {
    "text": [{"text": "Hello."}],
    "empty": [{"text": ""}],
    "texts": [{"text": "One."}, {"text": "Two.", "thought_signature": "c2ln"}],
    "thought": [{"text": "Hm.", "thought": True}, {"text": "Yes."}],
    "image": [{"text": "See"}, {"inline_data": {"mime_type": "image/png", "data": "-_A=", "display_name": "a.png"}}],
    "sound": [{"inline_data": {"mime_type": "audio/wav", "data": "AAAA"}}],
    "file": [{"file_data": {"file_uri": "gs://a/b", "mime_type": "video/mp4"}}, {"text": "Look."}],
    "code": [{"executable_code": {"code": "1+1", "language": "PYTHON"}}, {"code_execution_result": {"output": "2"}}],
    "call without id": [{"function_call": {"name": "add"}}, {"text": "Now."}],
    "call without name": [{"function_call": {"id": "x", "args": {"a": 1}}}],
    "results": [response("add", "b", {"result": "2"}), response("add", "a", {"error": "no"})],
    "result and text": [{"text": "Then"}, response("add", "a", {"result": {"n": 1.5}}), {"text": "now."}],
    "result of one call twice": [response("add", "a", {"n": 1}), response("add", "a", {"n": 2})],
    "result of an unknown call": [response("add", "z", {"n": 1})],
    "results of other forms": [response("add", "a", {}), {"function_response": {"id": "b", "name": "add"}}],
}


@pytest.mark.parametrize("author", ["user", "helper"])
@pytest.mark.parametrize("name", PARTS)
def test_event_is_read_back_equal(name: str, author: str) -> None:
    original = event(author, *PARTS[name], custom_metadata={"a": [1, None]}, grounding_metadata={"b": 2.0})
    entries = entries_of(original, CALLS)
    other = entries_of(said("Next."), {})
    (first, second) = events_of(logged([*entries, *other]))
    # `null` and a missing value are equal in ADK.
    assert _without_null(first) == original
    assert second["content"]["parts"] == [{"text": "Next."}]


def _without_null(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_null(item) for key, item in value.items() if item is not None or key == "a"}
    return [_without_null(item) for item in value] if isinstance(value, list) else value


def test_texts_results_and_media_are_stored_once() -> None:
    data = "QUFB" * 100
    original = event("user", {"text": "word " * 50}, {"inline_data": {"mime_type": "image/png", "data": data}})
    (entry,) = entries_of(original, {})
    assert data not in str(entry.data)
    assert "word" not in str(entry.data)
    result = event("helper", response("add", "a", {"text": "long " * 50}))
    (entry,) = entries_of(result, CALLS)
    assert "long" not in str(entry.data)
    assert "long" in str(entry.message)


def test_entries_have_the_words_of_the_record() -> None:
    asked, calls, results, answer = sum_of()
    (entry,) = entries_of(asked, {})
    assert (entry.type, entry.message) == ("input", {"role": "user", "content": "Add."})
    (entry,) = entries_of(calls, {})
    assert (entry.type, entry.status, entry.calls) == ("llm_call", "tool_use", 2)
    assert (entry.input_tokens, entry.output_tokens, entry.cache_read_tokens) == (20, 2, 8)
    found = calls_of(logged([entry]))
    assert found == {"a": Call(1, 0, "add"), "b": Call(1, 1, "add")}
    first, second = entries_of(results, found)
    assert [(entry.type, entry.call_id, entry.reply_to, entry.call_index) for entry in (first, second)] == [
        ("tool_call", "a", 1, 0),
        ("tool_call", "b", 1, 1),
    ]
    assert first.message == {"type": "tool_result", "tool_use_id": "a", "content": "one"}
    (entry,) = entries_of(answer, {})
    assert (entry.name, entry.status, entry.output_tokens) == ("gemini-2.5-flash", "end_turn", 5)
    assert entry.data["cost"] > 0
    (entry,) = entries_of(event("helper", state={"a": 1}), {})
    assert (entry.type, entry.message) == ("adk_event", None)
    (entry,) = entries_of(event("helper", error_code="500", error_message="Down."), {})
    assert (entry.type, entry.data["message"]) == ("run_failed", "500: Down.")


def test_answers_of_agents_are_final() -> None:
    assert is_final(answered("Yes."))
    assert is_final(event("helper", call("wait", "w"), long_running_tool_ids=["w"]))
    assert not is_final(said("Yes?"))
    assert not is_final(event("helper", state={"a": 1}))
    assert not is_final(event("helper", call("add", "a")))
    assert not is_final(event("helper", response("add", "a", {})))
    assert not is_final(event("helper", {"text": "1+1"}, {"code_execution_result": {"output": "2"}}))
