"""The few messages of protobuf that a server writes itself: answers to OTLP requests.

They have two fields each, so the package opentelemetry-proto is not needed for them.
"""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from lockstitch.model import codec

PROTOBUF: Final = "application/x-protobuf"
_JSON: Final = "application/json"
_ENDPOINTS: Final = ("/v1/traces", "/v1/metrics", "/v1/logs")

_CODES: Final = {400: 3, 401: 16, 403: 7, 404: 5, 408: 4, 409: 10, 413: 8, 422: 3, 429: 8, 503: 14, 507: 8}
"""The codes of google.rpc.Code that say the same as a status of HTTP."""


def is_otlp(request: Request) -> bool:
    """True if a request goes to one of the endpoints of OTLP, whose errors have their own form."""
    return request.method == "POST" and request.url.path.endswith(_ENDPOINTS)


def is_json(request: Request) -> bool:
    """True if an OTLP request is in JSON, and so its answer."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower() == _JSON


def status(request: Request, http_status: int, message: str, headers: dict[str, str]) -> Response:
    """Return an error of OTLP: google.rpc.Status in the form of the request."""
    code = _CODES.get(http_status, 2)
    if is_json(request):
        return Response(codec.dumps({"code": code, "message": message}), http_status, headers, media_type=_JSON)
    body = varint_field(1, code) + text_field(2, message)
    return Response(body, http_status, headers, media_type=PROTOBUF)


def varint_field(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def text_field(number: int, text: str) -> bytes:
    return bytes_field(number, text.encode(errors="replace"))


def bytes_field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)
