"""The facts of runs in every serialisation of messages. No content makes the integration raise."""

import copy
import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstitch.integrations.langsmith import LangSmith, spans_of_run
from lockstitch.integrations.spans.span import Generation, RequestedCall, Result, SpanFacts
from lockstitch.model import codec
from tests.integrations.langsmith.recorded import FOLDERS, facts_of, items_of, spans
from tests.integrations.langsmith.test_runs import FIELDS, JSON
from tests.model.properties import quick


def lc(name: str, **kwargs: Any) -> dict[str, Any]:
    return {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", name], "kwargs": kwargs}


def answer(outputs: Any, **run: Any) -> SpanFacts:
    return facts_of({"run_type": "llm", "end_time": 2, "outputs": outputs, **run})


def message(outputs: Any) -> list[Any]:
    (generation,) = answer(outputs).generations
    assert generation.message["role"] == "assistant"
    return generation.message["content"]


TEXT = {"type": "text", "text": "Hello"}
CALL = {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1}}
LC_CALL = {"name": "add", "args": {"a": 1}, "id": "c1", "type": "tool_call"}
OPENAI_CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
PLAIN = {"content": "Hello", "type": "ai", "tool_calls": [LC_CALL]}


@pytest.mark.parametrize(
    "outputs",
    [
        {"generations": [[{"text": "Hello", "message": lc("AIMessage", content="Hello", tool_calls=[LC_CALL])}]]},
        {"generations": [[{"text": "Hello", "message": lc("AIMessageChunk", **PLAIN)}]]},
        {"generations": [{"text": "Hello", "message": PLAIN}]},
        {"generations": [[{"message": {"type": "ai", "data": {"content": "Hello", "tool_calls": [LC_CALL]}}}]]},
        {
            "generations": [
                [{"message": lc("AIMessage", content="Hello", additional_kwargs={"tool_calls": [OPENAI_CALL]})}]
            ]
        },
        {"generations": [[{"message": lc("AIMessage", content=[TEXT, CALL], tool_calls=[LC_CALL])}]]},
        {
            "generations": [
                [{"message": lc("AIMessage", content=["Hello", {**CALL, "input": {}}], tool_calls=[LC_CALL])}]
            ]
        },
        {"generations": [[{"message": lc("AIMessage", content=[TEXT, LC_CALL])}]]},
        {"messages": [{"role": "user", "content": "Hi"}, {**PLAIN}]},
        {"output": PLAIN},
        {"output": {"messages": [PLAIN]}},
        {"choices": [{"message": {"role": "assistant", "content": "Hello", "tool_calls": [OPENAI_CALL]}}]},
        {"output": {"choices": [{"message": {"role": "assistant", "content": "Hello", "tool_calls": [OPENAI_CALL]}}]}},
        {"role": "assistant", "content": [TEXT, CALL], "stop_reason": "tool_use"},
        {"message": {"role": "assistant", "content": [TEXT, CALL], "stop_reason": "tool_use"}},
        {"content": [TEXT, CALL], "stop_reason": "tool_use"},
        {
            "object": "response",
            "output": [
                {"type": "message", "content": [{"type": "output_text", "text": "Hello"}]},
                {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 1}'},
            ],
        },
    ],
)
def test_reads_answer_in_every_serialisation(outputs: dict[str, Any]):
    content = message(outputs)
    assert content == [TEXT, CALL]
    assert answer(outputs).generations[0].text == "Hello"


@pytest.mark.parametrize(
    ("outputs", "text"),
    [
        ({"generations": [[{"text": "Hello", "generation_info": None, "type": "Generation"}]]}, "Hello"),
        ({"output": "Hello"}, "Hello"),
        ("Hello", "Hello"),
        ({"completion": "Hello", "usage_metadata": {"input_tokens": 1}}, "Hello"),
        ({"anything": "Hello"}, "Hello"),
        ({"role": "assistant", "content": "Hello"}, "Hello"),
        ({"choices": [{"text": "Hello"}]}, "Hello"),
        ({"candidates": [{"content": {"parts": [{"text": "Hello"}]}}]}, "Hello"),
        ({"a": 1, "b": [2]}, '{"a":1,"b":[2]}'),
    ],
)
def test_reads_free_form_answers(outputs: Any, text: str):
    (generation,) = answer(outputs).generations
    assert generation.text == text
    assert generation.message["content"] == [{"type": "text", "text": text}]


def test_reads_thinking_and_unknown_blocks():
    image = {"type": "image", "source": {"type": "url", "url": "https://example.org/x.png"}}
    unknown = {"type": "hologram", "depth": 3}
    thinking = {"type": "thinking", "thinking": "Hm", "signature": "s"}
    blocks = [thinking, {"type": "reasoning", "reasoning": "Well"}, image, unknown, TEXT]
    assert message({"message": {"role": "assistant", "content": blocks}}) == [
        thinking,
        {"type": "thinking", "thinking": "Well"},
        image,
        unknown,
        TEXT,
    ]
    deepseek = lc("AIMessage", content="Hello", additional_kwargs={"reasoning_content": "Hm"})
    assert message({"generations": [[{"message": deepseek}]]}) == [{"type": "thinking", "thinking": "Hm"}, TEXT]


def test_distinguishes_calls_with_equal_ids():
    twice = [{**LC_CALL, "id": "call_0"}, {**LC_CALL, "id": "call_0", "args": {"a": 2}}]
    content = message({"generations": [[{"message": lc("AIMessage", content="", tool_calls=twice)}]]})
    assert [(block["id"], block["input"]) for block in content] == [("call_0", {"a": 1}), ("call_0", {"a": 2})]
    without = [{**LC_CALL, "id": None}, {**LC_CALL, "id": ""}]
    content = message({"generations": [[{"message": lc("AIMessage", content="", tool_calls=without)}]]})
    assert content == [{"type": "tool_use", "name": "add", "input": {"a": 1}}] * 2


@pytest.mark.parametrize("arguments", ["{", "[1]", "5", "not json"])
def test_stores_arguments_that_are_not_objects(arguments: str):
    call = {"id": "c", "function": {"name": "f", "arguments": arguments}}
    (block,) = message({"choices": [{"message": {"content": None, "tool_calls": [call]}}]})
    assert block["input"] == {"__invalid_json": arguments}


def test_reads_several_answers_of_one_call():
    generations = [{"text": word, "message": lc("AIMessage", content=word, id=f"m-{word}")} for word in ("one", "two")]
    assert [(generation.text, generation.id) for generation in answer({"generations": [generations]}).generations] == [
        ("one", "m-one"),
        ("two", "m-two"),
    ]


@pytest.mark.parametrize(
    ("outputs", "reason"),
    [
        (
            {"generations": [[{"message": lc("AIMessage", content="x", response_metadata={"finish_reason": "stop"})}]]},
            "stop",
        ),
        (
            {"generations": [[{"message": lc("AIMessage", content="x", response_metadata={"stop_reason": "end"})}]]},
            "end",
        ),
        ({"generations": [[{"message": lc("AIMessage", content="x", response_metadata={"done_reason": "d"})}]]}, "d"),
        ({"generations": [[{"text": "x", "generation_info": {"finish_reason": "length"}}]]}, "length"),
        ({"choices": [{"message": {"content": "x"}, "finish_reason": "tool_calls"}]}, "tool_calls"),
        ({"role": "assistant", "content": "x", "stop_reason": "max_tokens"}, "max_tokens"),
        ({"output": "x"}, None),
    ],
)
def test_reads_finish_reason(outputs: dict[str, Any], reason: str | None):
    assert answer(outputs).generations[0].finish_reason == reason


@pytest.mark.parametrize(
    ("message_id", "own", "expected"),
    [
        ("lc_run--x-0", "chatcmpl-1", "chatcmpl-1"),
        ("lc_run--x-0", "msg_1", "msg_1"),
        ("chatcmpl-2", None, "chatcmpl-2"),
        ("msg_2", None, "msg_2"),
        ("resp_2", None, "resp_2"),
        ("run-abc", None, None),
        ("lc_run--x-0", None, None),
        ("430a90b1-6b52-4ce6-89ff-6f298182d3ac", None, None),
        (None, None, None),
    ],
)
def test_reads_response_id_of_provider(message_id: str | None, own: str | None, expected: str | None):
    serialised = lc("AIMessage", content="x", id=message_id, response_metadata={"id": own})
    call = answer({"generations": [[{"message": serialised}]]})
    assert (call.response_id, call.generations[0].id) == (expected, message_id)


def test_reads_wrapped_sdk():
    call = facts_of(
        {
            "run_type": "llm",
            "inputs": {
                "model": "gpt-5",
                "messages": [{"role": "user", "content": "Hi"}],
                "temperature": 0.1,
                "tools": [1],
            },
            "outputs": {
                "id": "chatcmpl-9",
                "model": "gpt-5-2026",
                "choices": [{"message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 5, "completion_tokens": 2},
            },
            "extra": {"metadata": {"ls_provider": "openai", "ls_model_name": "gpt-5"}},
        }
    )
    assert (call.model, call.provider, call.response_id) == ("gpt-5-2026", "openai", "chatcmpl-9")
    assert call.generations == [
        Generation({"role": "assistant", "content": [TEXT]}, "Hello", "chatcmpl-9", "stop", model="gpt-5-2026")
    ]
    assert call.parameters == {"model": "gpt-5", "temperature": 0.1}
    assert call.tokens is not None
    assert call.tokens[:2] == (5, 2)
    assert (call.input_text, call.answer) == ("Hi", "Hello")


@pytest.mark.parametrize(
    "run",
    [
        {"error": "RateLimitError('429')"},
        {"outputs": {"choices": [{"message": {"content": None, "refusal": "No."}}]}},
        {"outputs": {"role": "assistant", "content": [], "stop_reason": "refusal"}},
        {"outputs": {"generations": [[{"message": lc("AIMessage", content="", additional_kwargs={"refusal": "No"})}]]}},
        {
            "outputs": {
                "generations": [[{"message": lc("AIMessage", content="", response_metadata={"status_code": 500})}]]
            }
        },
        {"outputs": {"generations": [[{"text": "", "generation_info": {"error": "x"}}]]}},
    ],
)
def test_marks_failed_answers(run: dict[str, Any]):
    (generation,) = facts_of({"run_type": "llm", **run}).generations
    assert generation.failed


def test_does_not_mark_successful_answers():
    fine = lc("AIMessage", content="x", response_metadata={"status_code": 200}, additional_kwargs={"refusal": None})
    assert not answer({"generations": [[{"message": fine}]]}).generations[0].failed
    assert facts_of({"run_type": "llm", "outputs": {}}).generations == []


@pytest.mark.req("S2-052")
@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ({"a": 2, "b": 3}, {"a": 2, "b": 3}),
        (
            {"input": "{'a': 2, 'b': \"it's\", 'c': None, 'd': (1, True)}"},
            {"a": 2, "b": "it's", "c": None, "d": [1, True]},
        ),
        ({"input": '{"a": null, "b": true}'}, {"a": None, "b": True}),
        ({"input": {"a": 1}}, {"a": 1}),
        ({"input": "Paris"}, "Paris"),
        ({"input": "5"}, "5"),
        ({"input": "{'a': open('x')}"}, "{'a': open('x')}"),
        ({"input": "{'a': " + "[" * 5000}, "{'a': " + "[" * 5000),
        ({"input": "{" + "'a': 1, " * 40_000 + "}"}, "{" + "'a': 1, " * 40_000 + "}"),
        ({"type": "tool_call", "id": "c", "name": "f", "args": {"a": 1}}, {"a": 1}),
        ({}, {}),
    ],
)
def test_reads_tool_input(inputs: Any, expected: Any):
    call = facts_of({"run_type": "tool", "name": "f", "inputs": inputs}).call
    assert call is not None
    assert call.args == expected


TOOL_MESSAGE = {"content": "5", "type": "tool", "name": "add", "tool_call_id": "c1", "status": "success"}
COMMAND = {"update": {"messages": [TOOL_MESSAGE], "todo": []}, "goto": []}


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (TOOL_MESSAGE, Result("c1", "add", "5", failed=False)),
        (lc("ToolMessage", content="5", tool_call_id="c1", status="error"), Result("c1", "add", "5", failed=True)),
        ({"lg_name": "Command", **COMMAND}, Result("c1", "add", "5", failed=False)),
        (
            {"lc": 1, "type": "constructor", "id": ["langgraph", "Command"], "kwargs": COMMAND},
            Result("c1", "add", "5", False),
        ),
        ({"update": [["messages", [TOOL_MESSAGE]]]}, Result("c1", "add", "5", failed=False)),
        ("content='5' name='add' tool_call_id='c1'", Result("c1", "add", "5", failed=False)),
        ("content=\"it's\" name='add' tool_call_id='c1' status='error'", Result("c1", "add", "it's", failed=True)),
        ("plain", Result(None, "add", "plain", failed=False)),
        ({"sum": 5}, Result(None, "add", '{"sum":5}', failed=False)),
        ([{"type": "text", "text": "5"}], Result(None, "add", [{"type": "text", "text": "5"}], failed=False)),
        (5, Result(None, "add", "5", failed=False)),
        (None, Result(None, "add", "null", failed=False)),
    ],
)
def test_reads_tool_output(output: Any, expected: Result):
    facts = facts_of({"run_type": "tool", "name": "add", "end_time": 3, "outputs": {"output": output}})
    assert facts.result == expected
    assert facts.results == []


def test_reads_failed_and_open_tools():
    failed = facts_of({"run_type": "tool", "name": "f", "error": "ValueError('x')", "outputs": {}})
    assert failed.result == Result(None, "f", "ValueError('x')", failed=True)
    assert facts_of({"run_type": "tool", "name": "f", "inputs": {"a": 1}}).result is None
    running = facts_of({"run_type": "tool", "name": "f", "outputs": {"output": "x"}})
    assert running.result == Result(None, "f", "x", failed=None)


@pytest.mark.parametrize(
    ("run", "call_id"),
    [
        ({"outputs": {"output": TOOL_MESSAGE}, "extra": {"tool_call_id": "other"}}, "c1"),
        ({"outputs": {"output": "x"}, "extra": {"tool_call_id": "c2"}}, "c2"),
        ({"extra": {"metadata": {"tool_call_id": "c3"}}}, "c3"),
        ({"inputs": {"type": "tool_call", "id": "c4", "args": {}}}, "c4"),
        ({}, None),
    ],
)
def test_reads_call_id_of_tool(run: dict[str, Any], call_id: str | None):
    facts = facts_of({"run_type": "tool", "name": "f", **run})
    assert facts.call == RequestedCall(call_id, "f", facts.call.args if facts.call else None)
    assert ("tool_call_id" in facts.missing) == (call_id is None)


def test_reads_results_from_every_place():
    second_message = {**TOOL_MESSAGE, "content": "6"}
    run = {
        "run_type": "chain",
        "inputs": {"messages": [[TOOL_MESSAGE, {"role": "tool", "tool_call_id": "c2", "content": "x"}]]},
        "outputs": {
            "messages": [TOOL_MESSAGE, second_message],
            "generations": [[{"text": "", "message": lc("ToolMessage", content="y", tool_call_id="c3")}]],
        },
    }
    facts = facts_of(run)
    assert [(result.call_id, result.content, result.failed) for result in facts.results] == [
        ("c1", "5", False),
        ("c2", "x", None),
        ("c1", "6", False),
        ("c3", "y", None),
    ]
    block = {"type": "tool_result", "tool_use_id": "c5", "content": "z", "is_error": True}
    anthropic = facts_of({"run_type": "llm", "inputs": {"messages": [{"role": "user", "content": [block]}]}})
    assert anthropic.results == [Result("c5", None, "z", failed=True)]


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes?"}]}, "Hi"),
        ({"messages": [["human", "Hi"]]}, "Hi"),
        ({"messages": [[lc("HumanMessage", content=[{"type": "text", "text": "Hi"}])]]}, "Hi"),
        ({"messages": ["Hi"]}, "Hi"),
        ({"prompts": ["Hi"]}, "Hi"),
        ({"input": "Hi"}, "Hi"),
        ({"question": "Hi", "k": 4}, "Hi"),
        ({"whatever": "Hi"}, "Hi"),
        ("Hi", "Hi"),
        ({"a": 1, "b": 2}, None),
    ],
)
def test_reads_last_user_text(inputs: Any, expected: str | None):
    assert facts_of({"run_type": "chain", "inputs": inputs}).input_text == expected


@pytest.mark.parametrize(
    ("kind", "role"),
    [("llm", "llm"), ("LLM", "llm"), ("tool", "tool"), ("chain", "span"), ("embedding", "span"), ("retriever", "span")],
)
def test_reads_role(kind: str, role: str):
    outputs = {"generations": [[{"text": "x"}]]}
    assert facts_of({"run_type": kind, "outputs": outputs}).role == role
    assert facts_of({"outputs": outputs}).role == "llm"
    assert facts_of({"outputs": {"output": TOOL_MESSAGE}}).role == "tool"
    assert facts_of({"outputs": {"x": 1}}).role == "span"


def _sound(facts: SpanFacts) -> None:
    """Assert that all facts can be stored."""
    codec.dumps([generation.message for generation in facts.generations])
    codec.dumps([facts.parameters, facts.missing, [list(result) for result in facts.results]])
    codec.dumps(
        [list(facts.call or ()), list(facts.result or ()), facts.input_text, facts.answer, facts.model, facts.provider]
    )
    assert all(isinstance(generation.text, str) for generation in facts.generations)
    assert facts.tokens is None or all(isinstance(count, int) and count >= 0 for count in facts.tokens)


SHAPED = st.sampled_from(
    [
        "messages",
        "generations",
        "output",
        "input",
        "update",
        "kwargs",
        "message",
        "data",
        "content",
        "type",
        "role",
        "id",
        "tool_calls",
        "args",
        "name",
        "function",
        "arguments",
        "choices",
        "candidates",
        "parts",
        "usage_metadata",
        "input_tokens",
        "response_metadata",
        "llm_output",
        "tool_call_id",
        "status",
    ]
)
WORDS = st.sampled_from(
    ["ai", "tool", "human", "assistant", "constructor", "tool_use", "tool_call", "reasoning", "text"]
)
TANGLED = st.recursive(
    JSON | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(SHAPED, inner, max_size=4),
    max_leaves=25,
)


@quick
@given(
    st.sampled_from(["llm", "tool", "chain", None]),
    st.dictionaries(FIELDS, TANGLED, max_size=4),
    st.dictionaries(SHAPED, TANGLED, max_size=4),
    st.dictionaries(SHAPED, TANGLED, max_size=4),
)
def test_never_raises_for_any_run(kind: str | None, run: dict[str, Any], inputs: Any, outputs: Any):
    for span in spans_of_run({**run, "run_type": kind, "inputs": inputs, "outputs": outputs}):
        _sound(LangSmith().facts(span))


@quick
@given(st.dictionaries(st.sampled_from(["kind", "inputs", "outputs", "extra", "metadata", "error", "end"]), TANGLED))
def test_never_raises_for_any_span_data(span: Any):
    LangSmith().facts(span)


JUNK: list[Any] = [None, 0, "", "x", [], {}, [[]], {"a": 1}, True, -1.5, ["ai", "x"], [None], {"content": None}]


@pytest.mark.parametrize("folder", FOLDERS)
def test_never_raises_for_changed_recorded_traces(folder: str):
    """Each value in turn is replaced by junk."""
    chance = random.Random(folder)
    for recorded_span in spans(items_of(folder)).values():
        for _ in range(20):
            span = copy.deepcopy(recorded_span)
            place: Any = span
            while isinstance(place, dict | list) and place:
                key = chance.choice(list(place) if isinstance(place, dict) else range(len(place)))
                if chance.random() < 0.2 or not isinstance(place[key], dict | list) or not place[key]:
                    place[key] = chance.choice(JUNK)
                    break
                place = place[key]
            _sound(LangSmith().facts(span))
        assert json.loads(codec.dumps(recorded_span)) == recorded_span
