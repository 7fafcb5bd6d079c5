"""`Scripted`: a provider that replies from a script.

    Scripted(["Hello.", {"calls": [{"name": "add", "input": {"a": 1, "b": 2}}]}, "It is 3."])
    Scripted([["first turn, step 1", "step 2"], ["second turn"]])
    Scripted({"replies": [{"fail": "overloaded", "times": 2, "text": "At last."}], "side_calls": {"title": "Sums"}})
    Scripted(lambda request: f"You said: {text_of(request.messages[-1])}")

The turn and step of the request choose the reply, and its attempt chooses failures. The provider has no counter, so a
process that restarts gets the same replies. After the last turn the script starts again with the first. `ScriptedReply`
has the keys of a reply.
"""

import asyncio
import base64
import inspect
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, KeysView, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast, get_args

from lockstitch.agents.providers.http import chunk_of
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

# Keys of dicts, which keep their order and compare like sets.
_SCRIPT_KEYS: Final = dict.fromkeys(("replies", "side_calls", "files")).keys()
_CALL_KEYS: Final = dict.fromkeys(("name", "input", "id")).keys()
_USAGE_KEYS: Final = dict.fromkeys(Usage._fields).keys()
_FILE_KEYS: Final = dict.fromkeys(("filename", "content", "base64", "mime_type")).keys()


# Not frozen: a frozen instance takes several times as long to create, and a function creates one for each request.
@dataclass(slots=True, kw_only=True)
class ScriptedReply:
    """One reply of a script: its content, failures and timing."""

    text: str | None = None
    thinking: str | None = None
    data: Any = None
    """Structured answer, sent as JSON text instead of `text`."""
    blocks: Sequence[Json] = ()
    """Additional content blocks."""
    calls: Sequence[Json] = ()
    """Tool calls, each with `name`, `input` and `id`."""
    fail: ErrorKind | None = None
    """Kind of the error to raise."""
    cut_after: int | None = None
    """Number of characters after which the connection breaks."""
    times: int | None = None
    """Number of attempts that fail or are cut. None: all."""
    retry_after: float | None = None
    """Seconds to wait that the error reports."""
    message: str | None = None
    """Message of the error."""
    delay: float = 0.0
    """Seconds before the first chunk."""
    chunk: int | None = None
    """Characters per chunk. None: one chunk per block."""
    pause: float = 0.0
    """Seconds after each chunk."""
    usage: Usage | None = None
    stop_reason: StopReason | None = None
    container_id: str | None = None

    def fails(self, attempt: int) -> bool:
        """True if this attempt fails or is cut."""
        return self.times is None or attempt < self.times

    def content(self, request: ModelRequest) -> list[Json]:
        """Return the blocks of the reply: thinking, text, additional blocks, calls."""
        text = codec.dumps(self.data).decode() if self.data is not None else self.text
        content: list[Json] = []
        if self.thinking is not None:
            content.append({"type": "thinking", "thinking": self.thinking})
        if text is not None:
            content.append({"type": "text", "text": text})
        content += self.blocks
        for index, call in enumerate(self.calls):
            id = call.get("id") or f"call_{request.turn}_{request.step}_{index}"
            content.append({"type": "tool_use", "id": id, "name": call["name"], "input": call.get("input") or {}})
        return content


_REPLY_KEYS: Final = ScriptedReply.__dataclass_fields__.keys()


@dataclass(frozen=True, slots=True)
class Script:
    """The replies of each turn, and by purpose the replies to requests outside of the loop."""

    turns: Sequence[Sequence[ScriptedReply]]
    side_calls: Mapping[str, ScriptedReply] = field(default_factory=dict[str, ScriptedReply])
    files: Mapping[str, Download] = field(default_factory=dict[str, Download])

    def reply(self, request: ModelRequest) -> ScriptedReply:
        """Return the reply to a request. It depends only on the turn and the step, or on the purpose."""
        if request.step == 0 or request.purpose is not None:
            return self.side_calls.get(request.purpose or "", ScriptedReply(text=str(request.purpose)))
        replies = self.turns[(request.turn - 1) % len(self.turns)]
        if request.step > len(replies):
            raise ProviderError(
                f"The script has {len(replies)} replies for turn {request.turn}, none for step {request.step}.",
                "request",
            )
        return replies[request.step - 1]


def read_script(source: Any) -> Script:
    """Return a script from a list of replies, a list of turns, or a mapping with the keys of a script."""
    if not isinstance(source, Mapping):
        return Script(_turns(source))
    script = cast("Mapping[str, Any]", source)
    _check_keys(script, _SCRIPT_KEYS, "A script")
    side_calls: Mapping[str, Any] = script.get("side_calls") or {}
    files: Mapping[str, Any] = script.get("files") or {}
    return Script(
        _turns(script.get("replies")),
        {str(purpose): read_reply(reply) for purpose, reply in side_calls.items()},
        {str(file_id): _file(about) for file_id, about in files.items()},
    )


def read_reply(reply: Any) -> ScriptedReply:
    """Return a reply from a text or a mapping."""
    if isinstance(reply, str):
        return ScriptedReply(text=reply)
    if not isinstance(reply, dict | Mapping):
        raise _wrong(f"A reply must be a text or a mapping, not {reply!r}")
    values = dict(cast("Mapping[str, Any]", reply))
    _check_keys(values, _REPLY_KEYS, "A reply")
    for call in values.get("calls") or ():
        _check_keys(call, _CALL_KEYS, "A call")
        if not call.get("name"):
            raise _wrong(f"Call {call!r} has no name")
    if "usage" in values:
        _check_keys(values["usage"], _USAGE_KEYS, "The usage of a reply")
        values["usage"] = Usage(**values["usage"])
    _check_word(values.get("fail"), ErrorKind, "fail")
    _check_word(values.get("stop_reason"), StopReason, "stop_reason")
    return ScriptedReply(**values)


def _turns(replies: Any) -> list[list[ScriptedReply]]:
    if not isinstance(replies, Sequence) or isinstance(replies, str) or not replies:
        raise _wrong("A script needs a list with at least one reply")
    values = list(cast("Sequence[Any]", replies))
    if all(isinstance(turn, list) for turn in values):
        return [[read_reply(reply) for reply in turn] for turn in values]
    return [[read_reply(reply) for reply in values]]


def _file(about: Mapping[str, Any]) -> Download:
    _check_keys(about, _FILE_KEYS, "A file")
    value = about.get("base64")
    content = base64.b64decode(value) if value is not None else str(about.get("content", "")).encode()
    return Download(str(about["filename"]), content, about.get("mime_type"))


def _check_keys(value: Any, known: KeysView[str], what: str) -> None:
    if not isinstance(value, dict | Mapping):
        raise _wrong(f"{what} must be a mapping, not {value!r}")
    if not cast("Mapping[Any, Any]", value).keys() <= known:
        unknown = [str(key) for key in cast("Mapping[Any, Any]", value) if key not in known]
        raise _wrong(f"{what} has unknown keys: {', '.join(unknown)}. Known keys: {', '.join(known)}")


def _check_word(value: Any, literal: Any, key: str) -> None:
    if value is not None and value not in _words(literal):
        raise _wrong(f"{key} must be one of {', '.join(_words(literal))}, not {value!r}")


def _words(literal: Any) -> list[str]:
    """Return the values of a Literal, or of a union of Literals."""
    return [word for part in get_args(literal) for word in (_words(part) or [part])]


def _wrong(message: str) -> ProviderError:
    return ProviderError(f"{message}.", "setup")


ReplyFunction = Callable[[ModelRequest], Any | Awaitable[Any]]
"""Function that returns the reply to a request, in the form of a script."""


class Scripted(Provider):
    """A provider that replies from a script or from a function, for tests and demos.

    Args:
        script: List of replies, list of turns, mapping, or function of the request.
        raw_events: True to yield a raw event before each chunk.

    Raises:
        ProviderError: If the script is not valid.
    """

    name = "scripted"

    def __init__(self, script: Any, *, raw_events: bool = False) -> None:
        self.raw_events = raw_events
        self._function: ReplyFunction | None = script if callable(script) else None
        self._script = read_script(["unused"] if callable(script) else script)

    @classmethod
    def from_file(cls, path: str | Path, *, raw_events: bool = False) -> "Scripted":
        """Return a provider with the script of a file.

        Args:
            path: File with JSON if its name ends with `.json`, else with YAML.
            raw_events: True to yield a raw event before each chunk.

        Returns:
            The provider.

        Raises:
            ProviderError: If the file cannot be read, or the script is not valid.
        """
        try:
            return cls(_load(Path(path)), raw_events=raw_events)
        except ProviderError as exc:
            raise ProviderError(f"The script {path} cannot be used. {exc}", "setup") from exc

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk | Response, None]:
        """Yield the chunks of the reply, then the response.

        Args:
            request: The request.

        Yields:
            Chunks, and the response at the end.

        Raises:
            ProviderError: If the script has no reply, or the reply fails.
        """
        reply = await self._reply(request)
        if reply.delay:
            await _sleep(reply.delay, request)
        fails = reply.fails(request.attempt)
        if reply.fail and fails:
            message = reply.message or f"The script says: {reply.fail}."
            raise ProviderError(message, reply.fail, retry_after=reply.retry_after)
        content = reply.content(request)
        left = reply.cut_after if reply.cut_after is not None and fails else None
        for chunk in _chunks(content, reply.chunk):
            cut = left is not None and len(chunk.text) >= left
            if cut:
                chunk = chunk._replace(text=chunk.text[:left])
            if chunk.text or not cut:
                if self.raw_events:
                    yield Chunk("raw", data={"type": chunk.kind, "text": chunk.text, **chunk.data})
                yield chunk
            if cut:
                raise ProviderError(reply.message or "Scripted end of the connection.", "connection")
            left = left - len(chunk.text) if left is not None else None
            if reply.pause:
                await _sleep(reply.pause, request)
        if left is not None:
            raise ProviderError(reply.message or "Scripted end of the connection.", "connection")
        yield _response(request, reply, content)

    async def download(self, file_id: str) -> Download:
        """Return a file of the script.

        Args:
            file_id: Id of the file.

        Returns:
            The file.

        Raises:
            ProviderError: If the script has no such file.
        """
        if file_id not in self._script.files:
            raise ProviderError(f"The script has no file {file_id}.", "request", status=404)
        return self._script.files[file_id]

    async def close(self) -> None:
        """Do nothing: the provider has no connection."""

    async def _reply(self, request: ModelRequest) -> ScriptedReply:
        if self._function is None:
            return self._script.reply(request)
        reply = self._function(request)
        if not isinstance(reply, str | dict) and inspect.isawaitable(reply):
            reply = await reply
        return read_reply(reply)


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
    """Wait, but not longer than the timeout of the request."""
    if seconds > request.timeout:
        await asyncio.sleep(request.timeout)
        raise ProviderError("The scripted delay exceeds the timeout.", "timeout")
    if seconds > 0:
        await asyncio.sleep(seconds)


def _chunks(content: list[Json], chunk: int | None) -> Iterator[Chunk]:
    for block in content:
        kind = block.get("type")
        if kind == "text" or kind == "thinking":
            text = str(block.get(kind, ""))
            size = chunk or len(text) or 1
            for start in range(0, len(text), size):
                yield Chunk(kind, text[start : start + size])
        elif chunk_of_block := chunk_of(block):
            yield chunk_of_block


def _response(request: ModelRequest, reply: ScriptedReply, content: list[Json]) -> Response:
    stop_reason: StopReason = reply.stop_reason or "end_turn"
    if reply.stop_reason is None and any(block.get("type") == "tool_use" for block in content):
        stop_reason = "tool_use"
    return Response(
        message={"role": "assistant", "content": content},
        stop_reason=stop_reason,
        usage=reply.usage or _estimate(request, content),
        finish_reason=stop_reason,
        response_id=f"scripted_{request.turn}_{request.step}",
        model=request.model,
        container_id=reply.container_id,
    )


def _estimate(request: ModelRequest, content: list[Json]) -> Usage:
    """Estimate the usage: one token for four bytes."""
    sent = [request.system or "", list(request.tools), list(request.messages)]
    return Usage(len(codec.dumps(sent)) // 4, max(1, len(codec.dumps(content)) // 4))
