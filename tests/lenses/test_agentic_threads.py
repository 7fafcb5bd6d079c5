"""The lens agentic_threads: threads with goals, and their linked stitches."""

from datetime import timedelta

import pytest

from lockstitch.model import CHAIN_TYPES, Entry, Json
from lockstitch.store import Store
from tests.lenses.looking import look
from tests.lenses.story import Story, agent, says

pytestmark = pytest.mark.anyio

THREADS = "SELECT * FROM threads"
STITCHES = "SELECT * FROM stitches"


async def threads(store: Store) -> dict[str, Json]:
    return {row["id"]: row for row in await look(store, "agentic_threads", THREADS)}


async def stitches(store: Store) -> dict[str, Json]:
    return {row["id"]: row for row in await look(store, "agentic_threads", STITCHES)}


@pytest.mark.req("S3-001", "S3-002", "S3-011", "S3-008")
async def test_threads_show_parents_and_children(story_store: Store, story: Story) -> None:
    rows, list_ = await threads(story_store), await stitches(story_store)
    boss = rows[str(story.boss.id)]
    assert boss["branching_stitch_id"] is boss["parent_thread_id"] is None
    for scout in story.scouts:
        row = rows[str(scout.id)]
        assert row["parent_thread_id"] == boss["id"]
        asking = list_[row["branching_stitch_id"]]
        assert (asking["thread_id"], asking["stitch_type"]) == (boss["id"], "llm_call")
        assert row["updated_at"] >= row["created_at"]
    forked = rows[str(story.forked.id)]
    assert forked["branching_stitch_id"] is forked["parent_thread_id"] is None


@pytest.mark.req("S3-003", "S3-004", "S3-005", "S3-006", "S3-012")
async def test_threads_show_goals_tasks_and_results(story_store: Store, story: Story) -> None:
    rows = await threads(story_store)
    boss = rows[str(story.boss.id)]
    assert (boss["goal"], boss["status"], boss["result"]["summary"]) == ("Find the parcel", "completed", "All looked.")
    assert [(task["description"], task["status"]) for task in boss["tasks"]] == [
        ("Send them out", "completed"),
        ("Sum up", "pending"),
    ]
    down, up = (rows[str(scout.id)] for scout in story.scouts)
    assert (down["goal"], down["status"]) == ("Look down", "completed")
    assert up["status"] == "failed"
    assert up["result"] is not None
    cancelled = rows[str(story.cancelled.id)]
    assert (cancelled["status"], cancelled["result"]["cancelled"]) == ("failed", True)
    assert rows[str(story.shop.id)]["goal"] == "What do tea and coffee cost?"
    assert (rows[str(story.shop.id)]["status"], rows[str(story.shop.id)]["result"]) == ("waiting", None)
    assert {row["status"] for row in rows.values()} <= {"pending", "running", "waiting", "completed", "failed"}
    kinds = {str(head.id): head.kind for head in await story_store.threads(limit=None, all_projects=True)}
    for row in rows.values():
        if kinds[row["id"]] != "chat":
            assert (row["result"] is not None) == (row["status"] in ("completed", "failed"))


async def test_goal_of_chat_is_truncated_first_input(store: Store) -> None:
    await agent("helper", [says("Yes.")], [says("Again.")]).run("x" * 300, store=store, thread="long")
    empty = await store.create(key="empty")
    rows = await threads(store)
    assert rows[str((await store.thread("long")).id)]["goal"] == "x" * 200
    assert rows[str(empty.id)]["goal"] == ""


@pytest.mark.req("S3-007", "S3-041")
async def test_unread_results_of_children_are_shown(store: Store) -> None:
    """A held parent has them in its inbox. The lens shows them from there."""
    parent = await store.create(kind="goal", goal="Wait", key="parent")
    child = await store.create(kind="task", goal="Help", parent_id=parent.id)
    held = await store.claim("parent")
    entry = Entry(
        type="thread_result",
        child_id=child.id,
        status="completed",
        message={"role": "user", "content": [{"type": "text", "text": "done"}]},
        data={"summary": "Helped.", "data": {"found": 3}},
    )
    await store.deliver(held.id, entry, kind="children", sender=str(child.id))
    row = (await threads(store))[str(parent.id)]
    assert row["pending_child_results"] == [
        {"child_thread_id": str(child.id), "status": "completed", "summary": "Helped.", "result": {"found": 3}}
    ]
    assert (await threads(store))[str(child.id)]["pending_child_results"] == []


@pytest.mark.req("S3-014", "S3-015", "S3-016", "S3-020", "S3-021")
async def test_stitches_of_thread_are_linked(story_store: Store, story: Story) -> None:
    rows = await stitches(story_store)
    llm = {"llm_request", "llm_response"}
    tool = {"tool_name", "tool_input", "tool_output"}
    child = {"child_thread_id", "thread_result_summary"}
    expected_links = {"llm_call": llm, "tool_call": tool, "thread_result": child}
    for row in rows.values():
        filled = {name for name in llm | tool | child if row[name] is not None}
        assert filled <= expected_links[row["stitch_type"]], row
        if row["stitch_type"] != "llm_call":
            assert filled == expected_links[row["stitch_type"]]
        if row["previous_stitch_id"] is not None:
            assert rows[row["previous_stitch_id"]]["thread_id"] == row["thread_id"]
    for head in (story.shop, story.boss, story.everything):
        stored = {str(stitch.id): stitch for stitch in await story_store.stitches(head)}
        for row in (row for row in rows.values() if row["thread_id"] == str(head.id)):
            previous = stored[row["id"]].previous_id
            assert row["previous_stitch_id"] == (str(previous) if previous else None)
            assert row["created_at"] == stored[row["id"]].as_json()["at"]


@pytest.mark.req("S3-017", "S3-018")
async def test_requests_and_responses_are_shown(story_store: Store, story: Story) -> None:
    rows = [row for row in (await stitches(story_store)).values() if row["thread_id"] == str(story.shop.id)]
    calls = [row for row in rows if row["stitch_type"] == "llm_call" and row["llm_request"]["messages"]["sha256"]]
    assert len(calls) == 5
    for row in calls:
        request = await story_store.request(row["id"])
        shown_request = row["llm_request"]
        stitch = await story_store.stitch(row["id"])
        assert shown_request["model"] == "scripted"
        texts = ("system", "tools", "messages")
        assert shown_request["settings"] == {name: value for name, value in request.items() if name not in texts}
        assert "0.5" in str(shown_request["settings"])
        assert shown_request["messages"] == {"to": stitch.position - 1, "sha256": stitch.data["request"]["sha256"]}
        assert shown_request["tools_hash"] is not None
        assert row["llm_response"] == stitch.message
    (title,) = [row for row in rows if row["stitch_type"] == "llm_call" and row not in calls]
    assert title["llm_response"]["content"] == [{"type": "text", "text": "Prices of drinks"}]
    tools = [row for row in rows if row["stitch_type"] == "tool_call"]
    assert [(row["tool_name"], row["tool_input"]) for row in tools] == [
        ("price", {"of": "tea"}),
        ("price", {"of": "coffee"}),
        ("broken", {}),
        ("draw", {}),
    ]
    assert [row["tool_output"].get("is_error", False) for row in tools] == [False, False, True, False]


@pytest.mark.req("S3-019", "S3-030")
async def test_result_of_deleted_child_is_still_shown(story_store: Store, story: Story, store: Store) -> None:
    await story_store.copy_to(store)
    boss = [row for row in (await stitches(store)).values() if row["thread_id"] == str(story.boss.id)]
    results = {row["child_thread_id"]: row["thread_result_summary"] for row in boss if row["child_thread_id"]}
    down, up = story.scouts
    assert results[str(down.id)] == "Nothing down there."
    assert results.keys() == {str(down.id), str(up.id)}
    await store.delete(down.id)
    after = [row for row in (await stitches(store)).values() if row["thread_id"] == str(story.boss.id)]
    (remaining,) = [row for row in after if row["stitch_type"] == "thread_result" and row["child_thread_id"] is None]
    assert remaining["thread_result_summary"] == "Nothing down there."
    await store.delete(story.boss.id)
    assert str(up.id) not in await threads(store)


async def test_archived_stitch_is_not_a_predecessor(story_store: Store, story: Story, store: Store) -> None:
    """So a list that starts in an archive still has a first stitch here, and the documented query finds it."""
    await story_store.copy_to(store)
    assert await store.archive(store.clock.now() + timedelta(seconds=1))
    head = await store.thread(story.compacted)
    assert head.first_position > 1
    rows = [row for row in (await stitches(store)).values() if row["thread_id"] == str(head.id)]
    following = {row["previous_stitch_id"]: row["id"] for row in rows}
    order, last = [], following[None]
    while last:
        order.append(last)
        last = following.get(last)
    remaining = await store.stitches(head, head.first_position)
    assert order == [str(stitch.id) for stitch in remaining if stitch.type in CHAIN_TYPES]
