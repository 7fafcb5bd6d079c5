"""A span as OTLP has it, before anybody asked what it means, and how its small parts are written."""

from dataclasses import dataclass, field
from typing import Any

from lockstitch.bridges.storable import storable
from lockstitch.records import Json

KINDS = ("unspecified", "internal", "server", "client", "producer", "consumer")
CODES = ("unset", "ok", "error")


@dataclass(slots=True)
class Span:
    """One span as OTLP has it; ids in hex, times in nanoseconds, values as JSON."""

    trace_id: str
    span_id: str
    parent_id: str = ""
    name: str = ""
    kind: str = "unspecified"
    start: int = 0
    end: int = 0
    code: str = "unset"
    message: str = ""
    attributes: Json = field(default_factory=dict[str, Any])
    events: list[Json] = field(default_factory=list[Json])
    links: list[Json] = field(default_factory=list[Json])
    trace_state: str = ""
    dropped: Json = field(default_factory=dict[str, Any])
    resource: Json = field(default_factory=dict[str, Any])
    scope: Json = field(default_factory=dict[str, Any])


def wrong_ids(trace_id: str, span_id: str) -> str | None:
    if len(trace_id) != 32 or not known(trace_id):
        return "it has no trace id"
    if len(span_id) != 16 or not known(span_id):
        return "it has no span id"
    return None


def known(hex_id: str) -> str:
    return hex_id if hex_id.strip("0") else ""


def integer(value: Any) -> int:
    """A 64-bit integer, which JSON writes as text."""
    if isinstance(value, bool) or value is None or value == "":
        return 0
    if isinstance(value, str) and len(value) > 40:
        raise ValueError("a number has more digits than any number of OTLP")
    if not isinstance(value, int | str | float):
        raise ValueError(f"{type(value).__name__} where a number was expected")
    try:
        return int(value)
    except OverflowError as exc:
        raise ValueError(f"{value} is no number of nanoseconds or tokens") from exc


def word(words: tuple[str, ...], value: Any) -> str:
    """An enumeration's word: it comes as a number, or by name (SPAN_KIND_CLIENT)."""
    if isinstance(value, str) and not value.isdigit():
        word = value.lower().rsplit("_", 1)[-1]
        return word if word in words else words[0]
    number = integer(value)
    return words[number] if 0 <= number < len(words) else words[0]


def scope_of(name: str, version: str, attributes: Json) -> Json:
    said = {"name": storable(name), "version": storable(version), "attributes": attributes}
    return {key: value for key, value in said.items() if value}


def event_of(name: str, at: int, attributes: Json) -> Json:
    return {"name": storable(name), "time": at, "attributes": attributes}


def link_of(trace_id: str, span_id: str, attributes: Json) -> Json:
    said = {"trace_id": trace_id, "span_id": span_id, "attributes": attributes}
    return {key: value for key, value in said.items() if value}


def dropped_of(attributes: int, events: int, links: int) -> Json:
    counts = {"attributes": attributes, "events": events, "links": links}
    return {key: value for key, value in counts.items() if value}
