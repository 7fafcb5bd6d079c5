"""Runs as traces: the protobuf messages that a collector receives."""

import json
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import UUID

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from lockstitch.agents.agent import Agent
from lockstitch.agents.providers.scripted import Scripted
from lockstitch.agents.run_spans import Exporter, trace
from lockstitch.agents.tools.function import tool
from lockstitch.errors import Refused
from lockstitch.model import Entry, Run, Stitch, Thread, at_position, new_id
from lockstitch.store import open_store
from tests.samples import answered, asked, result, said

pytestmark = pytest.mark.anyio

START = datetime(2026, 1, 1, 12, 0, 0, 123_456, tzinfo=UTC)
INTERNAL, CLIENT, ERROR = 1, 3, 2


def nanoseconds(after: float) -> int:
    return (int(START.timestamp()) * 1_000_000 + START.microsecond + round(after * 1_000_000)) * 1_000


class Story:
    """A run that called two tools, of which one failed, and then answered."""

    def __init__(self, **run: Any) -> None:
        self.thread = Thread(project="p", user_id="ada", agent="helper", created_at=START, updated_at=START)
        fields: Any = {
            "thread_id": self.thread.id,
            "sequence": 2,
            "turn": 1,
            "agent": "helper",
            "version": 3,
            "status": "completed",
            "stop_reason": "end_turn",
            "first_position": 1,
            "model": "claude-sonnet-4-5",
            "provider": "anthropic",
            "input_tokens": 30,
            "output_tokens": 7,
            "cache_read_tokens": 5,
            "total_cost": 0.25,
            "steps": 2,
            "started_at": START,
            "completed_at": START + timedelta(seconds=9),
        }
        self.run = Run(**{**fields, **run})
        request = {"sha256": "x", "parameters": {"max_tokens": 2048, "api_kwargs": {"temperature": 0.5}}}
        data = {"stop_reason": "tool_use", "response_id": "msg_1", "model": "claude-sonnet-4-5-20250929"}
        tokens = {"input_tokens": 20, "output_tokens": 4, "cache_read_tokens": 5, "cache_write_tokens": 0}
        model = "claude-sonnet-4-5"
        self.stitches = self._placed(
            (0.0, said("Look", step_number=0)),
            (2.0, asked("c1", "c2", name="look", data={**data, "request": request}, duration_ms=1500, **tokens)),
            (3.0, result("c1", 0, 2, "seen", duration_ms=250, step_number=1)),
            (3.5, Entry(type="tool_error", name="look", status="timeout", data={"message": "too slow"})),
            (3.5, result("c2", 1, 2, "too slow", step_number=1)),
            (9.0, answered("It is there.", name=model, duration_ms=900, input_tokens=10, output_tokens=3)),
        )
        self.stitches[1] = self.stitches[1].changed(name=model)
        failed = self.stitches[4].message or {}
        self.stitches[4] = self.stitches[4].changed(message={**failed, "is_error": True}, status="error")

    def _placed(self, *entries: tuple[float, Entry]) -> list[Stitch]:
        return [
            at_position(
                entry.changed(run_id=self.run.id), self.thread.id, number, None, 1, START + timedelta(seconds=at)
            )
            for number, (at, entry) in enumerate(entries, start=1)
        ]

    def trace(self, **options: Any) -> ExportTraceServiceRequest:
        return trace(self.thread, self.run, self.stitches, **options)


def spans_of(request: ExportTraceServiceRequest) -> list[Any]:
    [resource] = request.resource_spans
    [scope] = resource.scope_spans
    return list(scope.spans)


def attributes_of(part: Any) -> dict[str, Any]:
    def plain(value: Any) -> Any:
        kind = value.WhichOneof("value")
        return (
            [plain(element) for element in value.array_value.values] if kind == "array_value" else getattr(value, kind)
        )

    return {attribute.key: plain(attribute.value) for attribute in part.attributes}


def test_run_is_span_with_calls_as_children() -> None:
    story = Story()
    spans = spans_of(story.trace())
    run, *calls = spans

    assert [span.name for span in spans] == [
        "invoke_agent helper",
        "chat claude-sonnet-4-5",
        "execute_tool look",
        "execute_tool look",
        "chat claude-sonnet-4-5",
    ]
    assert [span.kind for span in spans] == [INTERNAL, CLIENT, INTERNAL, INTERNAL, CLIENT]
    assert len({span.trace_id for span in spans}) == 1
    assert len({span.span_id for span in spans}) == 5
    assert all(len(span.trace_id) == 16 and len(span.span_id) == 8 for span in spans)
    assert run.parent_span_id == b""
    assert {span.parent_span_id for span in calls} == {run.span_id}
    assert attributes_of(run) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": "anthropic",
        "gen_ai.agent.name": "helper",
        "gen_ai.agent.version": "3",
        "gen_ai.conversation.id": str(story.thread.id),
        "gen_ai.request.model": "claude-sonnet-4-5",
        "gen_ai.response.finish_reasons": ["end_turn"],
        "gen_ai.usage.input_tokens": 30,
        "gen_ai.usage.output_tokens": 7,
        "gen_ai.usage.cache_read.input_tokens": 5,
        "gen_ai.usage.cache_creation.input_tokens": 0,
        "user.id": "ada",
        "lockstitch.run.id": str(story.run.id),
        "lockstitch.run.status": "completed",
        "lockstitch.steps": 2,
        "lockstitch.total_cost": 0.25,
    }


def test_model_call_span_has_request_and_usage() -> None:
    chat = spans_of(Story().trace())[1]
    attributes = attributes_of(chat)

    assert attributes["gen_ai.operation.name"] == "chat"
    assert attributes["gen_ai.request.model"] == "claude-sonnet-4-5"
    assert attributes["gen_ai.response.model"] == "claude-sonnet-4-5-20250929"
    assert attributes["gen_ai.response.id"] == "msg_1"
    assert attributes["gen_ai.response.finish_reasons"] == ["tool_use"]
    assert attributes["gen_ai.request.max_tokens"] == 2048
    assert attributes["gen_ai.request.temperature"] == 0.5
    assert attributes["gen_ai.usage.input_tokens"] == 20
    assert attributes["gen_ai.usage.cache_read.input_tokens"] == 5
    assert attributes["lockstitch.step"] == 1
    assert "gen_ai.output.messages" not in attributes


def test_spans_have_times_of_record() -> None:
    run, chat, tool, *_ = spans_of(Story().trace())

    assert (run.start_time_unix_nano, run.end_time_unix_nano) == (nanoseconds(0), nanoseconds(9))
    assert (chat.start_time_unix_nano, chat.end_time_unix_nano) == (nanoseconds(0.5), nanoseconds(2))
    assert (tool.start_time_unix_nano, tool.end_time_unix_nano) == (nanoseconds(2.75), nanoseconds(3))


def test_failed_spans_have_error_status() -> None:
    run, _, lookup, slow, _ = spans_of(Story().trace())

    assert [run.status.code, lookup.status.code, slow.status.code] == [0, 0, ERROR]
    assert attributes_of(slow)["error.type"] == "tool_error"
    [event] = run.events
    assert event.name == "exception"
    assert attributes_of(event)["exception.type"] == "timeout"

    failed = spans_of(Story(status="failed", stop_reason="error", error="No credit left: €0").trace())[0]
    assert failed.status.code == ERROR
    assert failed.status.message == "No credit left: €0"
    assert attributes_of(failed)["error.type"] == "error"


def test_content_is_sent_only_on_demand() -> None:
    story = Story()
    assert b"seen" not in story.trace().SerializeToString()
    assert b"too slow" not in spans_of(story.trace())[3].SerializeToString()

    run, chat, tool, slow, _ = spans_of(story.trace(content=True))

    [question] = json.loads(attributes_of(run)["gen_ai.input.messages"])
    assert question == {"role": "user", "parts": [{"type": "text", "content": "Look"}]}
    [message] = json.loads(attributes_of(chat)["gen_ai.output.messages"])
    assert message["finish_reason"] == "tool_calls"
    assert message["parts"][0] == {"type": "tool_call", "id": "c1", "name": "look", "arguments": {"of": "c1"}}
    assert json.loads(attributes_of(tool)["gen_ai.tool.call.arguments"]) == {"of": "c1"}
    assert attributes_of(tool)["gen_ai.tool.call.result"] == "seen"
    assert slow.status.message == "too slow"


def test_same_run_has_same_trace_and_member_is_child_of_leader() -> None:
    story = Story()
    member = story.run.changed(id=new_id(), parent_run_id=story.run.id, sequence=3, agent="member")
    next_turn = story.run.changed(id=new_id(), turn=2)

    assert story.trace() == story.trace()
    leader = spans_of(story.trace())[0]
    [below] = spans_of(trace(story.thread, member, story.stitches))
    [next_span] = spans_of(trace(story.thread, next_turn, []))
    assert below.trace_id == leader.trace_id != next_span.trace_id
    assert below.parent_span_id == leader.span_id
    assert leader.span_id == story.run.id.bytes[8:]


def test_open_run_ends_with_known_values() -> None:
    story = Story(status="running", completed_at=None, stop_reason=None)

    assert spans_of(story.trace())[0].end_time_unix_nano == nanoseconds(9)
    [bare] = spans_of(trace(story.thread, story.run, []))
    assert bare.end_time_unix_nano == bare.start_time_unix_nano == nanoseconds(0)
    assert "gen_ai.response.finish_reasons" not in attributes_of(bare)


# Export to a collector


class Collector(ThreadingHTTPServer):
    """A fake collector with a fixed answer."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.got: list[tuple[str, dict[str, str], ExportTraceServiceRequest]] = []
        self.answer: tuple[int, str, bytes] = (200, "application/x-protobuf", b"")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        server: Any = self.server
        body = self.rfile.read(int(self.headers["Content-Length"]))
        server.got.append((self.path, dict(self.headers), ExportTraceServiceRequest.FromString(body)))
        status, kind, answer = server.answer
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(answer)))
        if status == 302:
            self.send_header("Location", "/elsewhere")
        self.end_headers()
        self.wfile.write(answer)

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    server = Collector()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


async def test_trace_arrives_at_collector(collector: Collector) -> None:
    story = Story()
    exporter = Exporter(f"{collector.url}/otel/", {"Authorization": "Bearer plum"})

    assert await exporter.send(story.trace(service="shop")) is True

    [(path, headers, request)] = collector.got
    assert path == "/otel/v1/traces"
    assert headers["Content-Type"] == "application/x-protobuf"
    assert headers["Authorization"] == "Bearer plum"
    assert request == story.trace(service="shop")
    assert attributes_of(request.resource_spans[0].resource) == {"service.name": "shop"}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((503, "text/plain", b"later"), "503"),
        ((400, "application/json", b"{}"), "400"),
        ((302, "text/plain", b""), "redirects to"),
        ((200, "application/x-protobuf", b"\xff\xff"), "Trace not sent"),
        (
            (
                200,
                "application/x-protobuf",
                ExportTraceServiceResponse(
                    partial_success=ExportTracePartialSuccess(rejected_spans=2, error_message="quota")
                ).SerializeToString(),
            ),
            "rejected 2 spans: quota",
        ),
    ],
)
async def test_logs_rejection_by_collector(
    collector: Collector, caplog: pytest.LogCaptureFixture, answer: Any, reason: str
) -> None:
    collector.answer = answer

    with caplog.at_level(logging.WARNING, logger="lockstitch"):
        assert await Exporter(collector.url).send(Story().trace()) is False

    assert reason in caplog.text


async def test_accepts_json_answer_of_collector(collector: Collector) -> None:
    collector.answer = (200, "application/json", b"{}")

    assert await Exporter(collector.url).send(Story().trace()) is True


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:9", "http://127.0.0.1:9/x y"])
async def test_logs_missing_collector(endpoint: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="lockstitch"):
        assert await Exporter(endpoint, timeout=2).send(Story().trace()) is False

    assert "Trace not sent" in caplog.text


@pytest.mark.parametrize("endpoint", ["", "localhost:4318", "file:///etc/passwd"])
def test_rejects_invalid_endpoint(endpoint: str) -> None:
    with pytest.raises(Refused):
        Exporter(endpoint)


def test_import_of_lockstitch_loads_no_protobuf() -> None:
    program = "import sys, lockstitch; sys.exit('google.protobuf' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_ids_of_any_version_make_spans() -> None:
    story = Story(id=UUID("11111111-1111-5111-8111-111111111111"))

    assert spans_of(story.trace())[0].span_id == b"\x81" + b"\x11" * 7


def _sums() -> Agent:
    @tool(effect="safe")
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    script = [{"calls": [{"name": "add", "input": {"a": 1, "b": 2}}]}, "It is 3."]
    return Agent("sums", model=Scripted(script), tools=[add], title=False, max_tokens=99)


async def test_sends_run_to_endpoint_of_environment(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-team=a%20b, x-key=k")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "shop")
    agent = _sums()
    async with open_store("sqlite:///:memory:") as store:
        await agent.run("Add", store=store)
        await agent.close()
    [(_, headers, request)] = collector.got
    lower = {name.lower(): value for name, value in headers.items()}
    assert (lower["x-team"], lower["x-key"]) == ("a b", "k")
    run, first, called, last = spans_of(request)
    assert [span.name for span in (run, first, called, last)] == [
        *("invoke_agent sums", "chat scripted", "execute_tool add", "chat scripted")
    ]
    assert attributes_of(first)["gen_ai.request.max_tokens"] == 99
    assert attributes_of(request.resource_spans[0].resource) == {"service.name": "shop"}


async def test_unreachable_collector_does_not_affect_run(caplog: pytest.LogCaptureFixture) -> None:
    agent = _sums()
    silent = Agent("sums", model=Scripted(["Fine."]), title=False, traces="http://127.0.0.1:9")
    async with open_store("sqlite:///:memory:") as store:
        assert (await agent.run("Add", store=store)).status == "completed"
        assert (await silent.run("Hi", store=store)).status == "completed"
        await silent.close()
    assert "127.0.0.1:9" in caplog.text
