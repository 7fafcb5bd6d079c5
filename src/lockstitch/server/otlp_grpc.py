"""`GrpcEndpoint`: OTLP over gRPC.

A call becomes a request to the HTTP route of its signal, inside this process. So both transports have the same tokens,
limits, storage, metrics and access log. The messages stay bytes: the routes read protobuf themselves.
"""

from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from typing import Any, Final, Self

import grpc
import grpc.aio
from starlette.types import ASGIApp, Message, Scope

from lockstitch.server import otlp_responses
from lockstitch.server.settings import Settings

_ROUTES: Final = {
    "opentelemetry.proto.collector.trace.v1.TraceService": "/v1/traces",
    "opentelemetry.proto.collector.metrics.v1.MetricsService": "/v1/metrics",
    "opentelemetry.proto.collector.logs.v1.LogsService": "/v1/logs",
}
"""The routes of the OTLP services. Each service has one method, `Export`."""

_FORWARDED: Final = ("authorization", "x-api-key", "lockstitch-project", "user-agent")
"""Metadata of a call that become headers."""

_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}


class GrpcEndpoint:
    """A gRPC server on one address. It binds the address when it is created, and serves between `start` and `stop`.

    Raises `OSError` if the address is in use or not available. Create it in the event loop that serves it.
    """

    def __init__(self, host: str, port: int, settings: Settings) -> None:
        self._app: ASGIApp | None = None
        self._server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", settings.body_limit),
                # Otherwise a second server could bind the same port and take a part of the calls.
                ("grpc.so_reuseport", 0),
            ]
        )
        for service, path in _ROUTES.items():
            # A stream of messages instead of one message: the route reads it only after it has checked the token.
            export = grpc.stream_unary_rpc_method_handler(  # pyright: ignore[reportUnknownVariableType]
                partial(self._export, path)
            )
            self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {"Export": export}),))
        self.host = host
        try:
            self.port = self._server.add_insecure_port(f"{f'[{host}]' if ':' in host else host}:{port}")
        except RuntimeError as exc:
            raise OSError(str(exc)) from exc

    @property
    def address(self) -> str:
        """The address with the real port, as `host:port`."""
        return f"{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    async def start(self, app: ASGIApp) -> None:
        """Pass calls to an app. Its lifespan must have started."""
        self._app = app
        await self._server.start()

    async def stop(self, grace: float | None = None) -> None:
        """Reject new calls and wait for current ones, at most `grace` seconds. None cancels them."""
        await self._server.stop(grace)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _export(
        self, path: str, messages: AsyncIterator[bytes], context: "grpc.aio.ServicerContext[bytes, bytes]"
    ) -> bytes:
        assert self._app is not None
        answer = _Answer()
        with suppress(Exception):
            # The app logs an unexpected error and answers it before it raises it again.
            await self._app(_scope(path, context), _receiver(messages), answer.send)
        if answer.status == 200:
            return answer.body
        code, text = otlp_responses.parse_status(answer.body) if answer.status else (13, "Internal error")
        trailing = _retry(answer) if answer.retry_after else ()
        await context.abort(_CODES.get(code, grpc.StatusCode.UNKNOWN), text, trailing)
        raise AssertionError


class _Answer:
    """The response of a route."""

    def __init__(self) -> None:
        self.status = 0
        """The HTTP status. 0 if the route did not respond."""
        self.body = b""
        self.retry_after = 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = {name.lower(): value for name, value in message["headers"]}
            self.retry_after = int(headers.get(b"retry-after", 0))
        elif message["type"] == "http.response.body":
            self.body += message.get("body", b"")


def _scope(path: str, context: "grpc.aio.ServicerContext[bytes, bytes]") -> Scope:
    headers = [(b"host", b"localhost"), (b"content-type", otlp_responses.PROTOBUF.encode())]
    for name, value in context.invocation_metadata() or ():
        if name in _FORWARDED:
            headers.append((name.encode(), value if isinstance(value, bytes) else value.encode()))
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "2",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": headers,
        "client": None,
        "server": None,
    }


def _receiver(messages: AsyncIterator[bytes]) -> Any:
    """Return the `receive` of a request. Its body is the first message, which is read when the route asks for it."""

    async def receive() -> Message:
        body = await anext(messages, None)
        if body is None:
            # The client sent no message, or the message is too large and the call has already failed.
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": body, "more_body": False}

    return receive


def _retry(answer: _Answer) -> tuple[tuple[str, bytes], ...]:
    """Return the time to wait before a retry as metadata, in the two forms that exporters read."""
    duration = otlp_responses.varint_field(1, answer.retry_after)
    retry_info = otlp_responses.bytes_field(1, duration)
    detail = otlp_responses.text_field(1, "type.googleapis.com/google.rpc.RetryInfo") + otlp_responses.bytes_field(
        2, retry_info
    )
    return (
        ("google.rpc.retryinfo-bin", retry_info),
        ("grpc-status-details-bin", answer.body + otlp_responses.bytes_field(3, detail)),
    )
