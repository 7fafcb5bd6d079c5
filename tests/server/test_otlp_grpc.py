"""OTLP over gRPC: the SDK's exporter, recorded bodies, tokens, limits and errors."""

import asyncio
import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import grpc
import grpc.aio
import httpx2
import pytest
import uvicorn
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from lockstitch.errors import StoreUnreachable
from lockstitch.integrations.spans.budget import Limits
from lockstitch.model.side_records import IngestBody
from lockstitch.server import Settings, create_app
from lockstitch.server.otlp_grpc import GrpcEndpoint
from lockstitch.store import Store
from tests.integrations.importing import lens
from tests.integrations.otel.bodies import NAMES, recorded
from tests.integrations.test_fixtures import shows
from tests.server.ingest.sending import send_agent_spans, settled
from tests.server.serving import caller, listening

pytestmark = pytest.mark.anyio

TRACES = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
METRICS = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
LOGS = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"
GZIP = grpc.Compression.Gzip


@pytest.fixture(params=["sqlite"])
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


class Receiver(NamedTuple):
    """A server with its gRPC endpoint."""

    address: str
    channel: grpc.aio.Channel
    http: httpx2.AsyncClient

    async def export(self, body: bytes, *, method: str = TRACES, **options: Any) -> bytes:
        return await self.channel.unary_unary(method)(body, timeout=60, **options)

    async def fails(self, body: bytes, *, method: str = TRACES, **options: Any) -> grpc.aio.AioRpcError:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await self.export(body, method=method, **options)
        return caught.value


@asynccontextmanager
async def receiving(store: Store, settings: Settings | None = None) -> AsyncIterator[Receiver]:
    settings = settings or Settings()
    app = create_app(store, None, settings)
    config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="on")
    async with (
        listening(config, leaving=app.state.lockstitch.changes.stop) as url,
        GrpcEndpoint("127.0.0.1", 0, settings) as endpoint,
        grpc.aio.insecure_channel(endpoint.address) as channel,
        caller(url) as http,
    ):
        await endpoint.start(app)
        yield Receiver(endpoint.address, channel, http)


@pytest.fixture
async def receiver(store: Store) -> AsyncIterator[Receiver]:
    async with receiving(store) as started:
        yield started


@pytest.mark.parametrize("compression", [GZIP, grpc.Compression.NoCompression])
async def test_sdk_exporter_sends_spans(store: Store, receiver: Receiver, compression: grpc.Compression) -> None:
    exporter = OTLPSpanExporter(endpoint=f"http://{receiver.address}", compression=compression)
    await asyncio.to_thread(send_agent_spans, exporter)
    assert (await settled(receiver.http))["quarantine"] == []
    rows = await lens(store)
    assert [(run["status"], run["total_tokens"]) for run in rows["agent_runs"]] == [("success", 110)]
    assert [(call["model_name"], call["finish_reason"]) for call in rows["llm_calls"]] == [("gpt-5", "stop")]


@pytest.mark.parametrize("name", NAMES[:3])
@pytest.mark.parametrize("compression", [None, GZIP])
async def test_recorded_bodies_give_the_same_rows(
    store: Store, receiver: Receiver, name: str, compression: grpc.Compression | None
) -> None:
    assert await receiver.export(recorded(name), compression=compression) == b""
    assert (await settled(receiver.http))["quarantine"] == []
    await shows(store, "otel", name)


async def test_body_is_stored_before_the_response(store: Store) -> None:
    # Without the processor, which would remove the body from the queue.
    app = create_app(store)
    async with GrpcEndpoint("127.0.0.1", 0, Settings()) as endpoint:
        await endpoint.start(app)
        async with grpc.aio.insecure_channel(endpoint.address) as channel:
            await channel.unary_unary(TRACES)(recorded("oi_openai"))
    (row,) = await store.table(IngestBody).find()
    assert (row.source, row.body, row.headers["path"]) == ("otel", recorded("oi_openai"), "/v1/traces")


async def test_rejected_spans_are_a_partial_success(receiver: Receiver) -> None:
    request = ExportTraceServiceRequest.FromString(recorded("pydantic_ai"))
    request.resource_spans[0].scope_spans[0].spans[0].span_id = b""
    answer = ExportTraceServiceResponse.FromString(await receiver.export(request.SerializeToString()))
    assert answer.partial_success.rejected_spans == 1
    assert "span id" in answer.partial_success.error_message


@pytest.mark.parametrize("method", [METRICS, LOGS])
async def test_metrics_and_logs_are_accepted(receiver: Receiver, method: str) -> None:
    assert await receiver.export(b"\x0a\x00", method=method) == b""
    assert (await settled(receiver.http))["quarantined"] == 0


async def test_unreadable_request_is_an_invalid_argument(store: Store, receiver: Receiver) -> None:
    error = await receiver.fails(b"\x0a\x03\x0a\xff\xff")
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "Nothing was stored" in (error.details() or "")
    assert await store.table(IngestBody).find() == []


async def test_unknown_service_is_unimplemented(receiver: Receiver) -> None:
    method = TRACES.replace("trace.v1.TraceService", "profiles.v1development.ProfilesService")
    assert (await receiver.fails(b"", method=method)).code() is grpc.StatusCode.UNIMPLEMENTED


async def test_token_selects_the_project(store: Store) -> None:
    _, secret = await store.in_project("shop").tokens.create("collector", ["ingest"])
    _, admin = await store.in_project("shop").tokens.create("operator", ["admin"])
    _, reader = await store.tokens.create("reader", ["read"])
    body = recorded("oi_openai")
    async with receiving(store, Settings(tokens_needed=True)) as receiver:
        for metadata, code in (
            ((), grpc.StatusCode.UNAUTHENTICATED),
            ((("authorization", "Bearer unknown"),), grpc.StatusCode.UNAUTHENTICATED),
            ((("authorization", f"Bearer {reader}"),), grpc.StatusCode.PERMISSION_DENIED),
        ):
            assert (await receiver.fails(body, metadata=metadata)).code() is code
        for metadata in ((("authorization", f"Bearer {secret}"),), (("x-api-key", secret),)):
            assert await receiver.export(body, metadata=metadata) == b""
        receiver.http.headers["authorization"] = f"Bearer {admin}"
        assert (await settled(receiver.http))["quarantine"] == []
    assert len(await store.in_project("shop").threads()) == 1
    assert await store.threads() == []


async def _no_messages(until: asyncio.Event) -> AsyncIterator[bytes]:
    await until.wait()
    yield b""


async def test_token_is_checked_before_the_message_is_read(store: Store) -> None:
    done = asyncio.Event()
    async with receiving(store, Settings(tokens_needed=True)) as receiver:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await receiver.channel.stream_unary(TRACES)(_no_messages(done), timeout=60)
        done.set()
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_call_ends_when_its_message_is_late(store: Store) -> None:
    done = asyncio.Event()
    async with receiving(store, Settings(body_seconds=0.05)) as receiver:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await receiver.channel.stream_unary(TRACES)(_no_messages(done), timeout=60)
        done.set()
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert "not received in time" in (caught.value.details() or "")


async def test_call_without_a_message_is_an_invalid_argument(receiver: Receiver) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await receiver.channel.stream_unary(TRACES)(iter(()), timeout=60)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("compression", [None, GZIP])
async def test_large_message_exhausts_the_limit(store: Store, compression: grpc.Compression | None) -> None:
    """The limit also holds for the unpacked size, so a small packed message cannot fill the memory."""
    async with receiving(store, Settings(body_limit=100_000)) as receiver:
        error = await receiver.fails(bytes(1_000_000), compression=compression)
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await receiver.export(recorded("oi_openai"), compression=compression) == b""


async def test_expensive_body_exhausts_its_budget(store: Store) -> None:
    async with receiving(store, Settings(body_cost=Limits(items=1))) as receiver:
        error = await receiver.fails(recorded("pydantic_ai"))
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert error.trailing_metadata() is None or not dict(error.trailing_metadata() or ())


async def test_unreachable_store_is_unavailable_with_a_delay(
    store: Store, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def put(records: Any, **more: Any) -> None:
        raise StoreUnreachable("no connection")

    with monkeypatch.context() as patch:
        patch.setattr(store._backend, "put", put)
        error = await receiver.fails(recorded("oi_openai"))
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert "no connection" in (error.details() or "")
    metadata: dict[str, Any] = dict(error.trailing_metadata() or ())
    assert RetryInfo.FromString(metadata["google.rpc.retryinfo-bin"]).retry_delay.seconds == 3
    status = Status.FromString(metadata["grpc-status-details-bin"])
    retry_info = RetryInfo()
    assert status.details[0].Unpack(retry_info)
    assert (status.code, status.message, retry_info.retry_delay.seconds) == (14, error.details(), 3)
    assert await receiver.export(recorded("oi_openai")) == b""


async def test_unexpected_error_does_not_stop_the_endpoint(
    store: Store, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def put(records: Any, **more: Any) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(store._backend, "put", put)
        error = await receiver.fails(recorded("oi_openai"))
    assert error.code() is grpc.StatusCode.UNKNOWN
    assert "See the server log" in (error.details() or "")
    assert await receiver.export(recorded("oi_openai")) == b""


async def test_packed_body_is_accepted(store: Store, receiver: Receiver) -> None:
    """Some clients compress the message themselves."""
    assert await receiver.export(gzip.compress(recorded("oi_openai"))) == b""
    assert (await settled(receiver.http))["quarantine"] == []
    await shows(store, "otel", "oi_openai")


async def test_calls_appear_in_the_metrics(receiver: Receiver) -> None:
    await receiver.export(recorded("oi_openai"))
    metrics = (await receiver.http.get("/metrics")).text
    assert 'lockstitch_requests_total{method="POST",route="/v1/traces",status="200"} 1' in metrics


async def test_address_in_use_is_an_error() -> None:
    async with GrpcEndpoint("127.0.0.1", 0, Settings()) as endpoint:
        with pytest.raises(OSError, match=f":{endpoint.port}"):
            GrpcEndpoint("127.0.0.1", endpoint.port, Settings())
