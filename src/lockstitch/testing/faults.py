"""`KillPoints`: kill the process at a named point of a run, to test that an agent continues after a crash."""

import os
import re
import signal
from collections import Counter
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from lockstitch.engine.ports.provider import Chunk, Download, ModelRequest, Provider, Response
from lockstitch.engine.ports.tool import Tool, ToolContext
from lockstitch.errors import Refused
from lockstitch.model import Json
from lockstitch.store import Store

_POINT: Final = re.compile(r"(append|claim|provider|tool)\.(before|after):[1-9][0-9]*")


class KillPoints:
    """Named points in a run. The process is killed with SIGKILL at one of them.

    `KillPoints("tool.after:3")` kills the process when the third tool call has returned. The points are `append`,
    `claim`, `provider` and `tool`, each with `.before` and `.after`. Each wrapped part counts its calls:

        points = KillPoints("append.before:2")
        store = points.store(open_store(url))
        helper = Agent("helper", model=points.provider(model), tools=[points.tool(pay)])

    `kill_at` is the point to kill at. None kills at no point. `trace` is a file to which every passed point is
    appended, one per line. Raises `Refused` if `kill_at` does not name a point.
    """

    def __init__(self, kill_at: str | None = None, *, trace: Path | None = None) -> None:
        if kill_at is not None and _POINT.fullmatch(kill_at) is None:
            raise Refused(f"{kill_at!r} is not a kill point. Use for example append.before:2 or tool.after:1.")
        self._kill_at = kill_at
        self._trace = trace
        self._passed: Counter[str] = Counter()

    def pass_point(self, name: str) -> None:
        """Count and trace the point `name`. Kill the process if it is the chosen point."""
        self._passed[name] += 1
        point = f"{name}:{self._passed[name]}"
        if self._trace is not None:
            with self._trace.open("a") as file:
                file.write(f"{point}\n")
        if point == self._kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def store(self, store: Store) -> Store:
        """Add points around the commits and claims of a store. Return the same store."""
        # No public call reaches the commits and claims that the parts of a store make.
        _wrap_backend(store._backend, self)  # pyright: ignore[reportPrivateUsage]
        return store

    def provider(self, provider: Provider) -> Provider:
        """Return a provider with points around each request to the model."""
        return _KillingProvider(provider, self)

    def tool(self, tool: Tool) -> Tool:
        """Return a tool with points around each call. A tool without code in this process is returned unchanged."""
        call = tool.call
        if call is None:
            return tool

        async def called(context: ToolContext, arguments: Json) -> Any:
            self.pass_point("tool.before")
            result = await call(context, arguments)
            self.pass_point("tool.after")
            return result

        return replace(tool, call=called)


class _KillingProvider:
    def __init__(self, provider: Provider, points: KillPoints) -> None:
        self._provider = provider
        self._points = points
        self.name = provider.name
        self.model = getattr(provider, "model", provider.name)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk | Response, None]:
        self._points.pass_point("provider.before")
        async for piece in self._provider.stream(request):
            if isinstance(piece, Response):
                self._points.pass_point("provider.after")
            yield piece

    async def download(self, file_id: str) -> Download:
        return await self._provider.download(file_id)

    async def close(self) -> None:
        await self._provider.close()


def _wrap_backend(backend: Any, points: KillPoints) -> None:
    append, claim = backend.append, backend.claim

    async def killing_append(commit: Any) -> Any:
        points.pass_point("append.before")
        receipts = await append(commit)
        points.pass_point("append.after")
        return receipts

    async def killing_claim(*arguments: Any, **options: Any) -> Any:
        points.pass_point("claim.before")
        threads = await claim(*arguments, **options)
        points.pass_point("claim.after")
        return threads

    # Replace the methods, not the object, because the parts of a store share the object.
    backend.append, backend.claim = killing_append, killing_claim
