"""Search without an index: every input and answer of the project is read."""

import re
from collections import Counter

from lockstitch.backend import Hit
from lockstitch.backends.files import layout, log, tables
from lockstitch.backends.files.folder import Folder
from lockstitch.records import Stitch, Thread, text_of

_WORD = re.compile(r"[^\W_]+")

LONGEST = 262_144
"""Characters of one message that are searched."""


def search(folder: Folder, project: str, text: str, limit: int) -> list[Hit]:
    """Places that contain every word, in whatever case; those that say them most often first."""
    words = set(_words(text))
    if not words:
        return []
    hits: list[Hit] = []
    for head in tables.all_in(folder, Thread, layout.HEADS):
        if head.project != project:
            continue
        if score := _score(words, head.title or ""):
            hits.append(Hit(head.id, None, score))
        said = filter(_is_said, log.read(folder, head.id, [(1, None)]))
        scores = ((one.position, _score(words, text_of(one.message)[:LONGEST])) for one in said)
        hits.extend(Hit(head.id, position, score) for position, score in scores if score)
    hits.sort(key=lambda hit: (-hit.score, hit.thread_id, hit.position or 0))
    return hits[:limit]


def _is_said(stitch: Stitch) -> bool:
    """Whether a person said it, or an agent as its answer; what an agent says between tool calls is not searched."""
    return stitch.type == "input" or (stitch.type == "llm_call" and stitch.status != "tool_use")


def _score(words: set[str], text: str) -> float:
    found = Counter(_words(text))
    return float(sum(found[word] for word in words)) if all(word in found for word in words) else 0.0


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())
