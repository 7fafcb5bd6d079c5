"""`EventReplay` of a team returns the events of its executor."""

from collections.abc import AsyncIterator

import pytest

from lockstitch.server.streams.replay import EventReplay
from lockstitch.server.streams.thread import StreamItem
from lockstitch.store import Store
from tests.engine.books import ANSWERS, MESSAGES, books

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["sqlite"])
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


async def test_replayed_events_of_a_team_equal_the_live_events(store: Store) -> None:
    crew = books()
    lived = [event for said in MESSAGES async for event in crew.stream(said, store=store, thread="books") if event.data]

    async def told() -> AsyncIterator[StreamItem]:
        for stitch in await store.stitches("books"):
            yield StreamItem("stitch", stitch.as_json(), stitch)

    retold = [event async for event in EventReplay(store, await store.thread("books")).events(told()) if event]
    answer = "".join(event.data["text"] for event in retold if event.type == "text" and not event.member)
    assert answer == "".join(ANSWERS)
    shown = ("started", "member_started", "member_finished", "tool_result", "finished")
    marks = [[(one.type, one.agent, one.member) for one in told if one.type in shown] for told in (lived, retold)]
    assert marks[0] == marks[1]
