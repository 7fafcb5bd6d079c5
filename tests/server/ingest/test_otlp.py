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
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from lockstitch.store import Store
from tests.integrations.importing import lens
from tests.integrations.otel import bodies as otel
from tests.integrations.test_fixtures import shows
from tests.server.ingest.sending import PROTOBUF, settled

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["sqlite"])
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.mark.parametrize("compression", [Compression.Gzip, Compression.NoCompression])
async def test_sdk_exporter_sends_spans(
    store: Store, url: str, http: httpx2.AsyncClient, compression: Compression
) -> None:
    def work() -> None:
        provider = TracerProvider(resource=Resource({"service.name": "shop"}))
        exporter = OTLPSpanExporter(endpoint=f"{url}/v1/traces", compression=compression)
        provider.add_span_processor(BatchSpanProcessor(exporter))
        tracer = provider.get_tracer("shop")
        with tracer.start_as_current_span("invoke_agent helper", attributes={"gen_ai.operation.name": "invoke_agent"}):
            answer: dict[str, Any] = {
                "gen_ai.operation.name": "chat",
                "gen_ai.provider.name": "openai",
                "gen_ai.request.model": "gpt-5",
                "gen_ai.usage.input_tokens": 100,
                "gen_ai.usage.output_tokens": 10,
                "gen_ai.response.finish_reasons": ["stop"],
            }
            with tracer.start_as_current_span("chat gpt-5", attributes=answer):
                pass
        provider.shutdown()

    await asyncio.to_thread(work)
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


async def test_metrics_and_logs_are_discarded(http: httpx2.AsyncClient) -> None:
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
