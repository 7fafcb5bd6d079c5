"""The OpenTelemetry exporter, and other formats of OTLP."""

import asyncio
import gzip
import json
from typing import Any

import httpx2
import pytest
import zstandard
from google.protobuf.json_format import MessageToDict
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from lockstitch.store import Store
from tests.integrations.importing import lens
from tests.integrations.otel import bodies as otel
from tests.integrations.test_fixtures import shows
from tests.server.ingest.sending import PROTOBUF, send_agent_spans, settled

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["sqlite"])
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.mark.parametrize("compression", [Compression.Gzip, Compression.NoCompression])
async def test_sdk_exporter_sends_spans(
    store: Store, url: str, http: httpx2.AsyncClient, compression: Compression
) -> None:
    exporter = OTLPSpanExporter(endpoint=f"{url}/v1/traces", compression=compression)
    await asyncio.to_thread(send_agent_spans, exporter)
    assert (await settled(http))["quarantine"] == []
    rows = await lens(store)
    assert [(run["status"], run["total_tokens"]) for run in rows["agent_runs"]] == [("success", 110)]
    assert [(call["model_name"], call["finish_reason"]) for call in rows["llm_calls"]] == [("gpt-5", "stop")]


@pytest.mark.parametrize("encoding", ["identity", "gzip", "zstd"])
@pytest.mark.parametrize("form", ["protobuf", "json"])
async def test_formats_and_encodings_are_accepted(
    store: Store, http: httpx2.AsyncClient, form: str, encoding: str
) -> None:
    body = (otel.FIXTURES / "pydantic_ai.body").read_bytes()
    kind = PROTOBUF["content-type"]
    if form == "json":
        kind, body = "application/json", json.dumps(_as_json(body)).encode()
    packed = {"identity": lambda data: data, "gzip": gzip.compress, "zstd": zstandard.compress}[encoding](body)
    headers = {"content-type": kind, "content-encoding": encoding}
    answer = await http.post("/v1/traces", headers=headers, content=packed)
    assert (answer.status_code, answer.headers["content-type"]) == (200, kind)
    assert answer.content == (b"{}" if form == "json" else b"")
    assert (await settled(http))["quarantine"] == []
    await shows(store, "otel", "pydantic_ai")


@pytest.mark.parametrize("path", ["/v1/logs", "/otel/v1/logs", "/api/public/otel/v1/logs"])
async def test_log_records_complete_their_spans(store: Store, http: httpx2.AsyncClient, path: str) -> None:
    folder = otel.FIXTURES.parent / "logs" / "claude_code"
    for url, name in ((path, "logs"), ("/v1/traces", "traces")):
        answer = await http.post(url, headers=PROTOBUF, content=(folder / f"{name}.body").read_bytes())
        assert (answer.status_code, answer.content) == (200, b"")
    assert (await settled(http))["quarantine"] == []
    rows = await lens(store)
    assert [call["llm_output_text"] for call in rows["llm_calls"]] == ["I look.", "It is 21C in Paris."]
    assert [run["total_tokens"] for run in rows["agent_runs"]] == [2 * 1290]


async def test_unreadable_logs_are_rejected(http: httpx2.AsyncClient) -> None:
    answer = await http.post("/v1/logs", headers={"content-type": "application/json"}, content=b"{")
    assert (answer.status_code, answer.json()["code"]) == (400, 3)
    bad = b'{"resourceLogs": []}\n{"resourceLogs": [{"scopeLogs": [{"logRecords": [{}]}]}]}\n{'
    answer = await http.post("/v1/logs", headers={"content-type": "application/json"}, content=bad)
    assert answer.json()["partialSuccess"]["rejectedLogRecords"] == "1"


async def test_metrics_and_other_logs_are_discarded(http: httpx2.AsyncClient) -> None:
    for path in ("/v1/metrics", "/v1/logs"):
        answer = await http.post(path, headers=PROTOBUF, content=b"\x0a\x00")
        assert (answer.status_code, answer.content) == (200, b"")
    empty = {"waiting": 0, "bytes": 0, "quarantined": 0, "quarantine": []}
    assert await settled(http) == {**empty, "oldest_seconds": None, "stuck": 0}


def _as_json(body: bytes) -> Any:
    """Return a request as OTLP JSON, with hexadecimal ids."""
    message = ExportTraceServiceRequest.FromString(body)
    document = MessageToDict(message, use_integers_for_enums=True)
    for group, resource in zip(document["resourceSpans"], message.resource_spans, strict=True):
        for scoped, scope in zip(group["scopeSpans"], resource.scope_spans, strict=True):
            for span, source in zip(scoped["spans"], scope.spans, strict=True):
                span["traceId"], span["spanId"] = source.trace_id.hex(), source.span_id.hex()
                if source.parent_span_id:
                    span["parentSpanId"] = source.parent_span_id.hex()
    return document
