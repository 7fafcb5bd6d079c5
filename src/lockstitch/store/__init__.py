"""The rules of keeping: opening a store, and everything that is asked of one."""

from lockstitch.store.maintenance.copy import Copied
from lockstitch.store.maintenance.doctor import Report
from lockstitch.store.open import open_store
from lockstitch.store.queries.log import Page, Turn
from lockstitch.store.store import Store
from lockstitch.store.transaction import Draft
from lockstitch.store.writes.writer import Appended

__all__ = ["Appended", "Copied", "Draft", "Page", "Report", "Store", "Turn", "open_store"]
