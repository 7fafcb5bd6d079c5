"""How many tokens something is, about: cheap enough to ask before every call."""

from collections.abc import Iterable
from typing import Any, Final, cast

from lockstitch.records import Json, Message, codec
from lockstitch.records.message import blocks

_BYTES_PER_TOKEN: Final = 4
_MESSAGE: Final = 4
"""What the frame of a message takes."""

_FLAT: Final = {"image": 1_600, "document": 3_000}
"""Media count by what models take for them, not by the length of their base64."""


def estimate(message: Message) -> int:
    """About four bytes of JSON text are one token; images and documents are flat."""
    return _MESSAGE + sum(estimate_block(block) for block in blocks(message))


def estimate_all(messages: Iterable[Message]) -> int:
    return sum(map(estimate, messages))


def estimate_json(value: Any) -> int:
    """The same measure for anything else that is sent: a system text, a list of tools."""
    return -(-len(codec.dumps(value)) // _BYTES_PER_TOKEN)


def estimate_block(block: Json) -> int:
    """A message is its blocks and little more."""
    flat = _FLAT.get(str(block.get("type")))
    if flat is not None:
        return flat
    content: Any = block.get("content")
    if not isinstance(content, list):
        return estimate_json(block)
    # A tool result may hold images of its own.
    inner = [cast("Json", part) for part in cast("list[Any]", content) if isinstance(part, dict)]
    return estimate_json({**block, "content": None}) + sum(map(estimate_block, inner))
