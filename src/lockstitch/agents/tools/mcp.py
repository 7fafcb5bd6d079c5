"""`McpServer`: a tool source with the tools of an MCP server. Needs the extra `mcp` at first use."""

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
# MCP allows tool names that model APIs reject.
_INVALID_CHARACTER: Final = re.compile(r"[^a-zA-Z0-9_-]")


class McpOptions(TypedDict, total=False):
    """Options of `McpServer`. All are optional. Tool names are those of the server, without the prefix."""

    prefix: str
    """Prefix of every tool name, so that tools of several servers have different names."""
    only: Sequence[str] | None
    """Names of the tools to offer. None: all."""
    effects: Mapping[str, Effect]
    """Effects by tool name (see `tool`). They replace the hints of the server."""
    approval: bool | Sequence[str]
    """Names of the tools that need approval for each call. True: all."""
    on_doubt: OnDoubt
    """Handling of a call with an unknown outcome (see `tool`)."""
    timeout: float | None
    """Seconds that a call may take. None: the `tool_timeout` of the agent."""
    connect_timeout: float
    """Seconds to start the server, connect, and list its tools. Default: 30."""


class McpServer:
    """The tools of an MCP server: `Agent(…, tools=[McpServer.stdio("npx", ["-y", "…"])])`.

    It connects on first use, once for each event loop, and stays connected until `close`, which ends a process that it
    started. Many tasks may use it at once. If one task is cancelled, the other tasks continue. If a call loses the
    connection, the call fails and the next call connects again. After `close` the next use connects again.

    Use `stdio` or `http` to create one.

    Args:
        name: Name of the server in messages.
        transport: Function that returns a new transport.
        prefix: Prefix of every tool name.
        only: Names of the tools to offer. None: all.
        effects: Effects by tool name (see `tool`). They replace the hints of the server.
        approval: Names of the tools that need approval for each call. True: all.
        on_doubt: Handling of a call with an unknown outcome (see `tool`).
        timeout: Seconds that a call may take. None: the `tool_timeout` of the agent.
        connect_timeout: Seconds to start the server, connect, and list its tools.

    Raises:
        Refused: If an effect is unknown.
    """

    def __init__(
        self,
        name: str,
        transport: "Callable[[], Transport]",
        *,
        prefix: str = "",
        only: Sequence[str] | None = None,
        effects: Mapping[str, Effect] | None = None,
        approval: bool | Sequence[str] = False,
        on_doubt: OnDoubt = "tell",
        timeout: float | None = None,
        connect_timeout: float = _CONNECT_TIMEOUT,
    ) -> None:
        self.name = name
        self._transport = transport
        self._prefix = prefix
        self._only = only
        self._effects = effects or {}
        self._approval = approval
        self._on_doubt: OnDoubt = on_doubt
        self._timeout = timeout
        self._connect_timeout = connect_timeout
        self._connections: dict[AbstractEventLoop, Connection] = {}
        for tool, effect in self._effects.items():
            if effect not in get_args(Effect):
                raise Refused(f"Tool {tool} has the unknown effect {effect!r}. Choose from: safe, keyed, once.")

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
        """Return a server that runs as a process of this one.

        Args:
            command: Command of the server.
            args: Arguments of the command.
            env: Environment variables. Of the environment of this process it gets only PATH, HOME and similar ones.
            cwd: Folder in which the command runs.
            options: Keywords of `McpOptions`: `prefix`, `only`, `effects`, `approval`, `on_doubt`, `timeout` and
                `connect_timeout`.

        Returns:
            The server. The process starts at first use.
        """

        def transport() -> "Transport":
            from lockstitch.agents.tools.mcp_client import Stdio

            return Stdio(command, args, env, cwd)

        # Arguments often contain passwords, and this name is sent to models and stored.
        return cls(Path(command).name or command, transport, **options)

    @classmethod
    def http(cls, url: str, *, headers: Mapping[str, str] | None = None, **options: Unpack[McpOptions]) -> "McpServer":
        """Return a server at a URL, over streamable HTTP.

        Args:
            url: URL of the server.
            headers: Headers of every request.
            options: Keywords of `McpOptions`: `prefix`, `only`, `effects`, `approval`, `on_doubt`, `timeout` and
                `connect_timeout`.

        Returns:
            The server. It connects at first use.

        Raises:
            Refused: If the URL is not an HTTP URL.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise Refused(f"{url!r} is not a URL of an MCP server. It must start with http:// or https://.")

        def transport() -> "Transport":
            from lockstitch.agents.tools.mcp_client import Http

            return Http(url, headers, options.get("timeout"))

        # Paths and queries often contain keys, so the name is only the host.
        return cls(parts.netloc.rpartition("@")[2], transport, **options)

    async def tools(self) -> list[Tool]:
        """Return the tools that the server listed when it connected.

        Raises:
            Refused: If the server cannot be used, or does not have a tool that an option names.
        """
        listed = (await self._connected()).listed
        self._check_names([tool.name for tool in listed])
        wanted = [tool for tool in listed if self._only is None or tool.name in self._only]
        tools = [self._tool(tool) for tool in wanted]
        if len({tool.name for tool in tools}) < len(tools):
            raise Refused(f"The MCP server {self.name} has two tools with the same name. Choose tools with only=….")
        return tools

    async def close(self) -> None:
        """Close the connection of this event loop. End the process of the server if this process started it."""
        connection = self._connections.pop(asyncio.get_running_loop(), None)
        if connection is not None:
            await connection.close()

    def _tool(self, listed: "Listed") -> Tool:
        approval = self._approval if isinstance(self._approval, bool) else listed.name in self._approval
        return Tool(
            name=_INVALID_CHARACTER.sub("_", f"{self._prefix}{listed.name}"),
            description=listed.description or listed.title or "",
            input_schema={"type": "object", **listed.input_schema},
            call=self._call_function(listed.name),
            effect=self._effects.get(listed.name) or _effect(listed),
            on_doubt=self._on_doubt,
            approval=approval,
            timeout=self._timeout,
        )

    def _call_function(self, name: str) -> Callable[[ToolContext, Json], Awaitable[Any]]:
        return partial(self._call, name)

    async def _call(self, name: str, context: ToolContext, value: Json) -> Any:
        try:
            connection = await self._connected()
        except Refused as exc:
            raise ToolFailed(str(exc)) from exc
        from lockstitch.agents.tools.mcp_client import content_of

        return content_of(await connection.call(name, value, context.key))

    async def _connected(self) -> "Connection":
        """Return the connection of this event loop. Connect if there is none or it is closed."""
        try:
            from lockstitch.agents.tools.mcp_client import Connection
        except ImportError as exc:
            raise Refused(f"MCP servers need the package mcp ({exc}): pip install 'lockstitch[mcp]'.") from exc
        loop = asyncio.get_running_loop()
        for closed_loop in [known for known in list(self._connections) if known.is_closed()]:
            # A closed loop has ended its tasks and their processes.
            self._connections.pop(closed_loop, None)
        connection = self._connections.get(loop)
        if connection is None or connection.over:
            connection = Connection(self.name, self._transport(), self._connect_timeout)
            self._connections[loop] = connection
        await connection.opened()
        return connection

    def _check_names(self, known: Sequence[str]) -> None:
        """Raise `Refused` if an option names an unknown tool: the tool that was meant would lack its approval."""
        approval: Iterable[str] = () if isinstance(self._approval, bool) else self._approval
        unknown = sorted({*self._effects, *approval, *(self._only or ())} - set(known))
        if unknown:
            names = ", ".join(sorted(known)) or "none"
            raise Refused(f"The MCP server {self.name} has no tool {', '.join(unknown)}. Tools: {names}.")


def _effect(listed: "Listed") -> Effect:
    """Return the effect by the hints of the server. Without a hint a call is not repeated."""
    hints = listed.annotations
    if hints is not None and hints.read_only_hint:
        return "safe"
    return "keyed" if hints is not None and hints.idempotent_hint else "once"
