"""Imported data of real clients in the lens, where a value has several places or forms."""

import json
from typing import Any

import pytest

from lockstitch.model import Json
from lockstitch.store import Store
from tests.integrations.importing import import_bytes, lens
from tests.integrations.runs import Trace, agent_trace, ai, human, moment, uid

pytestmark = pytest.mark.anyio


async def imported(store: Store, *runs: Json) -> dict[str, list[Json]]:
    report = await import_bytes(store, "langsmith", b"\n".join(json.dumps(run).encode() for run in runs))
    assert report.skipped == []
    return await lens(store)


@pytest.mark.req("S2-044", "S2-005", "S2-001", "X2-01")
async def test_imports_run_as_documented_and_as_exported(store: Store) -> None:
    """run_id, user_id and thread_id at the top, or id at the top and the other two in the metadata."""
    document = {
        "run_id": uid(1),
        "run_type": "chain",
        "user_id": "ada",
        "session_id": "s1",
        "thread_id": "t1",
        "start_time": moment(0),
        "end_time": moment(1),
        "status": "success",
        "inputs": {},
        "outputs": {},
    }
    metadata = {"user_id": "ada", "thread_id": "t2"}
    real = {**document, "run_id": None, "id": uid(2), "user_id": None, "thread_id": None}
    real |= {"trace_id": uid(2), "extra": {"metadata": metadata}, "session_id": "project-uuid"}
    first, second = (await imported(store, document, {key: real[key] for key in real if real[key]}))["agent_runs"]
    assert (first["run_id"], second["run_id"]) == (uid(1), uid(2))
    assert (first["user_id"], first["session_id"], first["thread_id"]) == ("ada", "s1", "t1")
    assert (second["user_id"], second["session_id"], second["thread_id"]) == ("ada", "project-uuid", "t2")


CALLS = [{"id": "c1", "name": "search", "args": {"q": "x"}, "type": "tool_call"}]

FORMS: dict[str, Any] = {
    "as constructors": ai("hi", CALLS, "m1"),
    "as plain objects": {
        "type": "ai",
        "content": "hi",
        "id": "m1",
        "tool_calls": CALLS,
        "usage_metadata": {"input_tokens": 100, "output_tokens": 20, "total_tokens": 120},
        "response_metadata": {"model_name": "gpt-4o-mini", "finish_reason": "tool_calls"},
    },
    "as data of a type": {"type": "ai", "data": ai("hi", CALLS, "m1")["kwargs"]},
}


@pytest.mark.req("S2-044", "S2-021", "S2-022")
@pytest.mark.parametrize("form", FORMS)
async def test_imports_messages_in_every_form(store: Store, form: str) -> None:
    trace = Trace()
    trace.root()
    run = trace.model(1, "hi")
    run["inputs"] = {"messages": [[human("hello"), {"type": "human", "content": "again"}]]}
    run["outputs"] = {"generations": [[{"text": "hi", "message": FORMS[form]}]]}
    (call,) = (await imported(store, *trace.runs))["llm_calls"]
    assert (call["llm_call_id"], call["llm_output_text"], call["finish_reason"]) == ("m1", "hi", "tool_calls")
    assert call["tool_call_requests"] == CALLS
    assert call["usage_metadata"] == {"input_tokens": 100, "output_tokens": 20, "total_tokens": 120}


@pytest.mark.req("S2-046", "S2-020")
async def test_takes_token_counts_of_run_if_message_has_none(store: Store) -> None:
    trace = Trace()
    trace.root()
    trace.model(1, "hi", kwargs={"usage_metadata": None}, prompt_tokens=9, completion_tokens=2, total_tokens=11)
    trace.model(2, "ho", kwargs={"usage_metadata": None}, total_tokens=7)
    trace.model(3, "hu", prompt_tokens=900, completion_tokens=200, total_tokens=1100)
    rows = await imported(store, *trace.runs)
    assert [call["usage_metadata"]["total_tokens"] for call in rows["llm_calls"]] == [11, 7, 120]
    assert rows["llm_calls"][0]["usage_metadata"] == {"input_tokens": 9, "output_tokens": 2, "total_tokens": 11}
    assert rows["agent_runs"][0]["total_tokens"] == 138, "the sum of the model calls, the message's own count first"


TEXTS = [
    ("{'a': 2, 'b': \"it's\", 'c': None, 'd': (1, True)}", {"a": 2, "b": "it's", "c": None, "d": [1, True]}),
    ('{"a": null, "b": true}', {"a": None, "b": True}),
]


@pytest.mark.req("S2-052", "S2-027")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *TEXTS,
        *((text, {"input": text}) for text in ("{'a': open('x')}", "Paris", "{'a': ")),
    ],
)
async def test_parses_tool_input_that_is_python_text(store: Store, text: str, expected: Any) -> None:
    trace = Trace()
    trace.root()
    trace.run("tool", "search", 1, {"input": text}, {"output": "found"})
    (call,) = (await imported(store, *trace.runs))["tool_calls"]
    assert call["tool_args"] == expected


@pytest.mark.req("S2-053", "S2-029", "S2-022", "X2-06")
async def test_stores_content_blocks_and_finds_their_text(store: Store) -> None:
    blocks = [
        {"type": "text", "text": "One, "},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        {"type": "text", "text": "two."},
    ]
    trace = Trace()
    root = trace.root()
    root["inputs"]["messages"] = [{"type": "human", "content": blocks}]
    asking = trace.model(1, "", calls=[("c1", "look", {})], kwargs={"content": blocks})
    asking["outputs"]["generations"][0][0]["text"] = "One, two."
    tool = trace.tool(2, "look", "c1")
    tool["outputs"]["output"]["content"] = blocks
    rows = await imported(store, *trace.runs)
    assert rows["agent_runs"][0]["input_messages"][0]["content"] == blocks
    assert rows["llm_calls"][0]["llm_output_text"] == "One, two."
    response = rows["tool_calls"][0]["tool_response"]
    assert [block.get("text") for block in json.loads(response)] == ["One, ", None, "two."]
    assert "AAAA" in response
    assert rows["tool_calls"][0]["tool_message_content"] == response


@pytest.mark.req("S2-003", "S2-004", "X2-10")
@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"status": "success"}, ("success", None)),
        ({"status": "error", "error": "Traceback …"}, ("error", "Traceback …")),
        ({"error": "Traceback …", "status": None}, ("error", "Traceback …")),
        ({"status": "pending", "end_time": None}, (None, None)),
        ({"status": None, "end_time": None}, (None, None)),
    ],
)
async def test_shows_status_of_trace(store: Store, fields: Json, expected: tuple[Any, Any]) -> None:
    root = {key: value for key, value in (Trace().root() | fields).items() if value is not None}
    (run,) = (await imported(store, root))["agent_runs"]
    assert (run["status"], run["error"]) == expected


@pytest.mark.req("X2-10")
async def test_interrupted_trace_is_error_with_reason(store: Store) -> None:
    root = Trace().root(status="interrupted", error="GraphInterrupt(…)")
    (run,) = (await imported(store, root))["agent_runs"]
    assert (run["status"], run["error"]) == ("error", "GraphInterrupt(…)")
    (thread,) = await store.threads(kind="trace")
    assert [core.status in ("failed", "cancelled") for core in await store.runs(thread)] == [True]


@pytest.mark.req("S2-023", "X2-07")
async def test_shows_error_of_model_call(store: Store) -> None:
    """An error of the run, a refusal, or an HTTP status that is not success. An empty refusal is not an error."""
    trace = Trace()
    trace.root()
    trace.model(1, "fine", kwargs={"additional_kwargs": {"refusal": None}, "response_metadata": {"status_code": 200}})
    trace.model(2, "", error="RateLimitError")
    trace.model(3, "no", kwargs={"additional_kwargs": {"refusal": "I will not."}})
    trace.model(4, "", kwargs={"response_metadata": {"status_code": 503}})
    calls = (await imported(store, *trace.runs))["llm_calls"]
    assert [call["error_flag"] for call in calls] == [0, 1, 1, 1]


@pytest.mark.req("S2-008", "X2-13")
async def test_model_of_root_is_model_of_first_call(store: Store) -> None:
    trace = agent_trace()
    second = trace.runs[4]["outputs"]["generations"][0][0]["message"]["kwargs"]["response_metadata"]
    second["model_name"] = "gpt-4o-other"
    rows = await imported(store, *reversed(trace.runs))
    assert "ls_model_name" not in str(trace.runs)
    assert rows["agent_runs"][0]["model_name"] == "gpt-4o-mini", "the first call, not the last"
    assert [call["model_name"] for call in rows["llm_calls"]] == ["gpt-4o-mini", "gpt-4o-other"]


@pytest.mark.req("S2-050", "S2-014", "S2-025", "X2-04")
async def test_handles_missing_and_reused_ids(store: Store) -> None:
    """A call keeps its result although all have the id call_0. A missing id is replaced by a stable one."""
    trace = Trace()
    trace.root()
    for step in range(3):
        trace.model(step * 2, calls=[("call_0", "search", {"n": step})], kwargs={"id": None if step else ""})
        trace.tool(step * 2 + 1, "search", "call_0", f"found {step}")
    first = await imported(store, *trace.runs)
    assert await imported(store, *trace.runs) == first
    assert len({call["llm_call_id"] for call in first["llm_calls"]}) == 3
    assert all(call["llm_call_id"] for call in first["llm_calls"])
    pairs = sorted((call["tool_args"]["n"], call["tool_response"]) for call in first["tool_calls"])
    assert pairs == [(0, "found 0"), (1, "found 1"), (2, "found 2")]
    by_id = {call["llm_call_id"]: call["tool_call_requests"][0]["args"] for call in first["llm_calls"]}
    assert all(by_id[call["llm_call_id"]] == call["tool_args"] for call in first["tool_calls"])


def _counted(text: str, counts: tuple[int, int], call_id: str) -> Json:
    """Return a generation whose message has its own counts, with details that the lens drops."""
    usage = {"input_tokens": counts[0], "output_tokens": counts[1], "total_tokens": sum(counts)}
    details = {"input_token_details": {"cache_read": 5}, "output_token_details": {"reasoning": 3}}
    return {"text": text, "message": ai(text, [], call_id, usage_metadata={**usage, **details})}


@pytest.mark.req("S2-013", "S2-020", "S2-014", "S2-016", "X2-05")
@pytest.mark.parametrize("prompts", [1, 2])
async def test_each_generation_has_its_own_usage(store: Store, prompts: int) -> None:
    first, second = _counted("One.", (100, 20), "m1"), _counted("Two.", (101, 21), "m2")
    trace = Trace()
    trace.root()
    trace.model(1)["outputs"] = {"generations": [[first, second]] if prompts == 1 else [[first], [second]]}
    rows = await imported(store, *trace.runs)
    assert [(call["llm_call_id"], call["step_index"], call["usage_metadata"]) for call in rows["llm_calls"]] == [
        ("m1", 0, {"input_tokens": 100, "output_tokens": 20, "total_tokens": 120}),
        ("m2", 1, {"input_tokens": 101, "output_tokens": 21, "total_tokens": 122}),
    ]
    assert rows["agent_runs"][0]["total_tokens"] == 242


@pytest.mark.req("S2-013", "S2-011")
async def test_usage_that_answers_of_one_prompt_repeat_counts_once(store: Store) -> None:
    """A provider gives the counts of the whole call with each of its n answers."""
    trace = Trace()
    trace.root()
    generations = [_counted(text, (100, 20), text) for text in ("a", "b")]
    trace.model(1)["outputs"] = {"generations": [generations, [_counted("c", (100, 20), "c")]]}
    rows = await imported(store, *trace.runs)
    usage = {"input_tokens": 100, "output_tokens": 20, "total_tokens": 120}
    assert [call["usage_metadata"] for call in rows["llm_calls"]] == [usage, None, usage]
    assert rows["agent_runs"][0]["total_tokens"] == 240


@pytest.mark.req("S2-013", "S2-020")
async def test_generation_without_usage_has_none(store: Store) -> None:
    without = {"text": "a", "message": ai("a", [], "a", usage_metadata=None)}
    trace = Trace()
    trace.root()
    trace.model(1)["outputs"] = {"generations": [[without], [_counted("b", (7, 2), "b")]]}
    calls = (await imported(store, *trace.runs))["llm_calls"]
    assert [call["usage_metadata"] for call in calls] == [
        None,
        {"input_tokens": 7, "output_tokens": 2, "total_tokens": 9},
    ]
