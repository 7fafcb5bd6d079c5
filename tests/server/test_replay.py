"""`EventReplay` of a team returns the events of its executor."""

from collections.abc import AsyncIterator

import pytest

from lockstitch.engine.replay import EventReplay
from lockstitch.server.streams.thread import StreamItem
from lockstitch.store import Store
from tests.engine.books import ANSWERS, MESSAGES, books

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["sqlite"])
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


async def test_replayed_events_of_a_team_equal_the_live_events(store: Store) -> None:
    crew = books()
    lived = [
        event for message in MESSAGES async for event in crew.stream(message, store=store, thread="books") if event.data
    ]

    async def replayed() -> AsyncIterator[StreamItem]:
        for stitch in await store.stitches("books"):
            yield StreamItem("stitch", stitch.as_json(), stitch)

    retold = [event async for event in EventReplay(store, await store.thread("books")).events(replayed()) if event]
    answer = "".join(event.data["text"] for event in retold if event.type == "text" and not event.member)
    assert answer == "".join(ANSWERS)
    types = ("started", "member_started", "member_finished", "tool_result", "finished")
    marks = [
        [(event.type, event.agent, event.member) for event in received if event.type in types]
        for received in (lived, retold)
    ]
    assert marks[0] == marks[1]
