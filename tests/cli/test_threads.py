"""`threads`."""

from datetime import UTC, datetime, timedelta

import pytest

from lockstitch.cli.render.threads import explain
from lockstitch.model import DepsWait
from lockstitch.store import Store
from tests.cli.calling import Call
from tests.cli.story import Story, within
from tests.cli.test_invalid_arguments import check
from tests.waits import waiting

ROW = (
    *("id", "key", "project", "kind", "status", "waiting_for", "agent", "version", "title", "goal", "user_id"),
    *("parent_id", "position", "runs", "usage"),
    *("total_cost", "error", "scores", "created_at", "updated_at"),
)


def ids(rows: list[dict[str, object]]) -> list[object]:
    return [row["id"] for row in rows]


def test_rows_have_fixed_keys_and_sums_of_own_runs(lockstitch: Call, story: Story) -> None:
    rows = lockstitch("threads", "--json").json
    assert all(tuple(row) == ROW for row in rows)
    by_id = {row["id"]: row for row in rows}
    assert len(rows) == 4, "the other project's is not listed"
    chat = by_id[str(story.chat.id)]
    assert (chat["key"], chat["agent"], chat["version"], chat["status"]) == ("customer-42", "helper", 3, "waiting")
    assert [entry["kind"] for entry in chat["waiting_for"]] == ["input"]
    assert (chat["runs"], chat["position"], chat["total_cost"], chat["error"]) == (4, 13, 0.75, None)
    assert chat["usage"] == {
        "input_tokens": 6003,
        "output_tokens": 320,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
    }
    goal = by_id[str(story.goal.id)]
    assert (goal["status"], goal["error"], goal["total_cost"]) == ("failed", "the model refused", None)
    assert chat["created_at"].endswith("Z")
    assert (chat["title"], chat["user_id"], chat["goal"], chat["parent_id"]) == (story.chat.title, "ada", None, None)
    child = by_id[str(story.children[0].id)]
    assert (child["goal"], child["parent_id"]) == ("Look in the north", goal["id"])


def test_threads_are_newest_first_and_paged(lockstitch: Call, story: Story) -> None:
    every = ids(lockstitch("threads", "--json").json)
    api = within(story.url, lambda store: store.threads())
    assert every == [str(thread.id) for thread in api]
    first = ids(lockstitch("threads", "--limit", "2", "--json").json)
    second = ids(lockstitch("threads", "--limit", "2", "--after", str(first[-1]), "--json").json)
    assert first + second == every


def test_threads_can_be_filtered(lockstitch: Call, story: Story) -> None:
    def listed_ids(*options: str) -> set[object]:
        return set(ids(lockstitch("threads", "--json", *options).json))

    chat, goal, children = str(story.chat.id), str(story.goal.id), {str(child.id) for child in story.children}
    assert listed_ids("--status", "failed") == {goal}
    assert listed_ids("--kind", "task") == children
    assert listed_ids("--user", "ada") == {chat}
    assert listed_ids("--agent", "scout", "--status", "pending") == children
    assert listed_ids("--since", "1d") == {chat, goal, *children}
    assert listed_ids("--since", "2999-01-01") == set()
    assert listed_ids("--project", "elsewhere") == {str(story.elsewhere.id)}
    assert listed_ids("--all-projects") == {chat, goal, *children, str(story.elsewhere.id)}


@pytest.mark.req("S3-011", "S3-069")
def test_tree_shows_whole_tree_below_root(lockstitch: Call, story: Story) -> None:
    goal, children = str(story.goal.id), [str(child.id) for child in story.children]
    (row,) = lockstitch("threads", "--tree", "--agent", "scout", "--json").json
    assert tuple(row) == tuple(row["children"][0]) == (*ROW, "tasks", "children")
    assert (row["id"], row["parent_id"], row["goal"]) == (goal, None, "Find every lost parcel")
    assert ids(row["children"]) == children
    assert [child["parent_id"] for child in row["children"]] == [goal, goal]
    lines = lockstitch("threads", "--tree", "--agent", "scout").lines
    assert lines[0].split()[:6] == ["THREAD", "STATUS", "TASKS", "STITCHES", "CHILDREN", "COST"]
    assert lines[1].startswith(f"{goal}     failed")
    assert lines[1].split()[2:4] == ["2", "2"], "two stitches, two children"
    assert lines[2].startswith(f"├─ {children[0]}  pending")
    assert lines[3].startswith(f"└─ {children[1]}  pending")


@pytest.mark.req("S3-069")
def test_tree_lists_roots_by_recency_and_status(lockstitch: Call, story: Story) -> None:
    goal, chat = str(story.goal.id), str(story.chat.id)
    assert ids(lockstitch("threads", "--tree", "--json").json) == [goal, chat]
    assert ids(lockstitch("threads", "--tree", "--limit", "1", "--json").json) == [goal], "children are not counted"
    assert ids(lockstitch("threads", "--tree", "--limit", "1", "--after", goal, "--json").json) == [chat]
    assert ids(lockstitch("threads", "--tree", "--status", "waiting", "--json").json) == [chat]
    (only,) = lockstitch("threads", str(story.children[1].id), "--tree", "--json").json
    assert (only["id"], only["children"]) == (str(story.children[1].id), [])
    assert lockstitch("threads", "customer-42").code == 2, "THREAD needs --tree"
    assert lockstitch("threads", "--tree", "nobody").code == 3
    assert lockstitch("threads", "--tree", "--status", "cancelled").err == "No threads match.\n"


def test_tree_shows_tasks_and_waits(lockstitch: Call, store_url: str) -> None:
    async def tell(store: Store) -> None:
        now = store.clock.now()
        since = now - timedelta(minutes=5)
        done = [{"description": "a", "status": "completed"}, {"description": "b"}]
        waits = [
            waiting("approval", since, id="c1", name="pay"),
            waiting("children", since, ids=["x", "y"], mode="all"),
            waiting("timer", since, until=now + timedelta(hours=1)),
            waiting("retry", since, id="c2", name="nail", reason="no tool\x1b[31m nail"),
        ]
        await store.create(kind="goal", goal="g", tasks=done, status="waiting", waiting_for=waits)

    within(store_url, tell)
    line = lockstitch("threads", "--tree").lines[1]
    assert " 1/2 " in line
    assert "approval of pay since 5m, 2 children since 5m, timer 20" in line
    assert line.endswith("no tool\N{SYMBOL FOR ESCAPE}[31m nail since 5m")


def test_threads_prints_complete_ids_and_names(lockstitch: Call, story: Story) -> None:
    result = lockstitch("threads")
    assert result.lines[0].split() == ["THREAD", "STATUS", "RUNS", "COST", "AGE", "AGENT", "NAME", "REASON"]
    failed = lockstitch("threads", "--status", "failed").lines[1]
    assert failed.endswith(f"{story.goal.goal}  the model refused")
    assert "REASON" not in lockstitch("threads", "--status", "waiting").out
    line = next(line for line in result.lines if line.startswith(str(story.chat.id)))
    assert line.split()[1:4] == ["waiting", "4", "$0.7500"]
    assert line.endswith("helper v3  customer-42")
    assert "\x1b" not in result.out
    assert "may be more" in lockstitch("threads", "--limit", "1").err


def test_empty_store_is_no_error(lockstitch: Call) -> None:
    assert lockstitch("migrate").code == 0
    result = lockstitch("threads")
    assert (result.code, result.out, result.err) == (0, "", "No threads match.\n")
    assert lockstitch("threads", "--json").json == []


def test_threads_rejects_invalid_options(lockstitch: Call, story: Story) -> None:
    for options in (
        ["--status", "asleep"],
        ["--kind", "cat"],
        ["--since", "yesterday"],
        ["--since", "9999999999999999d"],
        ["--limit", "0"],
    ):
        check(lockstitch("threads", *options), 2)


def test_parked_run_shows_its_reason(lockstitch: Call, store_url: str) -> None:
    async def tell(store: Store) -> None:
        wait = DepsWait(store.clock.now()).as_json()
        await store.create(key="parked", kind="goal", goal="g", status="waiting", waiting_for=[wait])

    within(store_url, tell)
    reason = "This run was started with deps that only its process has."
    assert reason in lockstitch("show", "parked").out
    assert reason in lockstitch("threads", "--tree").out
    text = explain("parked", [DepsWait(datetime.now(UTC))])
    assert reason in text
    assert "deps factory: `lockstitch resume parked` checks again" in text
