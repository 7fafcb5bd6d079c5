"""JSON dumps of spans that are not OTLP: console exporters of the OpenTelemetry SDKs, and Phoenix.

`ConsoleSpanExporter` and `span.to_json()` of opentelemetry-sdk 1.45.2 wrote `python_*`, for a small agent with
openinference-instrumentation-openai 0.1.66: two model calls (1500 tokens in, of which 1024 cached, and 30 out each) and
one tool, then a model call that fails. `phoenix_*` are exports of arize-phoenix 20.26.1, after it received the recorded
body `oi_langchain`: `client.spans.get_spans` of arize-phoenix-client 3.5.0, `to_json` of the dataframe (pandas 3.1.1),
and the route `spans/otlpv1`. Stack traces are cut, and the exports contain only this trace. `go_stdouttrace` is built
from the source code of the exporter (opentelemetry-go, `SpanStub` and `stdouttrace`), not recorded.
"""

import gzip
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from lockstitch.errors import Unreadable
from lockstitch.integrations.otel import OpenTelemetry, read_body, read_file
from lockstitch.integrations.otel.dumps import dumped_spans
from lockstitch.integrations.spans.span import SpanData, TokenCounts
from lockstitch.model import Json
from lockstitch.store import Store, open_store
from tests.integrations.importing import import_path, lens
from tests.integrations.otel.bodies import recorded
from tests.integrations.test_fixtures import shows
from tests.server.serving import caller, serving

DUMPS = Path(__file__).parent / "dump_fixtures"
PHOENIX = sorted(DUMPS.glob("phoenix_*"))
PYTHON = sorted(DUMPS.glob("python_*"))


def unpacked(path: Path) -> Any:
    return json.loads(gzip.decompress(path.read_bytes()))


GET_SPANS: list[Json] = unpacked(DUMPS / "phoenix_get_spans.json.gz")
COLUMNS: Json = unpacked(DUMPS / "phoenix_dataframe_columns.json.gz")
ROWS = [{name: column[index] for name, column in COLUMNS.items()} for index in COLUMNS["name"]]


@pytest.mark.anyio
@pytest.mark.parametrize("path", PHOENIX, ids=lambda path: path.name)
async def test_dump_of_phoenix_gives_the_rows_of_its_trace(store: Store, path: Path) -> None:
    report = (await import_path(store, "otel", path)).as_json()
    assert (report["skipped"], report["runs"]) == ([], 7)
    await shows(store, "otel", "oi_langchain")


@pytest.mark.parametrize("path", PHOENIX, ids=lambda path: path.name)
def test_dump_of_phoenix_has_the_content_of_the_spans(path: Path) -> None:
    sent = {span["id"]: span for span in read_body(recorded("oi_langchain"))}
    dumped = {span["id"]: span for span in read_file(path)}
    assert dumped.keys() == sent.keys()
    for span_id, span in dumped.items():
        for field in ("name", "kind", "parent_id", "inputs", "outputs", "thread_id", "status"):
            assert span.get(field) == sent[span_id].get(field)
        assert plain(span["metadata"]) == plain(sent[span_id]["metadata"])


def plain(metadata: Json) -> Json:
    """Return metadata as Phoenix exports it: without nulls. `otlpv1` has lists of texts."""
    return {
        key: [str(item) for item in value] if isinstance(value, list) else value
        for key, value in metadata.items()
        if value is not None
    }


@pytest.mark.anyio
@pytest.mark.parametrize("path", PYTHON, ids=lambda path: path.name)
async def test_dump_of_console_exporter_is_imported(store: Store, path: Path) -> None:
    report = (await import_path(store, "otel", path)).as_json()
    assert report["skipped"] == []
    assert {name: report[name] for name in ("traces", "runs", "llm_calls", "tool_calls", "tokens")} == {
        "traces": 2,
        "runs": 6,
        "llm_calls": 3,
        "tool_calls": 1,
        "tokens": 3060,
    }
    rows = await lens(store)
    assert [(run["thread_id"], run["status"]) for run in rows["agent_runs"]] == [("t1", "success"), (None, "error")]
    (call,) = rows["tool_calls"]
    assert (call["tool_call_id"], call["tool_args"], call["tool_response"]) == (
        "call_abc",
        {"city": "Paris"},
        "21C in Paris",
    )


def by_name(spans: list[SpanData]) -> dict[str, SpanData]:
    return {span["name"]: span for span in spans}


@pytest.mark.parametrize("path", PYTHON, ids=lambda path: path.name)
def test_spans_of_console_exporter_are_complete(path: Path) -> None:
    spans = list(read_file(path))
    named = by_name(spans)
    agent, tool, second = (named[name] for name in ("weather_agent", "get_weather", "second"))
    assert "parent_id" not in agent
    assert tool["parent_id"] == agent["id"]
    assert (agent["group"], agent["thread_id"]) == ("shop", "t1")
    assert (tool["start"], tool["events"][0]["name"]) == ("2026-11-18T14:38:57.609321Z", "cache miss")
    assert (tool["inputs"], tool["outputs"]) == ({"city": "Paris"}, {"output": "21C in Paris"})
    assert second["status"] == "error"
    assert "overloaded" in second["error"]
    calls = [facts for span in spans if (facts := OpenTelemetry().facts(span)).role == "llm"]
    assert [call.tokens for call in calls] == [TokenCounts(1500, 30, 1024), TokenCounts(1500, 30, 1024), None]
    assert [call.generations[0].failed for call in calls] == [False, False, True]


def test_dump_of_go_exporter_is_read() -> None:
    call, root = read_file(DUMPS / "go_stdouttrace.json")
    assert (root["name"], root["thread_id"], root["group"], root["error"]) == (
        "answer",
        "customer-42",
        "shop",
        "too late",
    )
    assert "parent_id" not in root
    assert (call["parent_id"], call["start"]) == (root["id"], "2026-11-18T10:42:06.177119Z")
    assert call["extra"]["nanoseconds"] == {"start": 1_794_998_526_177_119_576, "end": 1_794_998_526_277_136_776}
    assert (call["extra"]["span_kind"], call["extra"]["scope"]) == ("client", {"name": "shop", "version": "0.1.0"})
    assert call["extra"]["links"][0]["span_id"] == "8abb71052e19cfff"
    assert call["events"] == [
        {"name": "first token", "attributes": {"index": 0}, "time": "2026-11-18T10:42:06.200000Z"}
    ]
    facts = OpenTelemetry().facts(call)
    assert (facts.role, facts.model, facts.tokens) == ("llm", "gpt-4o", TokenCounts(12, 5))
    assert (facts.parameters["temperature"], facts.generations[0].finish_reason) == (0.5, "stop")


WRAPPERS: dict[str, Any] = {
    "a list": GET_SPANS,
    "lines": None,
    "the response of the API": {"data": GET_SPANS, "next_cursor": None},
    "a trace with its spans": {"traceId": "…", "spans": GET_SPANS},
    "rows": ROWS,
    "rows by index": dict(zip(COLUMNS["name"], ROWS, strict=True)),
    "columns, index and data": {
        "columns": list(COLUMNS),
        "index": list(COLUMNS["name"]),
        "data": [list(row.values()) for row in ROWS],
    },
    "a table with its schema": {"schema": {"fields": []}, "data": ROWS},
}


@pytest.mark.parametrize("name", WRAPPERS)
def test_every_wrapper_gives_the_same_spans(name: str) -> None:
    body = json.dumps(WRAPPERS[name])
    if name == "lines":
        body = "\n".join(json.dumps(span) for span in GET_SPANS)
    spans = {span["id"]: (span["name"], span.get("kind")) for span in read_body(body.encode())}
    assert spans == {span["id"]: (span["name"], span["kind"]) for span in read_body(recorded("oi_langchain"))}


def span_of(**fields: Any) -> Json:
    """Return a span as old versions of Phoenix wrote it: nested attributes, ids that are UUIDs."""
    context = {
        "trace_id": "5a39c9b6-7b17-4a2c-9d0f-7f2c5e7a1b11",
        "span_id": "0c1f3d52-8a3d-4f64-bd0c-0c4b9b8e1f22",
    }
    return {
        "name": "llm",
        "context": context,
        "span_kind": "LLM",
        "parent_id": "9d8f2a10-1111-4222-8333-444455556666",
        "start_time": "2023-12-11T17:42:28.105141+00:00",
        "end_time": "2023-12-11T17:42:31.514163+00:00",
        "status_code": "OK",
        "status_message": "",
        "attributes": {
            "llm": {
                "model_name": "gpt-4o",
                "input_messages": [{"message": {"role": "user", "content": "Hi"}}],
                "output_messages": [{"message": {"role": "assistant", "content": "Hello"}}],
                "token_count": {"prompt": 7, "completion": 2},
                "invocation_parameters": '{"temperature": 0.5}',
            },
            "metadata": {"team": {"name": "support"}},
        },
        "events": [],
        "conversation": None,
        **fields,
    }


def read_one(document: Any) -> SpanData:
    (span,) = read_body(json.dumps(document).encode())
    return span


def test_nested_attributes_are_read() -> None:
    span = read_one(span_of())
    facts = OpenTelemetry().facts(span)
    assert (facts.role, facts.model, facts.tokens, facts.parameters) == (
        "llm",
        "gpt-4o",
        TokenCounts(7, 2),
        {"temperature": 0.5},
    )
    assert (facts.input_text, facts.generations[0].text) == ("Hi", "Hello")
    assert span["metadata"] == {"team": {"name": "support"}}


def test_ids_of_other_lengths_become_hashes() -> None:
    first = span_of()
    child = span_of(parent_id=first["context"]["span_id"])
    child["context"] = {**child["context"], "span_id": "another"}
    spans = list(read_body(json.dumps([first, child]).encode()))
    assert spans[0]["trace_id"] == spans[1]["trace_id"] == "5a39c9b67b174a2c9d0f7f2c5e7a1b11"
    assert spans[1].get("parent_id") == spans[0]["id"]


@pytest.mark.parametrize(
    "start",
    [
        "2023-12-11T17:42:28.105Z",
        "2023-12-11 18:42:28.105000+01:00",
        "2023-12-11T17:42:28.105000000",
        1702316548.105,
        1702316548105,
        1702316548105000,
        1702316548105000000,
        1702316548105000000.0,
    ],
)
def test_times_of_any_form_are_read(start: Any) -> None:
    assert read_one(span_of(start_time=start))["start"] == "2023-12-11T17:42:28.105000Z"


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"context": {"trace_id": "1" * 32}}, "span 1: it has no span id"),
        ({"context": {"trace_id": "0x0", "span_id": "2" * 16}, "parent_id": None}, None),
        ({"start_time": "yesterday"}, "span 1: 'yesterday' is not a time"),
        ({"start_time": float("inf")}, "span 1: cannot convert"),
        ({"start_time": float("nan")}, "span 1: cannot convert"),
        ({"attributes": {"metadata.a": 1, "metadata.a.b": 2}}, "is a value and an object"),
    ],
)
def test_defective_span_is_reported(fields: Json, problem: str | None) -> None:
    body = json.dumps([span_of(**fields), span_of()]).encode()
    problems: list[Unreadable] = []
    spans = list(read_body(body, on_bad=problems.append))
    assert len(spans) == (2 if problem is None else 1)
    assert [str(error) for error in problems] == [] or problem in str(problems[0])


def test_deep_attributes_are_reported() -> None:
    value: Any = "x"
    for _ in range(200):
        value = {"a": value}
    with pytest.raises(Unreadable, match="nested too deeply"):
        read_one(span_of(attributes=value))


@pytest.mark.parametrize(
    "document", [{"runs": []}, {"context": {}}, {"spans": []}, {"data": [1]}, {"a": {"b": 1}}, {"columns": ["x"]}]
)
def test_other_objects_are_no_dumps(document: Json) -> None:
    assert dumped_spans(document, "the body") is None
    with pytest.raises(Unreadable, match="no resourceSpans"):
        list(read_body(json.dumps(document).encode()))


@pytest.mark.anyio
async def test_server_rejects_dumps() -> None:
    """A dump is not OTLP. Its values would not be redacted before they are stored."""
    async with open_store("sqlite:///:memory:") as store, serving(store) as url, caller(url) as http:
        answer: httpx2.Response = await http.post("/v1/traces", json=[span_of()])
    assert (answer.status_code, "resourceSpans" in answer.text) == (400, True)
