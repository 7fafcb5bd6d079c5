"""A model that is none: it answers from the sources alone, by quoting them. For trying notebooks without a key or a
network, and it says that it does so.

It reads what a model would read and decides by that alone, so that whoever is killed and starts again is told the same.
"""

import re
from collections import Counter
from typing import Any, Final

from lockstitch import Message
from lockstitch.apps.notebooks.passages import best, stems
from lockstitch.apps.notebooks.team import NOTHING, RESEARCHER
from lockstitch.ext import Json, ModelRequest, Scripted, blocks, text_of

_GREETINGS: Final = frozenset({"hello", "hi", "hey", "hallo", "moin", "servus", "salut", "hola", "thanks", "thank"})
_FOUND: Final = re.compile(r"^\[(\d+)\] (.+)$", re.MULTILINE)
_REMEMBERED: Final = "What is known from earlier:"
"""What a message of memories begins with."""

_QUOTES: Final = 3
_LONGEST: Final = 500


class Quoting(Scripted):
    """Greets, hands questions to the Researcher, and has that one quote what it finds."""

    model = "quoting"

    def __init__(self) -> None:
        super().__init__(quoting_provider)


def quoting_provider(request: ModelRequest) -> Any:
    """What it says: to hand the question on, to search, or quotations of what was found."""
    if request.purpose is not None:
        # No facts are made up for a memory, nor titles.
        return "[]"
    tools = {str(tool.get("name")) for tool in request.tools}
    text = _last_said(request)
    results = _results(request)
    if "delegate" in tools:
        return _lead(text, results)
    if "search_sources" in tools:
        return _research(text, results)
    return text or "There is nothing to write."


def _lead(text: str, results: list[str]) -> Any:
    if results:
        return results[-1]
    words = text.casefold().strip(" .,!?").split()
    if not words or (len(words) <= 2 and words[0].strip(",.!") in _GREETINGS):
        return "Hello! No model is set, so I can only quote: ask me something that stands in your sources."
    return {"calls": [{"name": "delegate", "input": {"member": RESEARCHER, "task": text, "final": True}}]}


def _research(text: str, results: list[str]) -> Any:
    if not results:
        return {"calls": [{"name": "search_sources", "input": {"query": text}}]}
    quotes = quoted(results[-1], text)
    if not quotes:
        return "Your sources do not say anything about this. (No model is set, so I can only quote them.)"
    return "No model is set, so this is what your sources say, word for word:\n\n" + "\n".join(quotes)


def quoted(match: str, question: str) -> list[str]:
    """The best sentences of what a search gave, each with the number that it is cited by."""
    if match.strip() == NOTHING:
        return []
    heads = list(_FOUND.finditer(match))
    ends = [*(head.start() for head in heads[1:]), len(match)]
    texts = [match[head.end() : end].strip() for head, end in zip(heads, ends, strict=True)]
    # A word that stands in every passage says nothing about which of them to quote.
    spread = Counter(stem for text in texts for stem in stems(question) & stems(text))
    scored: list[tuple[float, int, str]] = []
    for place, (head, text) in enumerate(zip(heads, texts, strict=True)):
        part = best(text, question)
        quote = " ".join(text[part.start : part.end].split())
        quote = quote if len(quote) <= _LONGEST else f"{quote[: _LONGEST - 1].rstrip()}…"
        score = sum(1 / spread[stem] for stem in stems(quote) & spread.keys())
        scored.append((-score, place, f"- “{quote}” [{head[1]}]"))
    most = min((score for score, _, _ in scored), default=0)
    return [line for score, _, line in sorted(scored)[:_QUOTES] if score <= most / 2]


def _last_said(request: ModelRequest) -> str:
    """What was asked last, memories and results of tools left out."""
    for message in reversed(request.messages):
        text = text_of(message).strip() if message.get("role") == "user" else ""
        if text and not text.startswith(_REMEMBERED):
            return text
    return ""


def _results(request: ModelRequest) -> list[str]:
    """What tools gave since then."""
    matches: list[str] = []
    for message in reversed(request.messages):
        results = _tool_results(message)
        if message.get("role") == "user" and not results and text_of(message).strip():
            break
        matches = [_text(result) for result in results] + matches
    return matches


def _tool_results(message: Message) -> list[Json]:
    return [block for block in blocks(message) if block.get("type") == "tool_result"]


def _text(block: Json) -> str:
    content = block.get("content")
    if isinstance(content, str):
        return content
    return "\n".join(str(item.get("text", "")) for item in content or ())
