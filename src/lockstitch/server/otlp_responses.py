"""OTLP responses in protobuf or JSON.

The messages have two fields each, so they do not need the package opentelemetry-proto.
"""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from lockstitch.model import codec

PROTOBUF: Final = "application/x-protobuf"
_JSON: Final = "application/json"
_ENDPOINTS: Final = ("/v1/traces", "/v1/metrics", "/v1/logs")

_CODES: Final = {400: 3, 401: 16, 403: 7, 404: 5, 408: 4, 409: 10, 413: 8, 422: 3, 429: 8, 503: 14, 507: 8}
"""The codes of google.rpc.Code by HTTP status."""


def is_otlp(request: Request) -> bool:
    """True if the request is for an OTLP endpoint. Its errors have a different format."""
    return request.method == "POST" and request.url.path.endswith(_ENDPOINTS)


def is_json(request: Request) -> bool:
    """True if an OTLP request is in JSON. Its response is then in JSON too."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower() == _JSON


def status(request: Request, http_status: int, message: str, headers: dict[str, str]) -> Response:
    """Return an OTLP error: google.rpc.Status in the format of the request."""
    code = _CODES.get(http_status, 2)
    if is_json(request):
        return Response(codec.dumps({"code": code, "message": message}), http_status, headers, media_type=_JSON)
    body = varint_field(1, code) + text_field(2, message)
    return Response(body, http_status, headers, media_type=PROTOBUF)


def parse_status(body: bytes) -> tuple[int, str]:
    """Return the code and the message of an error that `status` wrote in protobuf."""
    # One byte each for the tag and the code, one for the tag of the message. The last byte of its length is below 0x80.
    end = next(place for place in range(3, len(body)) if body[place] < 0x80)
    return body[1], body[end + 1 :].decode()


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
