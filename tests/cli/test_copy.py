"""`copy`."""

from pathlib import Path

from tests.cli.calling import Call
from tests.cli.story import Story


def test_second_copy_copies_nothing(call: Call, story: Story, tmp_path: Path) -> None:
    target = f"sqlite:///{tmp_path / 'target.db'}"
    first = call("copy", story.url, target, "--json").json
    assert (first["threads"], first["verified"], first["stitches"]) == (5, 5, 18)
    assert first["copied"] == first["stitches"] + first["records"] > 18
    second = call("copy", story.url, target, "--json").json
    assert second == {"copied": 0, "threads": 5, "stitches": 0, "records": 0, "verified": 5}
    result = call("copy", story.url, target)
    assert result.lines == ["Copied 0 stitches and 0 other records; verified 5 of 5 threads."]
    assert result.err == "", "no bar without a terminal"
    for command in (
        ["threads", "--all-projects"],
        ["history", "customer-42"],
        ["log", str(story.charge.id)],
        ["errors"],
    ):
        here, copied = (call(*command, "--json", "--store", url).json for url in (story.url, target))
        assert _without_log_ids(here) == _without_log_ids(copied)


def test_copy_restores_into_every_backend(call: Call, store_url: str, tmp_path: Path) -> None:
    from tests.cli.story import tell

    source = f"sqlite:///{tmp_path / 'source.db'}"
    tell(source)
    assert call("copy", source, store_url, "--json").json["verified"] == 5
    assert call("doctor", "--verify", "--json", "--store", store_url).json["ok"]


def test_copy_of_tree_copies_only_that_tree(call: Call, story: Story, tmp_path: Path) -> None:
    target = f"file:///{tmp_path / 'target'}"
    copied = call("copy", story.url, target, "--tree", str(story.goal.id), "--json").json
    assert (copied["threads"], copied["stitches"]) == (3, 2)
    assert len(call("threads", "--store", target, "--json").json) == 3


def test_copy_fails_if_source_is_missing(call: Call, tmp_path: Path) -> None:
    target = tmp_path / "target.db"
    result = call("copy", f"sqlite:///{tmp_path / 'none.db'}", f"sqlite:///{target}")
    assert (result.code, target.exists()) == (5, False)
    result = call("copy", "nonsense", f"sqlite:///{target}")
    assert (result.code, target.exists()) == (2, False)


def test_copy_fails_if_tree_is_missing(call: Call, story: Story, tmp_path: Path) -> None:
    target = tmp_path / "target.db"
    result = call("copy", story.url, f"sqlite:///{target}", "--tree", "nobody")
    assert (result.code, target.exists()) == (3, False)


def _without_log_ids(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    return [{name: value for name, value in row.items() if name != "log_id"} for row in rows]
