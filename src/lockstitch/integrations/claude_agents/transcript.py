"""`entries_of` and `Recorded`: the entries of a transcript, and the stitches that contain them.

Each stitch names its entries in `data["claude"]`, a list of parts:

    {"number": 7, "blocks": 1, "entry": {…, "message": {…, "content": ""}}}

`number` is the place of the entry in the transcript, from 0. `blocks` is the number of content blocks in the message of
the stitch that belong to the entry. Without `blocks`, the whole content of the message belongs to it; if the stitch has
no message, the entry is complete. The blocks of one entry may be in several stitches. Then only the first part has the
entry. `json` instead of `entry` is the exact text of an entry with values that no store can represent.
"""

import json
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple, cast

from lockstitch.model import Json, Stitch
from lockstitch.model.context import kept_positions, replaces_context
from lockstitch.model.message import tool_uses

ABOUT: Final = "claude"
"""Key of `data` with the parts of entries, and of the state of a thread with the summary of the session."""

TOKENS: Final = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")


class Call(NamedTuple):
    """An open tool call: the position of its response, its number there, and the tool."""

    position: int
    number: int
    name: str


class MessagePlace(NamedTuple):
    """The place of a message: its position in the log, and the number of its first entry."""

    position: int
    number: int


class Recorded:
    """The recorded part of a transcript. It is computed from the log only."""

    def __init__(self) -> None:
        self.position = 0
        """Position of the last stitch."""
        self.count = 0
        """Number of entries."""
        self.messages: list[MessagePlace] = []
        """Messages that the context includes."""
        self.calls: dict[str, Call] = {}
        """Tool calls without a result, by the id of the call."""
        self.answer: int | None = None
        """Position of the last message if it is a response without calls."""
        self.model: str | None = None
        """Model of the last response."""
        self.response_id: str | None = None
        """Id of the last response. A response may have entries in several commits."""
        self.usage: dict[str, int] = {}
        """Tokens of the last response, as far as its stitches have them."""
        self._numbers: dict[str, int] = {}
        self._digests: dict[int, bytes] = {}

    def number_of(self, uuid: Any) -> int | None:
        """Return the number of the entry with a uuid, or None if it is not recorded."""
        return self._numbers.get(uuid) if isinstance(uuid, str) else None

    def new_entries(self, entries: Sequence[Json]) -> list[Json]:
        """Return the entries that are not recorded.

        A uuid identifies an entry. An entry without one is recorded if it is next to a recorded entry in `entries`, and
        the transcript has an equal entry at that place. So a session can be imported twice.
        """
        numbers = [self.number_of(entry.get("uuid")) for entry in entries]
        if any(number is not None for number in numbers):
            for places, step in ((range(len(entries)), 1), (reversed(range(len(entries))), -1)):
                expected: int | None = None
                for place in places:
                    if numbers[place] is None and expected in self._digests:
                        numbers[place] = expected if self._digests[expected] == _digest_of(entries[place]) else None
                    number = numbers[place]
                    expected = None if number is None else number + step
        new: list[Json] = []
        seen = set[str]()
        for entry, number in zip(entries, numbers, strict=True):
            uuid = entry.get("uuid")
            if number is None and not (isinstance(uuid, str) and uuid in seen):
                new.append(entry)
            if isinstance(uuid, str):
                seen.add(uuid)
        return new

    def add(self, stitch: Stitch) -> None:
        """Add the stitch that follows all earlier ones."""
        self.position = stitch.position
        if replaces_context(stitch):
            ranges = kept_positions(stitch)
            self.messages = [
                place for place in self.messages if any(first <= place.position <= last for first, last in ranges)
            ]
        parts = parts_of(stitch)
        for part in parts:
            entry = _entry_of(part)
            if entry is None:
                continue
            number = int(part["number"])
            self.count = max(self.count, number + 1)
            uuid = entry.get("uuid")
            if isinstance(uuid, str):
                self._numbers.setdefault(uuid, number)
            elif "blocks" not in part and stitch.message is None:
                self._digests[number] = _digest_of(entry)
        if stitch.message is not None and parts:
            self.messages.append(MessagePlace(stitch.position, int(parts[0]["number"])))
            if stitch.type != "input" or not is_note(_entry_of(parts[0]) or {}):
                self.answer = stitch.position if stitch.type == "llm_call" and not stitch.calls else None
        if stitch.type == "llm_call":
            self._add_response(stitch, parts)
        elif stitch.type == "tool_call" and stitch.call_id is not None:
            self.calls.pop(stitch.call_id, None)

    def _add_response(self, stitch: Stitch, parts: Sequence[Json]) -> None:
        self.calls |= calls_of(stitch.position, stitch.message)
        response_id = response_id_of((_entry_of(parts[-1]) if parts else None) or {})
        earlier = self.usage if response_id is not None and response_id == self.response_id else {}
        self.response_id, self.model = response_id, stitch.name
        self.usage = {name: earlier.get(name, 0) + (getattr(stitch, name) or 0) for name in TOKENS}


def entries_of(stitches: Iterable[Stitch]) -> list[Json]:
    """Return the entries of a transcript, equal to the appended ones, with their keys in the same order."""
    entries: dict[int, Json] = {}
    exact: dict[int, str] = {}
    for stitch in stitches:
        content = _content_of(stitch)
        first = 0
        for part in parts_of(stitch):
            number = int(part["number"])
            if "json" in part:
                exact[number] = part["json"]
                entries[number] = {"message": {"content": ""}}
            elif "entry" in part:
                entry = dict(part["entry"])
                if stitch.message is not None:
                    entry["message"] = dict(entry["message"])
                entries[number] = entry
            if "blocks" in part:
                last = first + int(part["blocks"])
                message = entries[number]["message"]
                message["content"] = [*(message["content"] or ()), *content[first:last]]
                first = last
            elif stitch.message is not None:
                entries[number]["message"]["content"] = content
    entries |= {number: json.loads(text) for number, text in exact.items()}
    return [entries[number] for number in sorted(entries)]


def parts_of(stitch: Stitch) -> Sequence[Json]:
    """Return the parts of entries that a stitch contains. Empty if another writer appended it."""
    parts: Any = stitch.data.get(ABOUT)
    return cast("Sequence[Json]", parts) if isinstance(parts, list) else ()


def calls_of(position: int, message: Json | None) -> dict[str, Call]:
    """Return the calls of a response, by their ids."""
    return {str(call["id"]): Call(position, index, str(call["name"])) for index, call in enumerate(tool_uses(message))}


def response_id_of(entry: Json) -> str | None:
    """Return an id that the entries of one response have in common: those of its message and of its request.

    The API never repeats the id of a message, but other servers with its interface do.
    """
    message: Any = entry.get("message")
    found: Any = cast("Json", message).get("id") if isinstance(message, dict) else None
    return f"{found} {entry.get('requestRef') or entry.get('requestId')}" if isinstance(found, str) else None


def is_note(entry: Json) -> bool:
    """True if an entry of the type `user` was written by the program."""
    return entry.get("isMeta") is True or entry.get("isCompactSummary") is True


def _entry_of(part: Json) -> Json | None:
    """Return the entry of a part, without its content. None if an earlier part has it."""
    if "json" in part:
        return json.loads(part["json"])
    return part.get("entry")


def _content_of(stitch: Stitch) -> Any:
    if stitch.message is None or stitch.type == "tool_call":
        return [stitch.message]
    return stitch.message["content"]


def _digest_of(entry: Json) -> bytes:
    return sha256(json.dumps(entry).encode()).digest()
