"""Metadata without its base64: a label says how much there was."""

import re
from typing import Any, Final, cast

from lockstitch.records import Json

_DATA_URL: Final = re.compile(r"data:([^,]*);base64,")
_MEDIA_KEYS: Final = ("media_type", "format", "mime_type")


def without_payloads(value: Any) -> Any:
    """The same JSON, with a size label in place of every base64 payload."""
    if isinstance(value, str):
        url = _DATA_URL.match(value)
        return f"data:{url.group(1)};base64,{_label(value[url.end() :])}" if url else value
    if isinstance(value, list):
        return [without_payloads(item) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    bag = cast("Json", value)
    lighter = {key: without_payloads(item) for key, item in bag.items()}
    data: Any = bag.get("data")
    if isinstance(data, str) and (bag.get("type") == "base64" or any(key in bag for key in _MEDIA_KEYS)):
        lighter["data"] = _label(data)
    return lighter


def _label(data: str) -> str:
    return f"[base64: {len(data.rstrip('=')) * 3 // 4} bytes]"
