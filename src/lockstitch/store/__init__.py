"""`open_store` and `Store`: the public API of a record, and the types that it takes and returns."""

from lockstitch.backend import (
    ANSWER,
    WATCHING,
    WORK_READY,
    AnyOf,
    ChangeHint,
    Condition,
    Fields,
    Find,
    QueryResult,
    Receipt,
    SearchHit,
    Sizes,
    ThreadUsage,
    Where,
)
from lockstitch.store.maintenance.copy import CopyReport
from lockstitch.store.maintenance.doctor import DoctorReport
from lockstitch.store.open import open_store
from lockstitch.store.queries.log import HistoryPage, Turn
from lockstitch.store.replays import ReplayReport
from lockstitch.store.store import Store
from lockstitch.store.transaction import ThreadUpdate, Transaction
from lockstitch.store.writes.archive import LakeArchiveReport
from lockstitch.store.writes.writer import Committed

__all__ = [
    "ANSWER",
    "WATCHING",
    "WORK_READY",
    "AnyOf",
    "ChangeHint",
    "Committed",
    "Condition",
    "CopyReport",
    "DoctorReport",
    "Fields",
    "Find",
    "HistoryPage",
    "LakeArchiveReport",
    "QueryResult",
    "Receipt",
    "ReplayReport",
    "SearchHit",
    "Sizes",
    "Store",
    "ThreadUpdate",
    "ThreadUsage",
    "Transaction",
    "Turn",
    "Where",
    "open_store",
]
