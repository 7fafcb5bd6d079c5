"""The lens agentic_threads: threads with goals, and their linked stitches."""

from datetime import timedelta

import pytest

from lockstitch.model import CHAIN_TYPES, Entry, Json, codec, context
from lockstitch.model.message import user
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


@pytest.mark.req("S3-001", "S3-002", "S3-011", "S3-008", "X3-01")
async def test_threads_show_parents_and_children(story_store: Store, story: Story) -> None:
    rows, list_ = await threads(story_store), await stitches(story_store)
    boss = rows[str(story.boss.id)]
    assert boss["branching_stitch_id"] is boss["parent_thread_id"] is None
    for scout in story.scouts:
        row = rows[str(scout.id)]
        assert row["parent_thread_id"] == boss["id"]
        asking = list_[row["branching_stitch_id"]]
        assert (asking["thread_id"], asking["stitch_type"]) == (boss["id"], "llm_call")
        goals = [block["input"]["goal"] for block in asking["llm_response"]["content"] if block["type"] == "tool_use"]
        assert scout.goal in goals, "the call that requested it"
    forked = rows[str(story.forked.id)]
    assert forked["branching_stitch_id"] is forked["parent_thread_id"] is None
    stored = {str(head.id): head.as_json() for head in await story_store.threads(limit=None, all_projects=True)}
    assert rows.keys() == stored.keys()
    for id, row in rows.items():
        assert (row["created_at"], row["updated_at"]) == (stored[id]["created_at"], stored[id]["updated_at"])


@pytest.mark.req("S3-003", "S3-004", "S3-005", "S3-006", "S3-012")
async def test_threads_show_goals_tasks_and_results(story_store: Store, story: Story) -> None:
    rows = await threads(story_store)
    boss = rows[str(story.boss.id)]
    assert (boss["goal"], boss["status"], boss["result"]["summary"]) == ("Find the parcel", "completed", "All looked.")
    assert [(task["description"], task["status"]) for task in boss["tasks"]] == [
        ("Send them out", "completed"),
        ("Sum up", "pending"),
    ]
    assert boss["tasks"] == story.boss.tasks
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


@pytest.mark.req("S3-003", "S3-004", "X3-10")
async def test_goal_of_chat_is_truncated_first_input(store: Store) -> None:
    await agent("helper", [says("Yes.")], [says("Again.")]).run("x" * 300, store=store, thread="long")
    tasks = [{"id": 7, "description": "d", "status": "done", "colour": {"any": ["value"]}}, {"status": "half done"}]
    empty = await store.create(key="empty", tasks=tasks)
    rows = await threads(store)
    assert rows[str(empty.id)]["tasks"] == tasks, "with unknown keys and any status"
    assert rows[str((await store.thread("long")).id)]["goal"] == "x" * 200
    assert rows[str(empty.id)]["goal"] == ""


@pytest.mark.req("S3-005", "S3-007", "S3-041", "X3-07")
async def test_unread_results_of_children_are_shown(store: Store) -> None:
    """A held parent has them in its inbox. The lens shows them from there."""
    parent = await store.create(kind="goal", goal="Wait", key="parent")
    children = [await store.create(kind="task", goal="Help", parent_id=parent.id) for _ in range(2)]
    assert {row["status"] for row in (await threads(store)).values()} == {"pending"}
    held = await store.claim("parent")
    order = children[::-1]
    for child in order:
        entry = Entry(
            type="thread_result",
            child_id=child.id,
            status="completed",
            message={"role": "user", "content": [{"type": "text", "text": "done"}]},
            data={"summary": "Helped.", "data": {"found": 3}},
        )
        await store.deliver(held.id, entry, kind="children", sender=str(child.id))
    row = (await threads(store))[str(parent.id)]
    assert row["status"] == "running", "a thread with a stitch in progress"
    assert row["pending_child_results"] == [
        {"child_thread_id": str(child.id), "status": "completed", "summary": "Helped.", "result": {"found": 3}}
        for child in order
    ], "in the order of arrival"
    assert await stitches(store) == {}
    assert (await threads(store))[str(children[0].id)]["pending_child_results"] == []


@pytest.mark.req("S3-014", "S3-015", "S3-016", "S3-020", "S3-021")
async def test_stitches_of_thread_are_linked(story_store: Store, story: Story) -> None:
    rows = await stitches(story_store)
    assert {row["thread_id"] for row in rows.values()} <= (await threads(story_store)).keys()
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
        assert shown_request["messages"] == {"to": stitch.position - 1, "sha256": codec.digest(request)}
        assert shown_request["tools_hash"] == codec.digest(request["tools"])
        assert shown_request.keys() == {"model", "settings", "tools_hash", "messages"}
        assert row["llm_response"] == stitch.message
        before = await story_store.stitches(story.shop, 1, shown_request["messages"]["to"])
        assert request["messages"] == context(before), "the messages up to this position"
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


@pytest.mark.req("S3-058", "S3-046")
async def test_request_can_be_rebuilt_from_stitches_alone(story_store: Store, story: Story) -> None:
    """From rows of the lens: responses, then the results of their calls in one message, then reports of children."""
    goals, rows = await threads(story_store), await stitches(story_store)
    for head in (story.boss, story.scouts[0]):
        following = {row["previous_stitch_id"]: row for row in rows.values() if row["thread_id"] == str(head.id)}
        messages, row = [user(goals[str(head.id)]["goal"])], following[None]
        requests = 0
        while row is not None:
            if row["stitch_type"] == "llm_call":
                assert (await story_store.request(row["id"]))["messages"] == messages, (
                    "the digest of the sent bytes fits"
                )
                requests += 1
                messages.append(row["llm_response"])
                calls = [block["id"] for block in messages[-1]["content"] if block["type"] == "tool_use"]
                if calls:
                    messages.append(user([None] * len(calls)))
            elif row["stitch_type"] == "tool_call":
                place = calls.index(row["tool_output"]["tool_use_id"])
                assert messages[-1]["content"][place] is None, "one result per call"
                messages[-1]["content"][place] = row["tool_output"]
            else:
                child = goals[row["child_thread_id"]]
                text = (
                    f"[thread_result thread={child['id']} status={child['status']}] goal: {child['goal']}"
                    f"\n summary: {row['thread_result_summary']}"
                )
                messages.append(user([{"type": "text", "text": text}]))
            row = following.get(row["id"])
        assert requests == (3 if head is story.boss else 2)
        assert messages == await story_store.context(head)


@pytest.mark.req("S3-019", "S3-030", "X3-11")
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


@pytest.mark.req("S3-002")
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
    shown = await stitches(store)
    for row in (await threads(store)).values():
        assert row["branching_stitch_id"] is None or row["branching_stitch_id"] in shown
    remaining = await store.stitches(head, head.first_position)
    assert order == [str(stitch.id) for stitch in remaining if stitch.type in CHAIN_TYPES]
