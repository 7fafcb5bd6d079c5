"""Helpers of ingest tests: recorded requests, and waiting for the ingest queue."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import httpx2
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

from tests.integrations.langsmith import recorded as langsmith
from tests.integrations.otel import bodies as otel

PROTOBUF = {"content-type": "application/x-protobuf"}
KEPT = ("content-type", "content-encoding")


class Sent(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


def requests_of(source: str, name: str) -> Iterator[Sent]:
    """Return the requests of a recording in order."""
    if source == "otel":
        body = (otel.FIXTURES / f"{name}.body").read_bytes()
        path = "/otel/v1/traces" if name == "otel_mode" else "/v1/traces"
        yield Sent("POST", path, {"content-type": "application/x-protobuf"}, body)
        return
    for file in sorted((langsmith.FIXTURES / name).glob("*.body")):
        saved_headers = json.loads(Path(str(file).removesuffix(".body") + ".headers.json").read_bytes())
        headers = {key.lower(): value for key, value in saved_headers["headers"].items() if key.lower() in KEPT}
        yield Sent(saved_headers["method"], saved_headers["path"], headers, file.read_bytes())


def run_of(**fields: Any) -> dict[str, Any]:
    """Return a completed run in the format of LangSmith."""
    run_id = str(uuid4())
    times = {"start_time": "2026-01-01T00:00:00+00:00", "end_time": "2026-01-01T00:00:01+00:00"}
    return {"id": run_id, "trace_id": run_id, "name": "one", "run_type": "chain", **times, **fields}


async def settled(http: httpx2.AsyncClient, seconds: float = 30.0) -> dict[str, Any]:
    """Wait until the ingest queue is empty and return its state."""
    async with asyncio.timeout(seconds):
        while True:
            queue = (await http.get("/api/arrivals")).json()
            if queue["waiting"] == 0:
                return queue
            await asyncio.sleep(0.01)


def send_agent_spans(exporter: SpanExporter) -> None:
    """Send the spans of an agent with one model call, as an application with OpenTelemetry's SDK does."""
    provider = TracerProvider(resource=Resource({"service.name": "shop"}))
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
