"""The exact request of a model call: built from what is kept, named by its sha256."""

from collections.abc import Sequence
from typing import Any

from lockstitch.records import codec
from lockstitch.records.message import Message
from lockstitch.records.record import Json


def build(parameters: Json, system: str | None, tools: Sequence[Json], messages: Sequence[Message]) -> Json:
    """The request as one JSON value; its key order is part of its bytes."""
    request: dict[str, Any] = dict(parameters)
    if system is not None:
        request["system"] = system
    if tools:
        request["tools"] = list(tools)
    request["messages"] = list(messages)
    return request


def reference(parameters: Json, system_sha256: str | None, tools_sha256: str | None, request: Json) -> Json:
    """What an llm_call keeps of its request, under data["request"]: all but the texts and the messages."""
    return {
        "sha256": codec.digest(request),
        "parameters": parameters,
        "system": system_sha256,
        "tools": tools_sha256,
    }
