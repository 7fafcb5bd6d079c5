"""The rules of keeping: opening a store, and everything that is asked of one."""

from lockstitch.store.maintenance.copy import CopyReport
from lockstitch.store.maintenance.doctor import DoctorReport
from lockstitch.store.open import open_store
from lockstitch.store.queries.log import HistoryPage, Turn
from lockstitch.store.store import Store
from lockstitch.store.transaction import ThreadUpdate
from lockstitch.store.writes.writer import Committed

__all__ = ["Committed", "CopyReport", "DoctorReport", "HistoryPage", "Store", "ThreadUpdate", "Turn", "open_store"]
