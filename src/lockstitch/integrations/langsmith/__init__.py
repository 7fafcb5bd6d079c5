"""The LangSmith integration: request bodies and exports as span data, and the facts of runs."""

from lockstitch.integrations.langsmith.facts import LangSmith
from lockstitch.integrations.langsmith.reader import RECORD_LIMIT, files, read
from lockstitch.integrations.langsmith.runs import remark, spans_of_run

__all__ = ["RECORD_LIMIT", "LangSmith", "files", "read", "remark", "spans_of_run"]
