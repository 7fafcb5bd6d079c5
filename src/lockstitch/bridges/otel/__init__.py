"""OpenTelemetry: traces as OTLP carries them, in the conventions that instrumentations of models and agents follow."""

from lockstitch.bridges.otel.framing import LIMIT
from lockstitch.bridges.otel.meaning import OpenTelemetry
from lockstitch.bridges.otel.reading import files, read, read_body, read_file, read_stream
from lockstitch.bridges.otel.twins import same_call, tells_more

__all__ = [
    "LIMIT",
    "OpenTelemetry",
    "files",
    "read",
    "read_body",
    "read_file",
    "read_stream",
    "same_call",
    "tells_more",
]
