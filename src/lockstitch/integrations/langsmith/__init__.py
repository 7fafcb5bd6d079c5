"""The LangSmith integration: request bodies and exports as span data, and the facts of runs."""

from lockstitch.integrations.langsmith.facts import LangSmith
from lockstitch.integrations.langsmith.reader import RECORD_LIMIT, files, read
from lockstitch.integrations.langsmith.runs import parse_feedback, spans_of_run

__all__ = ["RECORD_LIMIT", "LangSmith", "files", "parse_feedback", "read", "spans_of_run"]
