"""Count the commits of a store."""

from typing import Any

import pytest

from lockstitch.store import Store, Transaction


class Counting:
    """Counts the commits of a store from now on."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.commits = 0
        commit = store.commit

        async def counted(transaction: Transaction) -> Any:
            self.commits += 1
            return await commit(transaction)

        monkeypatch.setattr(store, "commit", counted)
