"""Counts tokens as the real ones do: four bytes each, and what was sent before is read from the cache."""

import json
from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]


class Cache:
    def __init__(self) -> None:
        self._marked: set[str] = set()
        self._sent: list[str] = []

    def anthropic(self, body: Json) -> Json:
        """Only what a breakpoint closed can be read; a later breakpoint finds an earlier entry that is a prefix."""
        prefix, reachable, marked = "", [], []
        for block, has_mark in _blocks(body):
            prefix += block
            reachable.append(prefix)
            if has_mark:
                marked.append(prefix)
        end = len(marked[-1]) if marked else 0
        read = max((len(one) for one in reachable if one in self._marked and len(one) <= end), default=0)
        self._marked.update(marked)
        return {
            "input_tokens": (len(prefix) - end) // 4,
            "cache_read_input_tokens": read // 4,
            "cache_creation_input_tokens": (end - read) // 4,
            "output_tokens": 1,
        }

    def openai(self, body: Json) -> Json:
        """Whatever begins as an earlier request did is read, without any mark."""
        sent = json.dumps(body.get("messages") or [body.get("instructions"), *body.get("input", ())])
        shared = max((_shared(sent, one) for one in self._sent), default=0)
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


def _shared(one: str, other: str) -> int:
    return next(
        (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )
