"""A model that says what a script says: for tests, demonstrations and work without a network.

    Scripted(["Hello.", {"calls": [{"name": "add", "input": {"a": 1, "b": 2}}]}, "It is 3."])
    Scripted([["first turn, step 1", "step 2"], ["second turn"]])
    Scripted({"replies": [{"fail": "overloaded", "times": 2, "text": "At last."}], "beside": {"title": "Sums"}})
    Scripted(lambda request: f"You said: {text_of(request.messages[-1])}")

The reply is chosen by the request's turn and step, and trouble by its attempt, never by a counter in here: whoever is
killed and starts again is told the same. After the last turn the first comes again. What a reply may hold is in
script.Scene.
"""

import asyncio
import inspect
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from lockstitch.records import Json, codec
from lockstitch.runtime.provider import Download, ModelRequest, Piece, Provider, ProviderError, Response, Usage
from lockstitch.runtime.providers.content import piece_of
from lockstitch.runtime.providers.script import Scene, read_scene, read_script

Answering = Callable[[ModelRequest], Any | Awaitable[Any]]
"""Answers a request with a reply as it stands in a script."""


class Scripted(Provider):
    """Answers from a script, or from a function that is asked for each reply."""

    name = "scripted"

    def __init__(self, script: Any, *, raw_events: bool = False) -> None:
        self.raw_events = raw_events
        self._answering: Answering | None = script if callable(script) else None
        self._script = read_script(["unused"] if callable(script) else script)

    @classmethod
    def from_file(cls, path: str | Path, *, raw_events: bool = False) -> "Scripted":
        """A script from a file: JSON if its name ends so, else YAML."""
        try:
            return cls(_load(Path(path)), raw_events=raw_events)
        except ProviderError as exc:
            raise ProviderError(f"The script {path} cannot be used. {exc}", "setup") from exc

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Piece | Response, None]:
        scene = await self._scene(request)
        await _sleep(scene.delay, request)
        trouble = scene.troubles(request.attempt)
        if scene.fail and trouble:
            message = scene.message or f"The script says: {scene.fail}."
            raise ProviderError(message, scene.fail, retry_after=scene.retry_after)
        content = scene.content(request)
        left = scene.cut_after if scene.cut_after is not None and trouble else None
        for piece in _pieces(content, scene.chunk):
            cut = left is not None and len(piece.text) >= left
            if cut:
                piece = piece._replace(text=piece.text[:left])
            if piece.text or not cut:
                for each in self._told(piece):
                    yield each
            if cut:
                raise ProviderError(scene.message or "The script cuts the connection here.", "connection")
            left = left - len(piece.text) if left is not None else None
            await _sleep(scene.pause, request)
        if left is not None:
            raise ProviderError(scene.message or "The script cuts the connection here.", "connection")
        yield _response(request, scene, content)

    async def download(self, file_id: str) -> Download:
        if file_id not in self._script.files:
            raise ProviderError(f"The script has no file {file_id}.", "request", status=404)
        return self._script.files[file_id]

    async def close(self) -> None:
        pass

    async def _scene(self, request: ModelRequest) -> Scene:
        if self._answering is None:
            return self._script.scene(request)
        reply = self._answering(request)
        return read_scene(await reply if inspect.isawaitable(reply) else reply)

    def _told(self, piece: Piece) -> Iterator[Piece]:
        if self.raw_events:
            yield Piece("raw", data={"type": piece.kind, "text": piece.text, **piece.data})
        yield piece


def _load(path: Path) -> Any:
    try:
        text = path.read_text("utf-8")
        if path.suffix == ".json":
            return json.loads(text)
        import yaml
    except (OSError, ValueError) as exc:
        raise ProviderError(str(exc), "setup") from exc
    except ModuleNotFoundError as exc:
        raise ProviderError("To read YAML: pip install 'lockstitch[yaml]'.", "setup") from exc
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as exc:
        raise ProviderError(str(exc), "setup") from exc


async def _sleep(seconds: float, request: ModelRequest) -> None:
    """Wait as scripted, but no longer than the request would."""
    if seconds > request.timeout:
        await asyncio.sleep(request.timeout)
        raise ProviderError("The script took too long.", "timeout")
    if seconds > 0:
        await asyncio.sleep(seconds)


def _pieces(content: list[Json], chunk: int | None) -> Iterator[Piece]:
    for block in content:
        kind = block.get("type")
        if kind == "text" or kind == "thinking":
            text = str(block.get(kind, ""))
            size = chunk or len(text) or 1
            for start in range(0, len(text), size):
                yield Piece(kind, text[start : start + size])
        elif piece := piece_of(block):
            yield piece


def _response(request: ModelRequest, scene: Scene, content: list[Json]) -> Response:
    asks = any(block.get("type") == "tool_use" for block in content)
    return Response(
        message={"role": "assistant", "content": content},
        stop_reason=scene.stop_reason or ("tool_use" if asks else "end_turn"),
        usage=scene.usage or _estimate(request, content),
        finish_reason=scene.stop_reason or ("tool_use" if asks else "end_turn"),
        response_id=f"scripted_{request.turn}_{request.step}",
        model=request.model,
        container_id=scene.container_id,
    )


def _estimate(request: ModelRequest, content: list[Json]) -> Usage:
    """A token for every four bytes that go either way."""
    sent = [request.system or "", list(request.tools), list(request.messages)]
    return Usage(len(codec.dumps(sent)) // 4, max(1, len(codec.dumps(content)) // 4))
