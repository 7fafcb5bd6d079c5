"""What is kept: frozen records, identifiers, the exact codec and the folds. No I/O."""

from lockstitch.records import codec
from lockstitch.records.clock import Clock, FakeClock, SystemClock, format_time, parse_time
from lockstitch.records.fold import context, history, open_calls
from lockstitch.records.ids import as_id, foreign_id, new_id
from lockstitch.records.letter import Letter
from lockstitch.records.message import Message, answer_of, text_of, tool_result, tool_uses
from lockstitch.records.record import Column, ColumnKind, Json, Record, columns
from lockstitch.records.run import Run
from lockstitch.records.shelves import (
    OWNED,
    SHELVES,
    Agent,
    AgentLink,
    AgentVersion,
    Archive,
    Audit,
    Blob,
    BlobUse,
    Delta,
    Eval,
    Feedback,
    File,
    Knowledge,
    Memory,
    Metric,
    RawBody,
    Token,
)
from lockstitch.records.stitch import CHAIN, ERRORS, MESSAGES, TYPES, Entry, Stitch, place
from lockstitch.records.thread import TERMINAL, Thread, waiting
from lockstitch.records.worker import Worker, provably_dead, this_process

__all__ = [
    "CHAIN",
    "ERRORS",
    "MESSAGES",
    "OWNED",
    "SHELVES",
    "TERMINAL",
    "TYPES",
    "Agent",
    "AgentLink",
    "AgentVersion",
    "Archive",
    "Audit",
    "Blob",
    "BlobUse",
    "Clock",
    "Column",
    "ColumnKind",
    "Delta",
    "Entry",
    "Eval",
    "FakeClock",
    "Feedback",
    "File",
    "Json",
    "Knowledge",
    "Letter",
    "Memory",
    "Message",
    "Metric",
    "RawBody",
    "Record",
    "Run",
    "Stitch",
    "SystemClock",
    "Thread",
    "Token",
    "Worker",
    "answer_of",
    "as_id",
    "codec",
    "columns",
    "context",
    "foreign_id",
    "format_time",
    "history",
    "new_id",
    "open_calls",
    "parse_time",
    "place",
    "provably_dead",
    "text_of",
    "this_process",
    "tool_result",
    "tool_uses",
    "waiting",
]
