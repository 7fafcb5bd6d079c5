"""The OpenTelemetry integration: traces in OTLP, in the conventions of instrumentations for models and agents."""

from lockstitch.integrations.otel.facts import OpenTelemetry, has_more_detail, is_same_model_call
from lockstitch.integrations.otel.frames import LIMIT
from lockstitch.integrations.otel.reader import files, read, read_body, read_file, read_stream

__all__ = [
    "LIMIT",
    "OpenTelemetry",
    "files",
    "has_more_detail",
    "is_same_model_call",
    "read",
    "read_body",
    "read_file",
    "read_stream",
]
