"""OTLP over HTTP in protobuf or JSON. Traces and some log records are stored. Metrics are discarded."""

import logging
from collections.abc import Sequence
from typing import Any, Final

from fastapi import Request
from starlette.responses import JSONResponse, Response

from lockstitch.integrations.body_reader import OTEL
from lockstitch.model import codec
from lockstitch.server import otlp_responses
from lockstitch.server.api import responses
from lockstitch.server.auth import Ingester
from lockstitch.server.ingest.accept import accept
from lockstitch.server.otlp_responses import PROTOBUF, is_json
from lockstitch.server.routing import LazyRouter

router = LazyRouter(tags=["otlp"])

_JSON: Final = "application/json"
_log = logging.getLogger("lockstitch.server")
_logged_signals: set[str] = set()


EXPORTED: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "Accepted. `partialSuccess` is present if some spans were rejected.",
        "model": responses.Exported,
        "content": {PROTOBUF: {"schema": {"type": "string", "format": "binary"}}},
    }
}


def answer(request: Request, problems: Sequence[str] = (), rejected: str = "Spans") -> Response:
    """Return an ExportTraceServiceResponse in the format of the request.

    It is empty if all spans were accepted. Otherwise `partial_success` has the number of rejected spans and the
    reasons.
    """
    message = "; ".join(filter(None, problems))
    if is_json(request):
        partial = {"partialSuccess": {f"rejected{rejected}": str(len(problems)), "errorMessage": message}}
        return Response(codec.dumps(partial if problems else {}), media_type=_JSON)
    inner = otlp_responses.varint_field(1, len(problems)) + otlp_responses.text_field(2, message)
    return Response(otlp_responses.bytes_field(1, inner) if problems else b"", media_type=PROTOBUF)


@router.post("/v1/traces", responses=EXPORTED, response_class=JSONResponse)
async def traces(request: Request, caller: Ingester) -> Response:
    """Accept spans. An unreadable request gets 400, as OTLP requires."""
    return answer(request, await accept(request, caller, OTEL))


@router.post("/v1/metrics", responses=EXPORTED, response_class=JSONResponse)
@router.post("/otel/v1/metrics", include_in_schema=False)
@router.post("/api/public/otel/v1/metrics", include_in_schema=False)
async def metrics(request: Request, caller: Ingester) -> Response:
    """Accept and discard metrics."""
    return await _discard(request, "metrics")


@router.post("/v1/logs", responses=EXPORTED, response_class=JSONResponse)
@router.post("/otel/v1/logs", include_in_schema=False)
@router.post("/api/public/otel/v1/logs", include_in_schema=False)
async def logs(request: Request, caller: Ingester) -> Response:
    """Accept log records that describe model calls or contain their messages. Other log records are discarded."""
    return answer(request, await accept(request, caller, OTEL, logs=True), "LogRecords")


async def _discard(request: Request, signal: str) -> Response:
    async for _ in request.stream():
        pass
    if signal not in _logged_signals:
        _logged_signals.add(signal)
        _log.info("Discarding OpenTelemetry %s", signal)
    return answer(request)
