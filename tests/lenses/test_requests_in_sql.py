"""`lockstitch_request(stitch)`: the whole request of a model call in SQL."""

from contextlib import suppress
from datetime import timedelta

import pytest

from lockstitch.errors import NotFound
from lockstitch.model import Json, codec
from lockstitch.store import Store
from tests.engine.books import MESSAGES, books
from tests.lenses.looking import look
from tests.lenses.story import Story

pytestmark = pytest.mark.anyio

REQUESTS = "SELECT id, thread_id, lockstitch_request(id) AS llm_request FROM stitches WHERE {} = 'llm_call'"


async def requests(store: Store, lens: str | None = "agentic_threads") -> dict[str, Json | None]:
    """Return the requests of all model calls as SQL shows them."""
    sql = REQUESTS.format("type" if lens is None else "stitch_type")
    answer = await store.sql(sql, lens=lens, limit=10_000, seconds=60)
    return {str(row[0]): codec.loads(row[2]) if isinstance(row[2], str) else row[2] for row in answer.rows}


async def sent(store: Store, stitch_id: str) -> Json | None:
    """Return the request of a model call as the store rebuilds it. It is None for calls outside the loop."""
    for project in ("default", "elsewhere"):
        with suppress(NotFound):
            return await store.in_project(project).request(stitch_id)
    return None


@pytest.mark.req("S3-017")
@pytest.mark.parametrize("lens", ["agentic_threads", None])
async def test_function_returns_whole_request(story_store: Store, story: Story, lens: str | None) -> None:
    shown = await requests(story_store, lens)
    whole = {stitch_id: await sent(story_store, stitch_id) for stitch_id in shown}
    assert shown == whole
    calls = [stitch for stitch in await story_store.stitches(story.shop) if stitch.type == "llm_call"]
    lengths = [len(request["messages"]) for stitch in calls if (request := shown[str(stitch.id)]) is not None]
    assert lengths == sorted(lengths)
    assert lengths[-1] > 5
    assert any(request is None for request in shown.values())
    assert any(request is not None and request.get("system") and request.get("tools") for request in shown.values())


@pytest.mark.req("S3-017", "S4-048")
async def test_request_of_member_contains_only_its_lane(store: Store) -> None:
    crew = books()
    for message in MESSAGES:
        await crew.run(message, store=store, thread="books", user_id="ada")
    shown = await requests(store)
    assert shown == {stitch_id: await sent(store, stitch_id) for stitch_id in shown}
    texts = [codec.dumps(request["messages"]).decode() for request in shown.values() if request is not None]
    assert any(" answered:" in text for text in texts)


@pytest.mark.req("S3-017")
async def test_request_contains_archived_messages(story_store: Store, story: Story, store: Store) -> None:
    await story_store.copy_to(store)
    before = await requests(store)
    assert await store.archive(store.clock.now() + timedelta(seconds=1))
    head = await store.thread(story.compacted)
    assert head.first_position > 1
    after = await requests(store)
    assert after.items() < before.items()
    calls = [stitch for stitch in await store.stitches(head, head.first_position) if stitch.type == "llm_call"]
    whole = [request for stitch in calls if (request := after[str(stitch.id)]) is not None]
    assert any(request["messages"][0]["content"] == "Look around." for request in whole)


async def test_request_of_unknown_stitch_is_null(store: Store) -> None:
    sql = "SELECT lockstitch_request('00000000-0000-0000-0000-000000000000') AS llm_request"
    assert await look(store, "agentic_threads", sql) == [{"llm_request": None}]


async def test_request_is_available_on_lens_connection(story_store: Store, backend: str) -> None:
    sql = "SELECT count(lockstitch_request(id)) FROM stitches WHERE stitch_type = 'llm_call'"
    async with story_store.lens("agentic_threads") as connection:
        cursor = await connection.execute(sql) if backend == "postgres" else connection.execute(sql)
        (count,) = await cursor.fetchone() if backend == "postgres" else cursor.fetchone()
    assert count > 5
