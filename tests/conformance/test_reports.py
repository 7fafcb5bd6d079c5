"""Reports: count, average_tokens, search and size."""

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from lockstitch.backend import Find, FullBackend, Where
from lockstitch.errors import Refused
from lockstitch.model import Blob, BlobUse, Entry, FakeClock, Memory, Stitch, Thread
from lockstitch.store import Store, open_store
from lockstitch.store.reports.matches import describe_hits, highlighted
from tests.conformance.contract import a_run, change, commit, created, grown, stitched
from tests.conformance.test_delete import a_blob
from tests.samples import answered, asked, begin_turn, finish_turn, result, said, turn

pytestmark = pytest.mark.anyio


async def places(backend: FullBackend, text: str) -> set[int | None]:
    return {hit.position for hit in await backend.search("default", text, 100)}


async def test_count_ignores_order_cursor_and_offset(full_backend: FullBackend) -> None:
    for number in range(5):
        await created(full_backend, priority=number)
    few = (Where("priority", ">=", 2),)
    assert await full_backend.count(Find(Thread)) == 5
    assert await full_backend.count(Find(Thread, few)) == 3
    assert await full_backend.count(Find(Thread, few, ("-priority",), (3,), offset=2)) == 3
    assert await full_backend.count(Find(Thread, few, limit=2)) == 2
    assert await full_backend.count(Find(Memory)) == 0


async def test_average_tokens_counts_turns_since_time(timed_store: Store, clock: FakeClock) -> None:
    first, second = await timed_store.create(), await timed_store.create()
    elsewhere = await timed_store.in_project("elsewhere").create()
    first = await turn(timed_store, first, "old", "old", input_tokens=10**6, output_tokens=0)
    clock.advance(60)
    since = clock.now() - timedelta(seconds=30)
    for tokens in (100, 200):
        first = await turn(timed_store, first, "q", "a", input_tokens=tokens, output_tokens=10)
    await turn(timed_store, elsewhere, "q", "a", input_tokens=1)
    started, run = await begin_turn(timed_store, second, "q")
    member = timed_store.new_run(started.head, parent_run_id=run.id).changed(input_tokens=999)
    head = (await timed_store.append(started.head, [said("m", run_id=member.id)], new_runs=[member])).head
    await finish_turn(timed_store, head, run, "a", input_tokens=7, output_tokens=0)
    report = await timed_store.average_tokens(since)
    assert sorted(report) == sorted([(first.id, 2, 160.0), (second.id, 1, 7.0)]), "nested runs do not count"
    assert await timed_store.average_tokens(clock.now()) == []


async def test_search_finds_every_word_in_titles_inputs_and_answers(store: Store) -> None:
    pirate = await store.create(title="Of pirates and treasure")
    pirate = (await store.append(pirate, [said("Where is the treasure map?"), answered("In the chest.")])).head
    cook = (await store.append(await store.create(), [said("A recipe for treasure cake, please")])).head
    hits = await store.search("treasure")
    assert {(hit.thread_id, hit.position) for hit in hits} == {(pirate.id, None), (pirate.id, 1), (cook.id, 1)}
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True), "best first"
    assert [(hit.thread_id, hit.position) for hit in await store.search("TREASURE Map")] == [(pirate.id, 1)]
    assert [(hit.thread_id, hit.position) for hit in await store.search("chest")] == [(pirate.id, 2)]
    assert await store.search("treasure unicorn") == []
    assert len(await store.search("treasure", limit=2)) == 2


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
async def test_search_ranks_newest_matches_of_the_project(
    backend: str, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The best match is the oldest one. Matches of another project do not count."""
    monkeypatch.setattr(f"lockstitch.backends.{backend}.query.RANKED", 3)
    async with open_store(store_url) as store:
        texts = ("tea tea tea", *["tea and much else"] * 3)
        heads = [(await store.append(await store.create(), [said(text)])).head for text in texts]
        elsewhere = store.in_project("elsewhere")
        for _ in range(5):
            await elsewhere.append(await elsewhere.create(), [said("tea")])
        assert {hit.thread_id for hit in await store.search("tea")} == {head.id for head in heads[1:]}
        assert len(await store.search("tea", limit=2)) == 2


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
async def test_search_without_waiting_leaves_out_unindexed_stitches(
    backend: str, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The background task indexes the rest. After it, no search writes or waits."""
    name = "SMALL_BATCH" if backend == "sqlite" else "_RECENT"
    monkeypatch.setattr(f"lockstitch.backends.{backend}.query.{name}", 2)
    async with open_store(store_url) as store:
        heads = [(await store.append(await store.create(), [said("tea")])).head for _ in range(5)]
        assert len(await store.search("tea", complete=False)) == 2
        assert await store.unindexed() == 3
        while await store.prepare_reports():
            pass
        assert await store.unindexed() == 0
        assert {hit.thread_id for hit in await store.search("tea", complete=False)} == {head.id for head in heads}


async def test_search_finds_calls_results_and_errors(store: Store) -> None:
    """Other data, other projects and the ends of long results are not searched."""
    started, run = await begin_turn(store, await store.create(extras={"w": "zebra"}), "q")
    call = asked("c1", run_id=run.id, data={"w": "zebra"})
    arguments: dict[str, Any] = {"query": "a Heron", "pages": [12, {"deep": "otter"}], "no": None, "yes": True}
    use = {"type": "tool_use", "id": "c1", "name": "look_up", "input": arguments}
    thinking = {"type": "thinking", "thinking": "zebra"}
    message = {"role": "assistant", "content": [thinking, {"type": "text", "text": "I look for a lynx."}, use]}
    long: Any = [{"type": "text", "text": "badger"}, {"type": "image", "source": {"data": "zebra"}}]
    long.append({"type": "text", "text": "x" * 8192 + " zebra"})
    step = [call.changed(message=message), result("c1", 0, 2, long, run_id=run.id)]
    problem = Entry(type="tool_error", run_id=run.id, data={"message": "The ferret is offline.", "other": "zebra"})
    started = await store.append(started.head, [*step, problem, Entry(type="run_resumed", data={"message": "zebra"})])
    for text, position in {"heron otter 12": 2, "look up": 2, "LYNX": 2, "badger": 3, "ferret": 4}.items():
        assert [hit.position for hit in await store.search(text)] == [position], text
    [(row, _)] = await describe_hits(store, await store.search("otter"), "otter")
    assert row["snippet"] == "I look for a lynx. look_up a Heron 12 otter"
    assert highlighted("An otter's", "OTTER") == [(False, "An "), (True, "otter"), (False, "'s")]
    elsewhere = await store.in_project("elsewhere").create(title="zebra")
    await store.append(elsewhere, [said("zebra")])
    assert await store.search("zebra") == []


async def test_search_accepts_any_text(store: Store) -> None:
    """It finds nothing, or rejects text that cannot be stored."""
    await store.append(await store.create(title="t"), [said("some words")])
    for text in ("", "  ", '"', "'; DROP TABLE threads; --", "a AND OR NOT (", "x* NEAR", "%_\\", "<-> & |"):
        assert await store.search(text) == [], text
    for text in ("some\ud800", "some\0words"):
        with suppress(Refused):
            await store.search(text)


async def test_search_follows_deletes_and_new_titles(store: Store) -> None:
    head = await store.create(title="unicorn")
    await store.append(head, [said("unicorn")])
    assert len(await store.search("unicorn")) == 2
    await store.edit(head, title="dragon")
    assert [hit.position for hit in await store.search("unicorn")] == [1]
    assert [hit.position for hit in await store.search("dragon")] == [None]
    await store.delete(head)
    assert await store.search("unicorn") == await store.search("dragon") == []
    second_hit = (await store.append(await store.create(), [said("a unicorn again")])).head
    assert [hit.thread_id for hit in await store.search("unicorn")] == [second_hit.id]


async def test_search_does_not_find_deleted_stitches(full_backend: FullBackend) -> None:
    """Only the deleted stitches are removed, whether the index contained them or not."""
    thread = await created(full_backend)
    thread = await grown(full_backend, thread, *(said(f"unicorn {n}") for n in range(1, 4)))
    assert await places(full_backend, "unicorn") == {1, 2, 3}
    await grown(full_backend, thread, said("unicorn 4"))
    for position in (2, 4):
        span = (
            Where("thread_id", "=", thread.id),
            Where("position", ">=", position),
            Where("position", "<=", position),
        )
        assert await full_backend.delete(Find(Stitch, span)) == 1
    assert await places(full_backend, "unicorn") == {1, 3}
    assert await places(full_backend, "1") == {1}


async def test_search_follows_replaced_stitches(full_backend: FullBackend) -> None:
    """Replaced before or after it was indexed. A stitch may become searchable, or stop being so."""
    thread = await created(full_backend, kind="trace")
    entries = [said("unicorn"), Entry(type="span"), said("unicorn"), answered("unicorn"), said("unicorn")]
    *known_stitches, new_stitch = stitched(thread, *entries, said("unicorn"))
    await full_backend.put(known_stitches)
    assert await places(full_backend, "unicorn") == {1, 3, 4, 5}
    await full_backend.put([new_stitch])
    dragon = said("dragon").message
    tells = [
        known_stitches[0].changed(message=dragon),
        known_stitches[1].changed(type="input", message=dragon),
        known_stitches[2].changed(message=None),
        known_stitches[3].changed(status="tool_use"),
        new_stitch.changed(message=dragon),
    ]
    for _ in range(2):
        await full_backend.put(tells)
        assert await places(full_backend, "unicorn") == {4, 5}
        assert await places(full_backend, "dragon") == {1, 2, 6}
    await full_backend.put([tells[0].changed(message=said("unicorn").message), tells[0]])
    assert await places(full_backend, "unicorn") == {4, 5}
    await full_backend.delete(Find(Thread, (Where("id", "=", thread.id),)))
    assert await places(full_backend, "unicorn") == await places(full_backend, "dragon") == set()


async def test_concurrent_searches_succeed(store: Store, store_url: str) -> None:
    """All searches find the same results without duplicates, no matter which one fills the index."""
    for number in range(30):
        await store.append(await store.create(), [said(f"treasure {number}"), answered("treasure")])
    async with open_store(store_url) as first_store, open_store(store_url) as second_store:
        results = await asyncio.gather(
            *(reader.search("treasure", limit=100) for reader in [first_store, second_store, store] * 4)
        )
    assert [len(hits) for hits in results] == [60] * 12
    assert all(hits == results[0] for hits in results)


async def test_search_finds_words_beyond_ascii(store: Store) -> None:
    head = (await store.append(await store.create(), [said("Größe und Œuvre, 東京タワー 42")])).head
    for word in ("Größe", "Œuvre", "42"):
        assert [hit.thread_id for hit in await store.search(word)] == [head.id], word


async def test_size_grows_with_stored_content(full_backend: FullBackend) -> None:
    thread, other_thread = await created(full_backend), await created(full_backend)
    await grown(full_backend, other_thread, said("y" * 50_000))
    before = await full_backend.size(thread.id)
    run = a_run(thread)
    await commit(full_backend, change(thread, said("x" * 10_000, run_id=run.id), new_runs=[run]))
    blob = a_blob(b"z" * 3000)
    await full_backend.put([blob])
    await full_backend.put([BlobUse(thread_id=thread.id, sha256=blob.sha256)])
    after = await full_backend.size(thread.id)
    assert 10_000 < after["stitches"] - before["stitches"] < 12_000
    assert after["runs"] > before["runs"] == 0
    assert after["blobs"] - before["blobs"] == 3000
    assert after["heads"] > 0
    total = await full_backend.size(None)
    assert total["stitches"] > 60_000
    assert total["blobs"] == 3000
    assert total["disk"] > 63_000
    assert await full_backend.find(Find(Blob)) == [blob]


async def test_size_of_empty_store_is_zero(full_backend: FullBackend) -> None:
    sizes = await full_backend.size(None)
    assert {sizes[name] for name in ("heads", "runs", "stitches", "blobs")} == {0}
