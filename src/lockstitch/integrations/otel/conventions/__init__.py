"""The supported attribute conventions, in the order in which they are applied."""

from lockstitch.integrations.otel.conventions.convention import Convention
from lockstitch.integrations.otel.conventions.genai import GenAI
from lockstitch.integrations.otel.conventions.openinference import OpenInference
from lockstitch.integrations.otel.conventions.vendors import LangSmith, Logfire, Traceloop

# The most specific first. A convention that names the kind of a span is better than a guess from the operation. The
# generic attributes of Traceloop and Logfire repeat values that the other conventions have in a better form.
DIALECTS: tuple[Convention, ...] = (LangSmith(), OpenInference(), GenAI(), Logfire(), Traceloop())

__all__ = ["DIALECTS", "GenAI", "LangSmith", "Logfire", "OpenInference", "Traceloop"]
