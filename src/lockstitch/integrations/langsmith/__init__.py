"""LangSmith: what its clients send and its exports hold, as pieces of spans, and what those pieces say."""

from lockstitch.integrations.langsmith.facts import LangSmith
from lockstitch.integrations.langsmith.reader import RECORD_LIMIT, files, read
from lockstitch.integrations.langsmith.runs import pieces, remark

__all__ = ["RECORD_LIMIT", "LangSmith", "files", "pieces", "read", "remark"]
