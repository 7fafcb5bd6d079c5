"""Adapters of other frameworks refuse arguments that are no open store."""

from pathlib import Path
from typing import Any

import pytest

from lockstitch import Refused, sync
from lockstitch.integrations.claude_agents import LockstitchSessionStore
from lockstitch.integrations.langgraph import LockstitchSaver, LockstitchStore
from lockstitch.integrations.openai_agents import LockstitchSession
from lockstitch.integrations.pydantic_ai import LockstitchConversationStore

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    "create",
    [
        LockstitchConversationStore,
        LockstitchSaver,
        lambda store: LockstitchSession("ada", store=store),
        LockstitchSessionStore,
        LockstitchStore,
    ],
)
async def test_url_and_store_of_the_blocking_api_are_refused(create: Any, tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"of the type str\. Pass the store of `async with open_store\(url\) as store`\."):
        create("sqlite:///lockstitch.db")
    with (
        sync.open_store(f"sqlite:///{tmp_path}/a.db") as store,
        pytest.raises(Refused, match=r"type .*SyncStore\. Pass"),
    ):
        create(store)
