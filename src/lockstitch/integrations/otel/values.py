"""JSON inside attributes, and names of providers.

Conventions, SDKs and frameworks use different provider names. The names here are those of the price table. Two spans of
one model call are recognised by provider and response id, so both must have the same provider name.
"""

import json
import math
from typing import Any, Final, cast

import orjson

from lockstitch.integrations.spans.values import literal, storable
from lockstitch.model import Json, codec

DEEPEST = 100
"""Maximum levels of nesting. The codec rejects 250, and a span adds a few levels."""


def loads(text: str | bytes) -> Any:
    """Parse JSON text leniently: accept NaN and lone surrogates. Raises ValueError if it is not JSON."""
    try:
        return codec.loads(text)
    except (ValueError, RecursionError):
        pass
    if isinstance(text, bytes):
        text = text.decode(errors="replace")
    try:
        return json.loads(text)
    except RecursionError as exc:
        raise ValueError("it is nested too deeply") from exc


def parsed(text: Any) -> Any:
    """Return the object or list that a text contains as JSON. Any other value is returned unchanged."""
    if not isinstance(text, str) or not text.lstrip().startswith(("{", "[")):
        return text
    value = exact = _parsed_exactly(text)
    if exact is _INEXACT:
        try:
            value = loads(text)
        except ValueError:
            return text
    # Counting brackets is faster than checking the value, and enough for nearly all texts.
    if text.count("{") + text.count("[") > DEEPEST and deeper_than(value, DEEPEST):
        return text
    return storable(value) if exact is _INEXACT or "\\u0000" in text else value


_INEXACT: Final = object()


def _parsed_exactly(text: str) -> Any:
    """Return the value of a JSON text. `_INEXACT` if it needs a parser that accepts values that cannot be stored."""
    try:
        return _INEXACT if codec.has_long_number(text) else orjson.loads(text)
    except ValueError:
        return _INEXACT


def unquoted(value: Any) -> Any:
    """Return the text that a value contains as a JSON string. Any other value is returned unchanged."""
    if not isinstance(value, str) or len(value) < 2 or value[0] != '"' or value[-1] != '"':
        return value
    try:
        text = loads(value)
    except ValueError:
        return value
    return storable(text) if isinstance(text, str) else value


def decoded(value: Any) -> Any:
    """Return the value that JSON text contains, of any type. Any other value is returned unchanged."""
    if not isinstance(value, str):
        return value
    try:
        read = loads(value)
    except ValueError:
        return value
    return value if deeper_than(read, DEEPEST) else storable(read)


def arguments(value: Any) -> Any:
    """Return the arguments of a call. Text is parsed as JSON or as a Python literal. It is never evaluated."""
    if not isinstance(value, str):
        return value
    read = parsed(value)
    if read is value and value.lstrip()[:1] == "{":
        result = literal(value.strip())
        return cast("Json", result) if isinstance(result, dict) and not deeper_than(result, DEEPEST) else value
    return read


def deeper_than(value: Any, levels: int) -> bool:
    """True if lists and objects are nested deeper than `levels`."""
    layer = [value]
    for _ in range(levels + 1):
        below: list[Any] = []
        for item in layer:
            if isinstance(item, dict):
                below.extend(cast("Json", item).values())
            elif isinstance(item, list | tuple):
                below.extend(cast("list[Any]", item))
        if not below:
            return False
        layer = below
    return True


def as_json(value: Any) -> Json:
    """Return `value` if it is an object, else an empty object."""
    return value if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownVariableType]


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []  # pyright: ignore[reportUnknownVariableType]


def as_text(value: Any) -> str | None:
    """Return `value` if it is a non-empty text, else None."""
    return value if isinstance(value, str) and value else None


def as_count(value: Any) -> int | None:
    """Return a token count, also from text and floats, because exporters write both. None if it is not plausible."""
    if value is None:
        return None
    number = as_number(value)
    return int(number) if number is not None and 0 <= number < 2**31 else None


def as_number(value: Any) -> float | int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, str) and len(value) < 40:
        try:
            value = float(value) if not value.strip().isdigit() else int(value)
        except ValueError:
            return None
    if isinstance(value, int):
        return value
    return value if isinstance(value, float) and math.isfinite(value) else None


def first(bag: Json, *names: str) -> Any:
    """Return the first of these members that is not empty."""
    for name in names:
        value = bag.get(name)
        if value is not None and value != "" and value != [] and value != {}:
            return value
    return None


_NAMES = {
    "amazon": "aws",
    "amazon_bedrock": "aws",
    "amazon-bedrock": "aws",
    "aws.bedrock": "aws",
    "aws_bedrock": "aws",
    "bedrock": "aws",
    "bedrock_converse": "aws",
    "az.ai.inference": "azure",
    "az.ai.openai": "azure",
    "azure.ai.inference": "azure",
    "azure.ai.openai": "azure",
    "azure_ai": "azure",
    "azure_openai": "azure",
    "azure-openai": "azure",
    "fireworks_ai": "fireworks",
    "fireworks-ai": "fireworks",
    "gcp.gemini": "google",
    "gcp.gen_ai": "google",
    "gcp.vertex_ai": "google",
    "gemini": "google",
    "google-gla": "google",
    "google-vertex": "google",
    "google_genai": "google",
    "google_vertexai": "google",
    "vertex": "google",
    "vertex_ai": "google",
    "vertexai": "google",
    "mistral_ai": "mistral",
    "mistralai": "mistral",
    "moonshot": "moonshotai",
    "together_ai": "together",
    "togetherai": "together",
    "x_ai": "x-ai",
    "xai": "x-ai",
}

# Frameworks appear as provider names, but are not providers.
_FRAMEWORKS = frozenset(
    {
        "_other",
        "agno",
        "beeai",
        "autogen",
        "crewai",
        "haystack",
        "langchain",
        "langgraph",
        "litellm",
        "llama_index",
        "llamaindex",
        "openai_agents",
        "pydantic-ai",
        "pydantic_ai",
        "semantic_kernel",
        "smolagents",
        "strands",
        "strands-agents",
        "traceloop",
        "unknown",
    }
)


def provider_name(*lines: Any) -> str | None:
    """Return the first value that names a provider, in the names of the price table."""
    for word in lines:
        if isinstance(word, str) and (name := word.strip().lower()) and name not in _FRAMEWORKS:
            return _NAMES.get(name) or _without_api(name)
    return None


_APIS = (".chat", ".completion", ".embedding", ".embeddings", ".messages", ".responses")


def _without_api(name: str) -> str:
    """Return the provider of a name of Vercel's SDK: openai.responses, google.vertex.chat, anthropic.messages."""
    provider, dot, _ = name.partition(".")
    if dot and (name.endswith(_APIS) or provider in ("google", "vertex")):
        return _NAMES.get(provider, provider)
    return name
