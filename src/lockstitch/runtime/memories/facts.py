"""Facts worth remembering: how a model is asked for them, and what its answer says."""

import json
import re
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Final, cast

from lockstitch.records import Json, Message, text_of

_MOST_FACTS: Final = 20
_LONGEST_FACT: Final = 1_000
_TRANSCRIPT: Final = 40_000
_MOST_STARTS: Final = 50
"""Places where a list may begin that are tried before an answer is given up."""

_PROMPT: Final = """\
Read this conversation and list what is worth remembering for later conversations with the same user: lasting facts, \
preferences, decisions and open commitments. Leave out what only mattered in the moment, secrets and passwords, and \
what is known already. Each fact is one sentence that can be understood on its own.

Answer with a JSON list of strings and nothing else; [] if there is nothing to remember.

Known already:
{known}

Conversation:
{transcript}
"""

_SURROGATES: Final = re.compile("[\ud800-\udfff]")
_TEXT_KEYS: Final = ("text", "fact", "memory", "content")
_LIST_KEYS: Final = ("facts", "memories", "items", "result")


def prompt(messages: Sequence[Message], known: Iterable[str]) -> str | None:
    """What a model is asked; None when nobody said anything."""
    told = transcript(messages)
    if not told:
        return None
    return _PROMPT.format(known="\n".join(f"- {text}" for text in known) or "- nothing", transcript=told)


def transcript(messages: Sequence[Message]) -> str:
    """What was said, tools left out; of a very long conversation its beginning and its end."""
    lines = [f"{message.get('role')}: {text}" for message in messages if (text := text_of(message).strip())]
    told = "\n".join(lines)
    if len(told) <= _TRANSCRIPT:
        return told
    half = _TRANSCRIPT // 2
    return f"{told[:half]}\n…\n{told[-half:]}"


def parse(answer: str) -> list[str]:
    """The facts in a model's answer, however it is dressed: fenced, introduced, or as objects. Else none."""
    for start in islice(re.finditer(r"[\[{]", answer), _MOST_STARTS):
        try:
            value, _ = json.JSONDecoder().raw_decode(answer, start.start())
        except (ValueError, RecursionError):
            continue
        found = clean(_texts(value))
        if found or value == []:
            return found
    return []


def clean(facts: Iterable[str]) -> list[str]:
    """Facts that every store can keep: each once, not empty, not too long and not too many."""
    kept: dict[str, str] = {}
    for fact in facts:
        text = " ".join(_SURROGATES.sub("", fact.replace("\x00", "")).split())[:_LONGEST_FACT]
        if text:
            kept.setdefault(same(text), text)
    return list(kept.values())[:_MOST_FACTS]


def same(text: str) -> str:
    """Two facts with the same of these are one."""
    return " ".join(text.casefold().split()).rstrip(".!")


def _texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        bag = cast("Json", value)
        inner = next((bag[key] for key in _LIST_KEYS if isinstance(bag.get(key), list)), None)
        value = inner if inner is not None else [bag]
    if not isinstance(value, list):
        return []
    return [text for item in cast("list[Any]", value) if isinstance(text := _text(item), str)]


def _text(item: Any) -> Any:
    if not isinstance(item, dict):
        return item
    bag = cast("Json", item)
    return next((bag[key] for key in _TEXT_KEYS if isinstance(bag.get(key), str)), None)
