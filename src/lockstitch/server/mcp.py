"""`/mcp`: the tools of `lockstitch mcp` over streamable HTTP, for the owner of a token. Needs the extra `mcp`."""

import asyncio
from contextvars import ContextVar
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from fastapi import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from lockstitch.agents import Agent
from lockstitch.errors import Refused, missing_extra
from lockstitch.server.api.search import ask
from lockstitch.server.auth import Caller, Reader
from lockstitch.server.problems import Problem
from lockstitch.server.routing import LazyRouter

# The extra mcp may be missing, and its import takes a second.
if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

router = LazyRouter()

_current: ContextVar[Caller] = ContextVar("mcp_caller")
"""The caller of the current request. The tasks of the request inherit it."""


@router.post("/mcp", include_in_schema=False)
async def mcp(request: Request, caller: Reader) -> Response:
    """Answer one message of an MCP client. No session is stored, so any server of the store can answer the next one."""
    try:
        # The first call imports the package.
        act = caller.state.settings.mcp_acts and caller.may("write")
        server = await asyncio.to_thread(_server, sql=caller.may("admin"), act=act)
    except ModuleNotFoundError as exc:
        raise Problem(501, "Not supported", str(missing_extra(exc, "/mcp", "mcp"))) from exc
    return _McpResponse(server, caller, await request.body())


@cache
def _server(*, sql: bool, act: bool) -> "MCPServer[Any]":
    """Return the server for callers with these rights. All servers of this process share it."""
    from lockstitch.integrations.mcp.server import create_mcp_server
    from lockstitch.integrations.mcp.tools import McpCaller

    def caller_of() -> McpCaller:
        caller = _current.get()
        return McpCaller(caller.store, caller.actor, partial(ask, caller), partial(_agent_of, caller))

    return create_mcp_server(caller_of, sql=sql, act=act)


def _agent_of(caller: Caller, name: str | None) -> Agent:
    if caller.state.app is None:
        raise Refused("No app is loaded. Start the server with --app module:name.")
    return caller.state.app.agent(name)


class _McpResponse(Response):
    """The response of the package to one request. The caller and the request were checked before."""

    def __init__(self, server: "MCPServer[Any]", caller: Caller, body: bytes) -> None:
        super().__init__()
        self._server = server
        self._caller = caller
        self._request_body = body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        from mcp.server.transport_security import TransportSecuritySettings

        parts: list[Message] = [{"type": "http.request", "body": self._request_body}]

        async def received() -> Message:
            return parts.pop() if parts else await receive()

        # `RequestGuard` has checked the host and the origin.
        unchecked = TransportSecuritySettings(enable_dns_rebinding_protection=False)
        limit = max(1, len(self._request_body))
        self._server.streamable_http_app(
            json_response=True, stateless_http=True, transport_security=unchecked, max_request_body_size=limit
        )
        # Each call creates a manager. It ends with the request, because it has no sessions.
        manager = self._server.session_manager
        token = _current.set(self._caller)
        try:
            async with manager.run():
                await manager.handle_request(scope, received, send)
        finally:
            _current.reset(token)
