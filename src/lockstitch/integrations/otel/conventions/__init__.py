"""The conventions that are understood, in the order in which they are asked."""

from lockstitch.integrations.otel.conventions.convention import Convention
from lockstitch.integrations.otel.conventions.genai import GenAI
from lockstitch.integrations.otel.conventions.openinference import OpenInference
from lockstitch.integrations.otel.conventions.vendors import LangSmith, Logfire, Traceloop

# The most particular first: whoever names the kind of a span itself knows better than what an operation suggests, and
# the generic blobs of Traceloop and logfire repeat what the others have in order.
DIALECTS: tuple[Convention, ...] = (LangSmith(), OpenInference(), GenAI(), Logfire(), Traceloop())

__all__ = ["DIALECTS", "GenAI", "LangSmith", "Logfire", "OpenInference", "Traceloop"]
