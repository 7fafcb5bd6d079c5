"""The rules of keeping: opening a store, and everything that is asked of one."""

from lockstitch.store.appending import Appended
from lockstitch.store.copying import Copied
from lockstitch.store.doctor import Report
from lockstitch.store.draft import Draft
from lockstitch.store.open import open_store
from lockstitch.store.reading import Page, Turn
from lockstitch.store.store import Store

__all__ = ["Appended", "Copied", "Draft", "Page", "Report", "Store", "Turn", "open_store"]
