"""`QuoteProvider`: answers with quotations from the sources, without a model or a network.

Replies depend on the request alone, so that a run that resumes after a crash gets the same replies.
"""

import re
from collections import Counter
from typing import Any, Final

from lockstitch import Message
from lockstitch.apps.notebooks.passages import best, stems
from lockstitch.apps.notebooks.team import NOTHING, RESEARCHER
from lockstitch.ext import Json, ModelRequest, Scripted, blocks, text_of

_GREETINGS: Final = frozenset({"hello", "hi", "hey", "hallo", "moin", "servus", "salut", "hola", "thanks", "thank"})
_PASSAGE_HEAD: Final = re.compile(r"^\[(\d+)\] (.+)$", re.MULTILINE)
_REMEMBERED: Final = "Memories from earlier conversations:"
"""Start of a message with memories."""

_QUOTES: Final = 3
_LONGEST: Final = 500


class QuoteProvider(Scripted):
    """A provider that delegates questions to the Researcher, which quotes the passages that it finds."""

    model = "quoting"

    def __init__(self) -> None:
        super().__init__(quote_reply)


def quote_reply(request: ModelRequest) -> Any:
    """Return the reply to a request: delegate the question, search, or quote the results."""
    if request.purpose is not None:
        # Requests for memories and titles get an empty list.
        return "[]"
    tools = {str(tool.get("name")) for tool in request.tools}
    text = _last_question(request)
    results = _results(request)
    if "delegate" in tools:
        return _lead(text, results)
    if "search_sources" in tools:
        return _research(text, results)
    return text or "The task is empty, so there is nothing to write."


def _lead(text: str, results: list[str]) -> Any:
    if results:
        return results[-1]
    words = text.casefold().strip(" .,!?").split()
    if not words or (len(words) <= 2 and words[0].strip(",.!") in _GREETINGS):
        return (
            "Hello! No model is set, so I can only quote your sources and cannot search the web. "
            "Ask me something about them."
        )
    return {"calls": [{"name": "delegate", "input": {"member": RESEARCHER, "task": text, "final": True}}]}


def _research(text: str, results: list[str]) -> Any:
    if not results:
        return {"calls": [{"name": "search_sources", "input": {"query": text}}]}
    quotes = quoted(results[-1], text)
    if not quotes:
        return (
            "Your sources do not say anything about this. No model is set, so I can only quote them and cannot search "
            "the web."
        )
    return "No model is set, so these are quotations from your sources:\n\n" + "\n".join(quotes)


def quoted(match: str, question: str) -> list[str]:
    """Return the best sentences of a search result, each with the number that cites it."""
    if match.strip() == NOTHING:
        return []
    heads = list(_PASSAGE_HEAD.finditer(match))
    ends = [*(head.start() for head in heads[1:]), len(match)]
    texts = [match[head.end() : end].strip() for head, end in zip(heads, ends, strict=True)]
    # A word that is in every passage does not help to choose, so words count less the more passages contain them.
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


def _last_question(request: ModelRequest) -> str:
    """Return the last user message that is neither a message with memories nor a tool result."""
    for message in reversed(request.messages):
        text = text_of(message).strip() if message.get("role") == "user" else ""
        if text and not text.startswith(_REMEMBERED):
            return text
    return ""


def _results(request: ModelRequest) -> list[str]:
    """Return the tool results after the last user message."""
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
