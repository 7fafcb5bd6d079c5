"""`stats tokens` and `size`."""

import pytest

from tests.cli.calling import Call
from tests.cli.story import Story, within


@pytest.mark.req("S0-148", "S0-150")
def test_stats_tokens_shows_average_per_thread(lockstitch: Call, story: Story) -> None:
    """Pattern 4: input and output tokens of the runs of the last days, the same through Python."""
    rows = {row["thread_id"]: row for row in lockstitch("stats", "tokens", "--days", "7", "--json").json}
    assert rows == {
        str(story.chat.id): {"thread_id": str(story.chat.id), "runs": 4, "average_tokens": 6323 / 4},
        str(story.goal.id): {"thread_id": str(story.goal.id), "runs": 1, "average_tokens": 0.0},
    }
    since = story.chat.created_at
    api = within(story.url, lambda store: store.average_tokens(since))
    assert {str(usage.thread_id): usage.average_tokens for usage in api} == {
        thread: row["average_tokens"] for thread, row in rows.items()
    }
    lines = lockstitch("stats", "tokens").lines
    assert any(line.split() == [str(story.chat.id), "4", "1,580.8", "customer-42"] for line in lines)


@pytest.mark.req("S0-151")
def test_size_of_thread_shows_bytes_and_estimates(lockstitch: Call, story: Story) -> None:
    """Bytes per store of the document, and the document's estimate for the same number of runs."""
    report = lockstitch("size", "customer-42", "--json").json
    assert (report["thread"], report["threads"], report["runs"]) == (str(story.chat.id), 1, 4)
    stores = report["stores"]
    assert stores["config"]["estimate"] == [10_000, 50_000]
    assert stores["conversation"]["estimate"] == [4 * 50_000, 4 * 200_000]
    assert stores["log"]["estimate"] == [4 * 500_000, 4 * 2_000_000]
    assert all(store["bytes"] > 0 for store in stores.values())
    assert report["total"] == sum(store["bytes"] for store in stores.values()) < report["estimate"][0]
    sizes = within(story.url, lambda store: store.size(story.chat.id))
    assert stores["log"]["bytes"] == sizes["stitches"] + sizes["blobs"] + sizes["archives"]
    lines = lockstitch("size", "customer-42").lines
    assert lines[0].endswith("DOCUMENT ESTIMATE")
    assert lines[1].endswith("10.0 KB to 50.0 KB")
    assert lines[-1] == "1 thread, 4 runs."


@pytest.mark.req("S0-151")
def test_size_of_store_shows_bytes_and_estimates(lockstitch: Call, story: Story) -> None:
    """A hundred runs are estimated at 55 to 220 MB."""
    report = lockstitch("size", "--json").json
    assert (report["thread"], report["threads"], report["runs"]) == (None, 5, 6)
    assert report["disk"] > 0
    per_run = [report["estimate"][end] - report["stores"]["config"]["estimate"][end] for end in (0, 1)]
    assert [amount * 100 // report["runs"] for amount in per_run] == [55_000_000, 220_000_000]
    assert "on disk" in lockstitch("size").out
