"""Sessions of the lens agno while they start and continue."""

from typing import Any
from uuid import UUID

import pytest

from lockstitch.model import FakeClock, codec
from lockstitch.store import Store
from tests.lenses.looking import look
from tests.lenses.story import agent, says

pytestmark = pytest.mark.anyio

SESSIONS = "SELECT * FROM agno_sessions ORDER BY created_at, session_id"


async def sessions(store: Store) -> dict[str, dict[str, Any]]:
    return {row["session_id"]: row for row in await look(store, "agno", SESSIONS)}


def run_count(row: dict[str, Any]) -> int:
    runs = row["runs"]
    return len(codec.loads(runs) if isinstance(runs, str) else runs)


@pytest.mark.req("S4-016", "S4-017", "S4-015", "X4-05", "X4-06")
async def test_session_starts_with_first_message_and_continues(timed_store: Store, clock: FakeClock) -> None:
    helper = agent("helper", [says("One.")], [says("Two.")], [says("Three.")])
    assert await sessions(timed_store) == {}
    await helper.run("First?", store=timed_store, thread="chat")
    first = (await sessions(timed_store))["chat"]
    assert run_count(first) == 1
    clock.advance(60)
    await helper.run("Second?", store=timed_store, thread="chat")
    second = (await sessions(timed_store))["chat"]
    assert run_count(second) == 2
    assert second["created_at"] == first["created_at"]
    assert second["updated_at"] >= first["updated_at"] + 60
    await helper.run("Elsewhere?", store=timed_store)
    (session_id,) = (await sessions(timed_store)).keys() - {"chat"}
    assert UUID(session_id), "its own id if no key was set"
    # Both columns are whole seconds. Runs of one second are in the order of their start.
    clock.advance(0.75)
    third = agent("helper", [says("Four.")], [says("Five.")], [says("Six.")])
    for question in ("Fourth?", "Fifth?", "Sixth?"):
        await third.run(question, store=timed_store, thread="quick")
    quick = (await sessions(timed_store))["quick"]
    assert (quick["created_at"], quick["updated_at"]) == (int(clock.now().timestamp()),) * 2
    runs = codec.loads(quick["runs"]) if isinstance(quick["runs"], str) else quick["runs"]
    assert len({run["created_at"] for run in runs}) == 1
    assert [run["content"] for run in runs] == ["Four.", "Five.", "Six."]
