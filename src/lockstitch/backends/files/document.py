"""A record as a JSON document: its fields, with bytes as base64."""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any, TypeVar

from lockstitch.records import Archive, Blob, ColumnKind, Json, Record, columns

R = TypeVar("R", bound=Record)

BESIDE: Mapping[type[Record], str] = {Blob: "content", Archive: "content"}
"""The field of a kind that stands in a file of its own, because it is large and people want it as it is."""


def encode_record(record: Record) -> Json:
    """The document; a field that stands beside is left out."""
    values = record.as_json()
    kind = type(record)
    return {
        name: b64encode(value).decode() if isinstance(value := values.get(name), bytes) else value
        for name, _ in columns(kind)
        if name != BESIDE.get(kind)
    }


def decode_record(kind: type[R], document: Json, **beside: Any) -> R:
    """The record of a document and of what stands beside it."""
    return kind.from_json(restored(kind, {**document, **beside}))


def restored(kind: type[Record], document: Mapping[str, Any]) -> Json:
    """Return the values of a document with bytes in place of their base64."""
    values = dict(document)
    for name, column in columns(kind):
        if column is ColumnKind.BYTES and isinstance(values.get(name), str):
            values[name] = b64decode(values[name])
    return values
