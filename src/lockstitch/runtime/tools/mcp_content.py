"""What an MCP tool answered, as the content of our tool results."""

import base64
from typing import Any, Final

from mcp.types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)

from lockstitch.records import Json, codec
from lockstitch.runtime.tool import ToolFailed

# What models can look at. Anything else would have the API refuse this message, and with it every later one.
_IMAGES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
_DOCUMENTS: Final = ("application/pdf",)


def content_of(result: CallToolResult) -> Any:
    """A text, or blocks where there are several or others. ToolFailed where the tool says that it failed."""
    parts = [_block(part) for part in result.content]
    texts = [str(part["text"]) for part in parts if part["type"] == "text"]
    if result.structured_content is not None and not any(texts):
        text = codec.dumps(result.structured_content).decode()
        texts = [text]
        parts = [{"type": "text", "text": text}, *(part for part in parts if part["type"] != "text")]
    if result.is_error:
        raise ToolFailed("\n".join(texts) or "The tool failed and did not say why.")
    if not parts:
        return ""
    return texts[0] if len(parts) == len(texts) == 1 else parts


def _block(part: ContentBlock) -> Json:
    match part:
        case TextContent():
            return _text(part.text)
        case ImageContent():
            return _media(part.data, part.mime_type, "an image")
        case AudioContent():
            return _media(part.data, part.mime_type, "a sound")
        case ResourceLink():
            about = ": ".join(filter(None, (part.title or part.name, part.description)))
            return _text(f"{about}\n{part.uri}")
        case EmbeddedResource():
            found = part.resource
            if isinstance(found, BlobResourceContents):
                return _media(found.blob, found.mime_type or "", str(found.uri), title=str(found.uri))
            return _text(found.text)


def _media(data: str, mime_type: str, what: str, title: str | None = None) -> Json:
    kind = mime_type.partition(";")[0].strip().lower()
    source: Json = {"type": "base64", "media_type": kind, "data": data}
    if kind in _IMAGES:
        return {"type": "image", "source": source}
    if kind in _DOCUMENTS:
        block: Json = {"type": "document", "source": source}
        return {**block, "title": title} if title else block
    if kind.startswith("text/") or kind == "application/json":
        return _text(base64.b64decode(data).decode("utf-8", "replace"))
    return _text(f"[{what}, {kind or 'of unknown type'}, {len(data) * 3 // 4:,} bytes: it cannot be shown here]")


def _text(text: str) -> Json:
    return {"type": "text", "text": text}
