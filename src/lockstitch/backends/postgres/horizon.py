"""How far the log is complete.

Its numbers are drawn in order but become visible out of order, so one that has been seen does not mean that all below
it have. It does once every transaction that was under way when it was seen has ended: only then does the mark move up
to it.
"""

from lockstitch.backends.sql.dialect import Dialect
from lockstitch.backends.sql.script import Script


class Horizon:
    """Up to `mark` nothing more will appear in the log. It moves by looking, so by two looks or more."""

    def __init__(self) -> None:
        self.mark = 0
        self.end = 0
        """Where the log ended when it was last found to have grown: what becomes the mark next."""
        self._writing = 0
        """The transaction from which on all began after that was seen."""

    def look(self, dialect: Dialect, *, patient: bool = True) -> Script[bool]:
        """Look once; whether the mark stands where it can. Without patience it passes what does not end."""
        ((end, oldest, own),) = yield dialect.statement("horizon", {"known": self.end})
        if patient and oldest < self._writing:
            return False
        self.mark = self.end
        if own is not None:
            self.end, self._writing = end, own
        return True
