"""The conventions that are understood, in the order in which they are asked."""

from lockstitch.bridges.otel.dialect import Dialect
from lockstitch.bridges.otel.dialects.genai import GenAI
from lockstitch.bridges.otel.dialects.langsmith import LangSmith
from lockstitch.bridges.otel.dialects.logfire import Logfire
from lockstitch.bridges.otel.dialects.openinference import OpenInference
from lockstitch.bridges.otel.dialects.traceloop import Traceloop

# The most particular first: whoever names the kind of a span itself knows better than what an operation suggests, and
# the generic blobs of Traceloop and logfire repeat what the others have in order.
DIALECTS: tuple[Dialect, ...] = (LangSmith(), OpenInference(), GenAI(), Logfire(), Traceloop())

__all__ = ["DIALECTS", "GenAI", "LangSmith", "Logfire", "OpenInference", "Traceloop"]
