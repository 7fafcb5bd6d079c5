"""The supported attribute conventions, in the order in which they are applied."""

from functools import lru_cache

from lockstitch.integrations.otel.conventions.claude_code import ClaudeCode
from lockstitch.integrations.otel.conventions.convention import Content, Convention, Facts, Shape, merged
from lockstitch.integrations.otel.conventions.genai import GenAI
from lockstitch.integrations.otel.conventions.langfuse import Langfuse
from lockstitch.integrations.otel.conventions.mlflow import MLflow
from lockstitch.integrations.otel.conventions.openinference import OpenInference
from lockstitch.integrations.otel.conventions.vendors import LangSmith, Logfire, Traceloop
from lockstitch.integrations.otel.conventions.vercel import Vercel
from lockstitch.integrations.spans.span import SpanData
from lockstitch.model import Json

# The most specific first. A convention that names the kind of a span is better than a guess from the operation. The
# generic attributes of Traceloop and Logfire repeat values that the other conventions have in a better form.
DIALECTS: tuple[Convention, ...] = (
    ClaudeCode(),
    LangSmith(),
    Langfuse(),
    MLflow(),
    Vercel(),
    OpenInference(),
    GenAI(),
    Logfire(),
    Traceloop(),
)


@lru_cache(maxsize=500)
def _with_content(shape: Shape) -> tuple[Convention, ...]:
    return tuple(convention for convention in DIALECTS if convention.has_content(shape))


@lru_cache(maxsize=500)
def _with_facts(shape: Shape) -> tuple[Convention, ...]:
    return tuple(convention for convention in DIALECTS if convention.has_facts(shape))


def take_content(content: Content) -> None:
    """Move the content of an arrived span out of its attributes."""
    if not content.events:
        for convention in _with_content(content.shape):
            convention.take(content)
        return
    for convention in DIALECTS:
        # Events can add attributes, so the shape can change.
        if convention.has_content(content.shape):
            convention.take(content)


def facts_of(attributes: Json, scope: str, span: SpanData) -> Facts:
    """Return the facts in the remaining attributes of a span."""
    shape = Shape(tuple(attributes), scope)
    return merged([convention.facts(attributes, span) for convention in _with_facts(shape)])


__all__ = [
    "DIALECTS",
    "ClaudeCode",
    "GenAI",
    "LangSmith",
    "Langfuse",
    "Logfire",
    "MLflow",
    "OpenInference",
    "Traceloop",
    "Vercel",
    "facts_of",
    "take_content",
]
