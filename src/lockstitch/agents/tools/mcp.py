"""The tools of MCP servers, as a source of tools for agents. Needs the extra `mcp`, from the first use on."""

import asyncio
import re
from asyncio import AbstractEventLoop
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack, get_args
from urllib.parse import urlsplit

from lockstitch.engine.ports.tool import Effect, OnDoubt, Tool, ToolContext, ToolFailed
from lockstitch.errors import Refused
from lockstitch.model import Json

if TYPE_CHECKING:
    from mcp.types import Tool as Listed

    from lockstitch.agents.tools.mcp_client import Connection, Transport

_CONNECT_TIMEOUT: Final = 30.0
# The protocol allows names that models do not.
_UNFIT: Final = re.compile(r"[^a-zA-Z0-9_-]")


class McpOptions(TypedDict, total=False):
    """What may be said of a server's tools. Tools are named as the server names them, without the prefix."""

    prefix: str
    """Stands before every name, so that tools of several servers are told apart."""
    only: Sequence[str] | None
    """The tools to offer; all of them if None."""
    effects: Mapping[str, Effect]
    """What may be done with a call that was cut off, where the server's hints do not say it or are not believed."""
    approval: bool | Sequence[str]
    """The tools of which a person must agree to each call; True for all."""
    on_doubt: OnDoubt
    timeout: float | None
    """Seconds that a call may take."""
    connect_timeout: float
    """Seconds until the server must have told its tools, starting it included; 30 if nothing is said."""


class McpServer:
    """An MCP server whose tools an agent may use: `Agent(…, tools=[McpServer.stdio("npx", ["-y", "…"])])`.

    It is connected to when it is first needed, once for each event loop, and stays connected until `close`, which
    ends a process that was started. Any task may use it, many at once; one that is cancelled disturbs no other. A call
    that loses the connection fails, and the next one makes another. After `close` the next use begins anew.
    """

    def __init__(self, name: str, transport: "Callable[[], Transport]", **options: Unpack[McpOptions]) -> None:
        self.name = name
        self._transport = transport
        self._prefix = options.get("prefix", "")
        self._only = options.get("only")
        self._effects = options.get("effects") or {}
        self._approval = options.get("approval", False)
        self._on_doubt: OnDoubt = options.get("on_doubt", "tell")
        self._timeout = options.get("timeout")
        self._connect_timeout = options.get("connect_timeout", _CONNECT_TIMEOUT)
        self._connections: dict[AbstractEventLoop, Connection] = {}
        for tool, effect in self._effects.items():
            if effect not in get_args(Effect):
                raise Refused(f"{effect!r} is no effect of tool {tool}: safe, keyed and once are.")

    @classmethod
    def stdio(
        cls,
        command: str,
        args: Sequence[str] = (),
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        **options: Unpack[McpOptions],
    ) -> "McpServer":
        """A server that is started here. Besides PATH, HOME and the like it sees only the `env` given to it."""

        def transport() -> "Transport":
            from lockstitch.agents.tools.mcp_client import Stdio

            return Stdio(command, args, env, cwd)

        # Arguments often hold passwords, and this name is told to models and written into the record.
        return cls(Path(command).name or command, transport, **options)

    @classmethod
    def http(cls, url: str, *, headers: Mapping[str, str] | None = None, **options: Unpack[McpOptions]) -> "McpServer":
        """A server that runs elsewhere, at a URL, over streamable HTTP. `headers` go with every request."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise Refused(f"{url!r} is no URL of an MCP server: it must begin with http:// or https://.")

        def transport() -> "Transport":
            from lockstitch.agents.tools.mcp_client import Http

            return Http(url, headers, options.get("timeout"))

        # Paths and queries hold keys as well.
        return cls(parts.netloc.rpartition("@")[2], transport, **options)

    async def tools(self) -> list[Tool]:
        """The tools that the server had when it was connected to. Refused if it cannot be, or lacks a named one."""
        listed = (await self._connected()).listed
        self._check_names([tool.name for tool in listed])
        wanted = [tool for tool in listed if self._only is None or tool.name in self._only]
        tools = [self._tool(tool) for tool in wanted]
        if len({tool.name for tool in tools}) < len(tools):
            raise Refused(f"The MCP server {self.name} has several tools of one name; choose among them with only=….")
        return tools

    async def close(self) -> None:
        """End the connection of this event loop, and the server's process if it was started here."""
        connection = self._connections.pop(asyncio.get_running_loop(), None)
        if connection is not None:
            await connection.close()

    def _tool(self, listed: "Listed") -> Tool:
        approval = self._approval if isinstance(self._approval, bool) else listed.name in self._approval
        return Tool(
            name=_UNFIT.sub("_", f"{self._prefix}{listed.name}"),
            description=listed.description or listed.title or "",
            input_schema={"type": "object", **listed.input_schema},
            call=self._caller(listed.name),
            effect=self._effects.get(listed.name) or _effect(listed),
            on_doubt=self._on_doubt,
            approval=approval,
            timeout=self._timeout,
        )

    def _caller(self, name: str) -> Callable[[ToolContext, Json], Awaitable[Any]]:
        return partial(self._call, name)

    async def _call(self, name: str, context: ToolContext, value: Json) -> Any:
        try:
            connection = await self._connected()
        except Refused as exc:
            raise ToolFailed(str(exc)) from exc
        from lockstitch.agents.tools.mcp_client import content_of

        return content_of(await connection.call(name, value, context.key))

    async def _connected(self) -> "Connection":
        """The connection of this event loop, made if there is none or it is over."""
        try:
            from lockstitch.agents.tools.mcp_client import Connection
        except ImportError as exc:
            raise Refused(f"MCP servers need the package mcp ({exc}): pip install 'lockstitch[mcp]'.") from exc
        loop = asyncio.get_running_loop()
        for abstract_event_loop in [connection for connection in list(self._connections) if connection.is_closed()]:
            # Its end has ended its tasks, and with them their processes.
            self._connections.pop(abstract_event_loop, None)
        connection = self._connections.get(loop)
        if connection is None or connection.over:
            connection = Connection(self.name, self._transport(), self._connect_timeout)
            self._connections[loop] = connection
        await connection.opened()
        return connection

    def _check_names(self, known: Sequence[str]) -> None:
        """A misspelt name would leave a tool without the approval or the effect that was meant for it."""
        approval: Iterable[str] = () if isinstance(self._approval, bool) else self._approval
        unknown = sorted({*self._effects, *approval, *(self._only or ())} - set(known))
        if unknown:
            has = ", ".join(sorted(known)) or "none"
            raise Refused(f"The MCP server {self.name} has no tool {', '.join(unknown)}. It has: {has}.")


def _effect(listed: "Listed") -> Effect:
    """What the server's hints allow. Without a hint a call may have done anything, so it is not repeated."""
    hints = listed.annotations
    if hints is not None and hints.read_only_hint:
        return "safe"
    return "keyed" if hints is not None and hints.idempotent_hint else "once"
