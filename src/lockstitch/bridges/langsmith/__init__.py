"""LangSmith: what its clients send and its exports hold, as pieces of spans, and what those pieces say."""

from lockstitch.bridges.langsmith.meaning import LangSmith
from lockstitch.bridges.langsmith.pieces import pieces, remark
from lockstitch.bridges.langsmith.reading import RECORD_LIMIT, files, read

__all__ = ["RECORD_LIMIT", "LangSmith", "files", "pieces", "read", "remark"]
