"""`search`."""

from lockstitch.store import Store
from lockstitch.store.reports.matches import snippet
from tests.cli.calling import Call
from tests.cli.story import Story, within
from tests.samples import turn


def test_search_finds_titles_inputs_and_answers(lockstitch: Call, story: Story) -> None:
    rows = lockstitch("search", "Graz", "--json").json
    assert {(row["thread_id"], row["position"]) for row in rows} == {(str(story.chat.id), place) for place in (2, 4, 6)}
    assert {row["snippet"] for row in rows} == {f"Parcel {number} is in Graz." for number in range(3)}
    assert all(row["run_id"] for row in rows)
    title = lockstitch("search", "lost", "--json").json
    assert [(row["position"], row["snippet"], row["run_id"]) for row in title] == [(None, "The lost parcel", None)]
    assert lockstitch("search", "Nobody", "--json").json == [], "the other project's"
    assert len(lockstitch("search", "Graz", "--limit", "1", "--json").json) == 1


def test_search_requires_all_words(lockstitch: Call, story: Story) -> None:
    assert [row["position"] for row in lockstitch("search", "graz", "2", "--json").json] == [6]
    result = lockstitch("search", "graz unicorn")
    assert (result.code, result.out, result.err) == (0, "", "No matches.\n")


def test_search_prints_thread_position_and_snippet(lockstitch: Call, story: Story) -> None:
    lines = lockstitch("search", "graz 2").lines
    assert lines == [f"{story.chat.id}  position 6  customer-42", "    Parcel 2 is in Graz."]


def test_search_shows_text_around_word(lockstitch: Call, store_url: str) -> None:
    async def write(store: Store) -> None:
        await turn(store, await store.create(), "q", f"{'before ' * 500} needle {'after ' * 500}")

    within(store_url, write)
    [row] = lockstitch("search", "needle", "--json").json
    assert row["snippet"].startswith("…before")
    assert row["snippet"].endswith("…")
    assert " needle after" in row["snippet"]
    assert len(row["snippet"]) < 250


def test_snippet_accepts_any_text() -> None:
    assert snippet("", "x") == ""
    assert snippet("no such word", "x") == "no such word"
    assert snippet("Größe (und) [mehr]", "(und)") == "Größe (und) [mehr]"
    assert snippet("a" * 1000, "b") == "a" * 200 + "…"
