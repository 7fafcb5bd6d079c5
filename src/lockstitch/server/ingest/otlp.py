"""OTLP over HTTP: traces are taken, in protobuf or JSON. Exporters send metrics and logs along; those are let go."""

import logging
from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from lockstitch.server.access import Ingester
from lockstitch.server.ingest.bodies import OTEL
from lockstitch.server.ingest.sending import accept

router = APIRouter(tags=["otlp"])

_JSON: Final = "application/json"
_PROTOBUF: Final = "application/x-protobuf"
_log = logging.getLogger("lockstitch.server")
_told: set[str] = set()


def answer(request: Request) -> Response:
    """An empty response, that all went well, in the form of the request: {} or a message without fields."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() == _JSON:
        return Response(b"{}", media_type=_JSON)
    return Response(b"", media_type=_PROTOBUF)


@router.post("/v1/traces")
async def traces(request: Request, caller: Ingester) -> Response:
    """Take in spans."""
    await accept(request, caller, OTEL)
    return answer(request)


@router.post("/v1/metrics")
@router.post("/otel/v1/metrics", include_in_schema=False)
async def metrics(request: Request, caller: Ingester) -> Response:
    """Metrics are accepted and not kept."""
    return await _let_go(request, "metrics")


@router.post("/v1/logs")
@router.post("/otel/v1/logs", include_in_schema=False)
async def logs(request: Request, caller: Ingester) -> Response:
    """Logs are accepted and not kept."""
    return await _let_go(request, "logs")


async def _let_go(request: Request, signal: str) -> Response:
    async for _ in request.stream():
        pass
    if signal not in _told:
        _told.add(signal)
        _log.info("OpenTelemetry %s come in; they are not kept, only traces are.", signal)
    return answer(request)
