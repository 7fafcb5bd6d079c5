"""The supported attribute conventions, in the order in which they are applied."""

from lockstitch.integrations.otel.conventions.claude_code import ClaudeCode
from lockstitch.integrations.otel.conventions.convention import Convention
from lockstitch.integrations.otel.conventions.genai import GenAI
from lockstitch.integrations.otel.conventions.langfuse import Langfuse
from lockstitch.integrations.otel.conventions.mlflow import MLflow
from lockstitch.integrations.otel.conventions.openinference import OpenInference
from lockstitch.integrations.otel.conventions.vendors import LangSmith, Logfire, Traceloop
from lockstitch.integrations.otel.conventions.vercel import Vercel

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
]
