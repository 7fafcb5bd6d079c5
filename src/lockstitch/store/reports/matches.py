"""`describe_hits`: the matches of a search with their threads and the text around the first matching word."""

import re
from collections.abc import Sequence
from typing import Final

from lockstitch.backend import SearchHit
from lockstitch.model import Json, Thread
from lockstitch.model.searched_text import searched_text
from lockstitch.store.core import StoreCore

_BEFORE: Final = 60
_LENGTH: Final = 200


async def describe_hits(store: StoreCore, hits: Sequence[SearchHit], text: str) -> list[tuple[Json, Thread]]:
    """Return each match as JSON, with its thread. A match of a thread that was deleted is left out.

    Args:
        store: Open store.
        hits: Matches, best first.
        text: Text that was searched for.
    """
    threads = await store.threads_by_id({hit.thread_id for hit in hits})
    return [await _described(store, threads[hit.thread_id], hit, text) for hit in hits if hit.thread_id in threads]


async def _described(store: StoreCore, thread: Thread, hit: SearchHit, text: str) -> tuple[Json, Thread]:
    run_id = None
    content = thread.title or ""
    if hit.position is not None:
        stitch = next(iter(await store.stitches(thread, hit.position, hit.position)), None)
        content = searched_text(stitch.type, stitch.message, stitch.data) if stitch else ""
        run_id = str(stitch.run_id) if stitch and stitch.run_id else None
    row: Json = {
        "thread_id": str(thread.id),
        "key": thread.key,
        "title": thread.title,
        "position": hit.position,
        "run_id": run_id,
        "score": hit.score,
        "snippet": snippet(content, text),
    }
    return row, thread


def snippet(content: str, text: str) -> str:
    """Return the text around the first matching word."""
    content = " ".join(content.split())
    match = word_pattern(text.split()).search(content)
    start = max(0, match.start() - _BEFORE) if match else 0
    # Start at the start of a word.
    start = content.rfind(" ", 0, start) + 1 if start else 0
    piece = content[start : start + _LENGTH]
    return f"{'…' if start else ''}{piece}{'…' if start + _LENGTH < len(content) else ''}"


def highlighted(text: str, words: str) -> list[tuple[bool, str]]:
    """Return the pieces of a text, each with True if it is one of the words."""
    pieces: list[tuple[bool, str]] = []
    end = 0
    for match in word_pattern(words.split()).finditer(text):
        pieces += [(False, text[end : match.start()]), (True, match[0])]
        end = match.end()
    return [piece for piece in (*pieces, (False, text[end:])) if piece[1]]


def word_pattern(words: Sequence[str]) -> re.Pattern[str]:
    """Return a pattern for any word that is one of `words`."""
    parts = [part for word in words for part in re.findall(r"[^\W_]+", word)]
    return re.compile("|".join(rf"\b{re.escape(part)}\b" for part in parts) or r"(?!)", re.IGNORECASE)
