"""A script: the replies a scripted model gives, read, checked and chosen by where in a thread it is asked."""

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast, get_args

from lockstitch.records import Json, codec
from lockstitch.runtime.provider import Download, ErrorKind, ModelRequest, ProviderError, StopReason, Usage

_SCRIPT_KEYS: Final = ("replies", "beside", "files")
_CALL_KEYS: Final = ("name", "input", "id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
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
        found: list[Json] = []
        if self.thinking is not None:
            found.append({"type": "thinking", "thinking": self.thinking})
        if text is not None:
            found.append({"type": "text", "text": text})
        found += self.blocks
        for index, call in enumerate(self.calls):
            id = call.get("id") or f"call_{request.turn}_{request.step}_{index}"
            found.append({"type": "tool_use", "id": id, "name": call["name"], "input": call.get("input") or {}})
        return found


_SCENE_KEYS: Final = tuple(Scene.__dataclass_fields__)


@dataclass(frozen=True, slots=True)
class Script:
    """The scenes of each turn; a script of one turn is the same for all. Beside them, what is asked beside the loop."""

    turns: Sequence[Sequence[Scene]]
    beside: Mapping[str, Scene] = field(default_factory=dict[str, Scene])
    files: Mapping[str, Download] = field(default_factory=dict[str, Download])

    def scene(self, request: ModelRequest) -> Scene:
        """The reply to a request, by its turn and step alone: a process that starts anew goes on where it was."""
        if request.step == 0 or request.purpose is not None:
            return self.beside.get(request.purpose or "", Scene(text=str(request.purpose)))
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


def read_scene(reply: Any) -> Scene:
    """One reply from plain data: a text, or a mapping of what it holds."""
    if isinstance(reply, str):
        return Scene(text=reply)
    if not isinstance(reply, Mapping):
        raise _wrong(f"A reply is a text or a mapping, not {reply!r}")
    given = dict(cast("Mapping[str, Any]", reply))
    _check_keys(given, _SCENE_KEYS, "A reply")
    for call in given.get("calls") or ():
        _check_keys(call, _CALL_KEYS, "A call")
        if not call.get("name"):
            raise _wrong(f"A call has a name, and {call!r} has none")
    if "usage" in given:
        _check_keys(given["usage"], Usage._fields, "The usage of a reply")
        given["usage"] = Usage(**given["usage"])
    _check_word(given.get("fail"), ErrorKind, "fail")
    _check_word(given.get("stop_reason"), StopReason, "stop_reason")
    return Scene(**given)


def _turns(replies: Any) -> list[list[Scene]]:
    if not isinstance(replies, Sequence) or isinstance(replies, str) or not replies:
        raise _wrong("A script has a list of replies, with one at least")
    given = list(cast("Sequence[Any]", replies))
    if all(isinstance(turn, list) for turn in given):
        return [[read_scene(reply) for reply in turn] for turn in given]
    return [[read_scene(reply) for reply in given]]


def _file(about: Mapping[str, Any]) -> Download:
    _check_keys(about, ("filename", "content", "base64", "mime_type"), "A file")
    given = about.get("base64")
    content = base64.b64decode(given) if given is not None else str(about.get("content", "")).encode()
    return Download(str(about["filename"]), content, about.get("mime_type"))


def _check_keys(given: Any, known: Iterable[str], what: str) -> None:
    if not isinstance(given, Mapping):
        raise _wrong(f"{what} is a mapping, not {given!r}")
    unknown = [str(key) for key in cast("Mapping[Any, Any]", given) if key not in known]
    if unknown:
        raise _wrong(f"{what} knows no {', '.join(unknown)}; it knows {', '.join(known)}")


def _check_word(given: Any, literal: Any, key: str) -> None:
    if given is not None and given not in _words(literal):
        raise _wrong(f"{key} is one of {', '.join(_words(literal))}, not {given!r}")


def _words(literal: Any) -> list[str]:
    """The words of a Literal, or of a union of such."""
    return [word for part in get_args(literal) for word in (_words(part) or [part])]


def _wrong(message: str) -> ProviderError:
    return ProviderError(f"{message}.", "setup")
