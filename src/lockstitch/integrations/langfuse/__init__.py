"""The Langfuse integration: scores of its clients, and its exports. The spans of its clients are OpenTelemetry."""

from lockstitch.integrations.langfuse.reader import Export, files
from lockstitch.integrations.langfuse.scores import feedback_of, read_scores

__all__ = ["Export", "feedback_of", "files", "read_scores"]
