"""A fake prompt cache. It counts four bytes as a token and reads repeated content from the cache."""

import json
from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]


class Cache:
    def __init__(self) -> None:
        self._marked: set[str] = set()
        self._sent: list[str] = []

    def anthropic(self, body: Json) -> Json:
        """Only content before a breakpoint can be read. A breakpoint finds earlier entries that are its prefix."""
        prefix, reachable, marked = "", [], []
        for block, has_mark in _blocks(body):
            prefix += block
            reachable.append(prefix)
            if has_mark:
                marked.append(prefix)
        end = len(marked[-1]) if marked else 0
        read = max((len(prefix) for prefix in reachable if prefix in self._marked and len(prefix) <= end), default=0)
        self._marked.update(marked)
        return {
            "input_tokens": (len(prefix) - end) // 4,
            "cache_read_input_tokens": read // 4,
            "cache_creation_input_tokens": (end - read) // 4,
            "output_tokens": 1,
        }

    def openai(self, body: Json) -> Json:
        """The longest prefix that an earlier request also has is read, without breakpoints."""
        sent = json.dumps(body.get("messages") or [body.get("instructions"), *body.get("input", ())])
        shared = max((_shared(sent, earlier) for earlier in self._sent), default=0)
        self._sent.append(sent)
        return {"input": len(sent) // 4, "cached": shared // 4, "output": 7, "reasoning": 3}


def _blocks(body: Json) -> Iterator[tuple[str, bool]]:
    blocks = [*body.get("tools", ()), *body.get("system", ())]
    for message in body["messages"]:
        content = message["content"]
        inner = [{"type": "text", "text": content}] if isinstance(content, str) else content
        blocks += [{"role": message["role"], **block} for block in inner]
    for block in blocks:
        bare = {name: value for name, value in block.items() if name != "cache_control"}
        yield json.dumps(bare, sort_keys=True), "cache_control" in block


def _shared(first: str, second: str) -> int:
    return next(
        (place for place, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(len(first), len(second))
    )
