"""`dumped_spans`: the spans of JSON files that are not OTLP: console exporters of OpenTelemetry, and Phoenix.

One span is an object with `context` (`span.to_json()` of the SDK for Python, `get_spans` of Phoenix), with
`SpanContext` (the SDK for Go), with columns such as `context.trace_id` and `attributes.llm.model_name` (Phoenix's
dataframe, in any orientation of `to_json`), or an OTLP span without its request (Phoenix's `otlpv1`). The attributes
can be flat or nested. Flat ones are those of OTLP.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final, cast

from lockstitch.errors import Unreadable
from lockstitch.integrations.otel.decode import either, span_of
from lockstitch.integrations.otel.spans import CODES, KINDS, Span, event_of, known, link_of, scope_of, word, wrong_ids
from lockstitch.integrations.otel.values import DEEPEST, as_json, as_list, as_text, deeper_than
from lockstitch.integrations.spans.values import storable
from lockstitch.model import Json, codec

_TEXTS: Final = ("metadata", "tool.parameters", "llm.prompt_template.variables")
"""Attributes that are JSON text in OTLP. Phoenix stores them parsed."""

_BAGS: Final = ("context", "attributes")
_KIND: Final = "openinference.span.kind"
_COUNT: Final = "llm.token_count."

_TIME: Final = re.compile(r"(?P<seconds>.*\d\d:\d\d:\d\d)(?:\.(?P<fraction>\d+))?(?P<zone>Z|[+-]\d\d:?\d\d)?")
_UNITS: Final = ((1e11, 1_000_000_000), (1e14, 1_000_000), (1e17, 1_000), (float("inf"), 1))
"""Nanoseconds of a unit of time, by the size of a number: seconds, milliseconds, microseconds, nanoseconds."""


def dumped_spans(document: Json, where: str) -> Iterator[Span | Unreadable] | None:
    """Return the spans of a document, or None if it has none in a known form.

    A span that cannot be read is an `Unreadable` that names it.
    """
    rows = _rows(document)
    return None if rows is None else _spans(rows, where)


def _spans(rows: list[Json], where: str) -> Iterator[Span | Unreadable]:
    for number, row in enumerate(rows, 1):
        try:
            yield _of_otlp(row) if _is_otlp(row) else _of_fields(_of_go(row) if _is_go(row) else _fields(row))
        except (ValueError, OverflowError) as exc:
            yield Unreadable(f"{where}, span {number}: {exc}.")


def _rows(document: Json) -> list[Json] | None:
    if _is_span(document):
        return [document]
    if isinstance(columns := document.get("context.trace_id"), dict):
        # to_json() without an orientation: a column has the values of all rows.
        return [{name: as_json(column).get(index) for name, column in document.items()} for index in as_json(columns)]
    data = as_list(either(document, "spans", "data"))
    if "context.trace_id" in (names := as_list(document.get("columns"))):
        return [dict(zip(names, as_list(row), strict=False)) for row in data]
    rows = [as_json(row) for row in data or document.values()]
    return rows if rows and all(map(_is_span, rows)) else None


def _is_span(value: Json) -> bool:
    named = "trace_id" in as_json(value.get("context")) or isinstance(value.get("context.trace_id"), str)
    return named or _is_go(value) or _is_otlp(value)


def _is_go(value: Json) -> bool:
    return "TraceID" in as_json(value.get("SpanContext"))


def _is_otlp(value: Json) -> bool:
    return ("trace_id" in value and "span_id" in value) or ("traceId" in value and "spanId" in value)


def _fields(row: Json) -> Json:
    """Return the columns of a row as the members of a span. Other objects have no such columns and stay the same."""
    fields: Json = {}
    for name, value in row.items():
        head, _, rest = name.partition(".")
        if value is None:
            continue
        if rest and head in _BAGS:
            if rest.startswith(_COUNT) and isinstance(value, float) and value.is_integer():
                # Columns with gaps have floats.
                value = int(value)
            fields.setdefault(head, {})[rest] = value
        else:
            fields[name] = value
    return fields


def _of_go(row: Json) -> Json:
    """Return a span of the exporter `stdouttrace` with the names of the SDK for Python."""
    status, scope = as_json(row.get("Status")), as_json(either(row, "InstrumentationScope", "InstrumentationLibrary"))
    return {
        "name": row.get("Name"),
        "context": _go_context(row),
        "parent_id": as_json(row.get("Parent")).get("SpanID"),
        "kind": str(row.get("SpanKind", "")),
        "start_time": row.get("StartTime"),
        "end_time": row.get("EndTime"),
        "status": {"status_code": status.get("Code"), "description": status.get("Description")},
        "attributes": _go_attributes(row.get("Attributes")),
        "events": [
            {
                "name": event.get("Name"),
                "timestamp": event.get("Time"),
                "attributes": _go_attributes(event.get("Attributes")),
            }
            for event in map(as_json, as_list(row.get("Events")))
        ],
        "links": [
            {"context": _go_context(link), "attributes": _go_attributes(link.get("Attributes"))}
            for link in map(as_json, as_list(row.get("Links")))
        ],
        "resource": {"attributes": _go_attributes(row.get("Resource"))},
        "scope": {"name": scope.get("Name"), "version": scope.get("Version")},
    }


def _go_context(row: Json) -> Json:
    context = as_json(row.get("SpanContext"))
    return {"trace_id": context.get("TraceID"), "span_id": context.get("SpanID")}


def _go_attributes(pairs: Any) -> Json:
    return {
        pair["Key"]: as_json(pair.get("Value")).get("Value")
        for pair in map(as_json, as_list(pairs))
        if isinstance(pair.get("Key"), str)
    }


def _of_fields(fields: Json) -> Span:
    context, status, scope = (as_json(fields.get(name)) for name in ("context", "status", "scope"))
    trace_id, span_id = _id(context.get("trace_id"), 32), _id(context.get("span_id"), 16)
    if problem := wrong_ids(trace_id, span_id):
        raise ValueError(problem)
    attributes = _attributes(as_json(fields.get("attributes")))
    if (kind := as_text(fields.get("span_kind"))) and kind != "UNKNOWN":
        attributes.setdefault(_KIND, kind)
    return Span(
        trace_id=trace_id,
        span_id=span_id,
        parent_id=known(_id(fields.get("parent_id"), 16)),
        name=_text(fields.get("name")),
        kind=word(KINDS, _text(fields.get("kind")).rpartition(".")[2]),
        start=_nanoseconds(fields.get("start_time")),
        end=_nanoseconds(fields.get("end_time")),
        code=word(CODES, _text(status.get("status_code") or fields.get("status_code"))),
        message=_text(status.get("description") or fields.get("status_message")),
        attributes=attributes,
        events=[
            event_of(
                _text(event.get("name")),
                _nanoseconds(event.get("timestamp")),
                _attributes(as_json(event.get("attributes"))),
            )
            for event in map(as_json, as_list(fields.get("events")))
        ],
        links=[
            link_of(
                _id(as_json(link.get("context")).get("trace_id"), 32),
                _id(as_json(link.get("context")).get("span_id"), 16),
                _attributes(as_json(link.get("attributes"))),
            )
            for link in map(as_json, as_list(fields.get("links")))
        ],
        resource=_attributes(as_json(as_json(fields.get("resource")).get("attributes"))),
        scope=scope_of(_text(scope.get("name")), _text(scope.get("version")), {}),
    )


def _of_otlp(row: Json) -> Span:
    span = span_of(_without_nulls(row), {}, {})
    span.attributes = _attributes(span.attributes)
    return span


def _without_nulls(value: Any) -> Any:
    """Return a value without members that are null. Phoenix writes all alternatives of a value."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in cast("Json", value).items() if item is not None}
    return [_without_nulls(item) for item in as_list(value)] if isinstance(value, list) else value


def _attributes(attributes: Json) -> Json:
    """Return attributes as in OTLP: flat, and with some objects as JSON text."""
    if deeper_than(attributes, DEEPEST):
        raise ValueError("an attribute is nested too deeply")
    flat: Json = {}
    _flatten("", cast("Json", storable(attributes)), flat)
    for prefix in _TEXTS:
        if (value := flat.pop(prefix, None) or _below(flat, prefix)) is not None:
            flat[prefix] = value if isinstance(value, str) else codec.dumps(value).decode()
    return flat


def _flatten(name: str, value: Any, into: Json) -> None:
    if isinstance(value, dict) and name not in _TEXTS:
        for key, item in cast("Json", value).items():
            _flatten(f"{name}.{key}" if name else key, item, into)
    elif isinstance(value, list) and value and all(isinstance(item, dict) for item in as_list(value)):
        for number, item in enumerate(as_list(value)):
            _flatten(f"{name}.{number}", item, into)
    elif value is not None:
        into[name] = value


def _below(attributes: Json, prefix: str) -> Json | None:
    """Remove the attributes below a prefix and return them as an object, or None if there are none."""
    names = [name for name in attributes if name.startswith(f"{prefix}.")]
    tree: Json = {}
    for name in names:
        *way, last = name[len(prefix) + 1 :].split(".")
        node = tree
        for step in way:
            below: Any = node.setdefault(step, {})
            if not isinstance(below, dict):
                raise ValueError(f"{prefix}.{step} is a value and an object")
            node = cast("Json", below)
        node[last] = attributes.pop(name)
    return tree if names else None


def _id(value: Any, digits: int) -> str:
    """Return an id in hex. Ids of other systems, such as UUIDs of old versions of Phoenix, become a hash."""
    text = (as_text(value) or "").removeprefix("0x").replace("-", "").lower()
    if not text or re.fullmatch(f"[0-9a-f]{{{digits}}}", text):
        return text
    return sha256(text.encode(errors="replace")).hexdigest()[:digits]


def _nanoseconds(value: Any) -> int:
    """Return a time in nanoseconds: ISO 8601, or a number since 1970 in any unit. 0 if it is unknown."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        unit = next((unit for limit, unit in _UNITS if abs(value) < limit), 1)
        # A float is exact only to the microsecond.
        return value * unit if isinstance(value, int) else round(value * unit / 1000) * 1000
    text = as_text(value)
    if text is None:
        return 0
    match = _TIME.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text[:40]!r} is not a time")
    moment = datetime.fromisoformat(match["seconds"] + (match["zone"] or ""))
    seconds = round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
    return seconds * 1_000_000_000 + int((match["fraction"] or "")[:9].ljust(9, "0"))


def _text(value: Any) -> str:
    return storable(value) if isinstance(value, str) else ""
