"""`Scripted`: a provider that replies from a script.

    Scripted(["Hello.", {"calls": [{"name": "add", "input": {"a": 1, "b": 2}}]}, "It is 3."])
    Scripted([["first turn, step 1", "step 2"], ["second turn"]])
    Scripted({"replies": [{"fail": "overloaded", "times": 2, "text": "At last."}], "beside": {"title": "Sums"}})
    Scripted(lambda request: f"You said: {text_of(request.messages[-1])}")

The reply is chosen by the request's turn and step, and trouble by its attempt, never by a counter in here: whoever is
killed and starts again is told the same. After the last turn the first comes again. What a reply may hold is in
script.Scene.
"""

import asyncio
import base64
import inspect
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast, get_args

from lockstitch.agents.providers.http import piece_of
from lockstitch.engine.ports.provider import (
    Chunk,
    Download,
    ErrorKind,
    ModelRequest,
    Provider,
    ProviderError,
    Response,
    StopReason,
    Usage,
)
from lockstitch.model import Json, codec

_SCRIPT_KEYS: Final = ("replies", "beside", "files")
_CALL_KEYS: Final = ("name", "input", "id")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedReply:
    """One reply, with all that a script may say of it."""

    text: str | None = None
    thinking: str | None = None
    data: Any = None
    """What the JSON of an answer that follows a schema says."""
    blocks: Sequence[Json] = ()
    calls: Sequence[Json] = ()
    fail: ErrorKind | None = None
    cut_after: int | None = None
    times: int | None = None
    """How many attempts fail or are cut off; None: all."""
    retry_after: float | None = None
    message: str | None = None
    delay: float = 0.0
    chunk: int | None = None
    pause: float = 0.0
    usage: Usage | None = None
    stop_reason: StopReason | None = None
    container_id: str | None = None

    def troubles(self, attempt: int) -> bool:
        return self.times is None or attempt < self.times

    def content(self, request: ModelRequest) -> list[Json]:
        """The blocks of the reply: thinking, text, what is given as blocks, calls."""
        text = codec.dumps(self.data).decode() if self.data is not None else self.text
        matches: list[Json] = []
        if self.thinking is not None:
            matches.append({"type": "thinking", "thinking": self.thinking})
        if text is not None:
            matches.append({"type": "text", "text": text})
        matches += self.blocks
        for index, call in enumerate(self.calls):
            id = call.get("id") or f"call_{request.turn}_{request.step}_{index}"
            matches.append({"type": "tool_use", "id": id, "name": call["name"], "input": call.get("input") or {}})
        return matches


_SCENE_KEYS: Final = tuple(ScriptedReply.__dataclass_fields__)


@dataclass(frozen=True, slots=True)
class Script:
    """The scenes of each turn; a script of one turn is the same for all. Beside them, what is asked beside the loop."""

    turns: Sequence[Sequence[ScriptedReply]]
    beside: Mapping[str, ScriptedReply] = field(default_factory=dict[str, ScriptedReply])
    files: Mapping[str, Download] = field(default_factory=dict[str, Download])

    def scene(self, request: ModelRequest) -> ScriptedReply:
        """The reply to a request, by its turn and step alone: a process that starts anew goes on where it was."""
        if request.step == 0 or request.purpose is not None:
            return self.beside.get(request.purpose or "", ScriptedReply(text=str(request.purpose)))
        scenes = self.turns[(request.turn - 1) % len(self.turns)]
        if request.step > len(scenes):
            raise ProviderError(
                f"The script is over: it has {len(scenes)} replies for turn {request.turn}, "
                f"and step {request.step} asks for another.",
                "request",
            )
        return scenes[request.step - 1]


def read_script(source: Any) -> Script:
    """A script from plain data: a list of replies, a list of such lists, or a mapping with more."""
    if not isinstance(source, Mapping):
        return Script(_turns(source))
    script = cast("Mapping[str, Any]", source)
    _check_keys(script, _SCRIPT_KEYS, "A script")
    beside: Mapping[str, Any] = script.get("beside") or {}
    files: Mapping[str, Any] = script.get("files") or {}
    return Script(
        _turns(script.get("replies")),
        {str(purpose): read_scene(reply) for purpose, reply in beside.items()},
        {str(file_id): _file(about) for file_id, about in files.items()},
    )


def read_scene(reply: Any) -> ScriptedReply:
    """One reply from plain data: a text, or a mapping of what it holds."""
    if isinstance(reply, str):
        return ScriptedReply(text=reply)
    if not isinstance(reply, Mapping):
        raise _wrong(f"A reply is a text or a mapping, not {reply!r}")
    values = dict(cast("Mapping[str, Any]", reply))
    _check_keys(values, _SCENE_KEYS, "A reply")
    for call in values.get("calls") or ():
        _check_keys(call, _CALL_KEYS, "A call")
        if not call.get("name"):
            raise _wrong(f"A call has a name, and {call!r} has none")
    if "usage" in values:
        _check_keys(values["usage"], Usage._fields, "The usage of a reply")
        values["usage"] = Usage(**values["usage"])
    _check_word(values.get("fail"), ErrorKind, "fail")
    _check_word(values.get("stop_reason"), StopReason, "stop_reason")
    return ScriptedReply(**values)


def _turns(replies: Any) -> list[list[ScriptedReply]]:
    if not isinstance(replies, Sequence) or isinstance(replies, str) or not replies:
        raise _wrong("A script has a list of replies, with one at least")
    values = list(cast("Sequence[Any]", replies))
    if all(isinstance(turn, list) for turn in values):
        return [[read_scene(reply) for reply in turn] for turn in values]
    return [[read_scene(reply) for reply in values]]


def _file(about: Mapping[str, Any]) -> Download:
    _check_keys(about, ("filename", "content", "base64", "mime_type"), "A file")
    value = about.get("base64")
    content = base64.b64decode(value) if value is not None else str(about.get("content", "")).encode()
    return Download(str(about["filename"]), content, about.get("mime_type"))


def _check_keys(value: Any, known: Iterable[str], what: str) -> None:
    if not isinstance(value, Mapping):
        raise _wrong(f"{what} is a mapping, not {value!r}")
    unknown = [str(key) for key in cast("Mapping[Any, Any]", value) if key not in known]
    if unknown:
        raise _wrong(f"{what} knows no {', '.join(unknown)}; it knows {', '.join(known)}")


def _check_word(value: Any, literal: Any, key: str) -> None:
    if value is not None and value not in _words(literal):
        raise _wrong(f"{key} is one of {', '.join(_words(literal))}, not {value!r}")


def _words(literal: Any) -> list[str]:
    """The words of a Literal, or of a union of such."""
    return [word for part in get_args(literal) for word in (_words(part) or [part])]


def _wrong(message: str) -> ProviderError:
    return ProviderError(f"{message}.", "setup")


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

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk | Response, None]:
        scene = await self._scene(request)
        await _sleep(scene.delay, request)
        trouble = scene.troubles(request.attempt)
        if scene.fail and trouble:
            message = scene.message or f"The script says: {scene.fail}."
            raise ProviderError(message, scene.fail, retry_after=scene.retry_after)
        content = scene.content(request)
        left = scene.cut_after if scene.cut_after is not None and trouble else None
        for chunk in _pieces(content, scene.chunk):
            cut = left is not None and len(chunk.text) >= left
            if cut:
                chunk = chunk._replace(text=chunk.text[:left])
            if chunk.text or not cut:
                for other_chunk in self._told(chunk):
                    yield other_chunk
            if cut:
                raise ProviderError(scene.message or "The script cuts the connection here.", "connection")
            left = left - len(chunk.text) if left is not None else None
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

    async def _scene(self, request: ModelRequest) -> ScriptedReply:
        if self._answering is None:
            return self._script.scene(request)
        reply = self._answering(request)
        return read_scene(await reply if inspect.isawaitable(reply) else reply)

    def _told(self, chunk: Chunk) -> Iterator[Chunk]:
        if self.raw_events:
            yield Chunk("raw", data={"type": chunk.kind, "text": chunk.text, **chunk.data})
        yield chunk


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


def _pieces(content: list[Json], chunk: int | None) -> Iterator[Chunk]:
    for block in content:
        kind = block.get("type")
        if kind == "text" or kind == "thinking":
            text = str(block.get(kind, ""))
            size = chunk or len(text) or 1
            for start in range(0, len(text), size):
                yield Chunk(kind, text[start : start + size])
        elif piece := piece_of(block):
            yield piece


def _response(request: ModelRequest, scene: ScriptedReply, content: list[Json]) -> Response:
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
