"""Keys, names and counts: values of plain columns and of file names."""

import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lockstitch.errors import LockstitchError, Refused
from lockstitch.model import File, Run, Thread
from lockstitch.store import Store, open_store
from tests.conformance.contract import everything, refused
from tests.hostile.contents import REFUSED_TEXTS, TEXTS
from tests.samples import begin_turn, finish_turn, said

pytestmark = pytest.mark.anyio

MOST = 2**63 - 1
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
COUNTS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")

Act = Callable[[Store, Thread, Run, Any], Awaitable[object]]


async def test_hostile_texts_of_threads_are_exact(store: Store, store_url: str, tmp_path: Path) -> None:
    """Every text names a separate thread, even if they look alike, and none leaves the folder of the store."""
    threads_by_text = {
        text: await store.create(key=text, user_id=text, agent=text, title=text) for text in TEXTS.values()
    }
    assert len({thread.id for thread in threads_by_text.values()}) == len(TEXTS)
    async with open_store(store_url) as other_store:
        for name, text in TEXTS.items():
            assert await other_store.thread(text) == threads_by_text[text], name
            assert await other_store.ensure(text, user_id=text) == threads_by_text[text], name
            assert await other_store.threads(user_id=text) == [threads_by_text[text]], name
            assert await other_store.count(agent=text) == 1, name
            await other_store.search(text)
    assert {path.name.partition(".")[0] for path in tmp_path.iterdir()} <= {"store"}


async def test_hostile_texts_of_projects_and_goals_are_exact(store: Store) -> None:
    for name, text in TEXTS.items():
        text_store = Store(store._backend, clock=store.clock, project=text)
        thread = await text_store.create(key="k", kind="goal", goal=text * 50)
        assert await text_store.threads() == [thread], name
        assert await text_store.thread("k") == thread, name
    assert await store.threads() == []


async def test_hostile_texts_of_stitches_deliveries_and_files_are_exact(store: Store, tmp_path: Path) -> None:
    head = await store.create()
    now = store.clock.now()
    for text in TEXTS.values():
        tool = said("x", name=text, call_id=text, status=text[:100]).changed(type="note")
        assert (await store.deliver(head, tool, kind="input", sender=text, call_id=text)).new
        assert not (await store.deliver(head, tool, kind="input", sender=text, call_id=text)).new
        file = File(thread_id=head.id, file_id=text, filename=text, created_at=now, last_updated_at=now)
        await store.files.put(file)
        assert await store.files.get(head.id, text) == file
    titles = [(stitch.name, stitch.call_id, stitch.status) for stitch in await store.stitches(head)]
    assert titles == [(text, text, text[:100]) for text in TEXTS.values()]
    assert {file.file_id for file in await store.files.list(thread_id=head.id)} == set(TEXTS.values())
    assert {path.name.partition(".")[0] for path in tmp_path.iterdir()} <= {"store"}


PLACES: dict[str, Act] = {
    "key": lambda store, head, run, text: store.create(key=text),
    "user_id": lambda store, head, run, text: store.create(user_id=text),
    "project": lambda store, head, run, text: store.in_project(text).create(),
    "title": lambda store, head, run, text: store.edit(head, title=text),
    "title of an append": lambda store, head, run, text: store.append(head, [said("x")], fields={"title": text}),
    "name": lambda store, head, run, text: store.append(head, [said("x", name=text)]),
    "call_id": lambda store, head, run, text: store.append(head, [said("x", call_id=text)]),
    "sender": lambda store, head, run, text: store.deliver(head, said("x"), kind="input", sender=text),
    "kind": lambda store, head, run, text: store.deliver(head, said("x"), kind=text, sender="ada"),
    "agent of a new run": lambda store, head, run, text: store.append(
        head, [said("x")], new_runs=[store.new_run(head, agent=text)]
    ),
    "agent of a run": lambda store, head, run, text: store.append(
        head, [said("x")], run_updates=[(run, {"agent": text})]
    ),
}


async def _places_refuse(store: Store, places: dict[str, Act], values: dict[str, Any]) -> None:
    started, run = await begin_turn(store, await store.create(key="k"), "x")
    before = await everything(store._backend)

    async def act(place: str, value: Any) -> object:
        return await places[place](store, started.head, run, value)

    for place in places:
        for name, value in values.items():
            await refused(Refused, act(place, value), f"{name} as {place}")
            assert await store.thread("k") == started.head, f"{name} as {place}"
    assert await everything(store._backend) == before
    assert (await store.append(started.head, [said("sound")])).head.position == 2


async def test_rejected_texts_write_nothing(store: Store) -> None:
    await _places_refuse(store, PLACES, REFUSED_TEXTS)
    for text in ("\x00", "\ud800"):
        for ask in (store.thread, store.ensure, store.search):
            with pytest.raises(LockstitchError):
                await ask(text)
        with pytest.raises(Refused):
            await store.agents.register("p", text, {})
    with pytest.raises(Refused):
        await store.create(key="")


async def test_counts_at_their_limit_are_stored(store: Store, store_url: str) -> None:
    """The counts are stored, and all sums over them work."""
    counts = dict.fromkeys(COUNTS, MOST)
    for _ in range(2):
        started, run = await begin_turn(store, await store.create(version=MOST), "x")
        head = (await store.append(started.head, [said("x", run_id=run.id, duration_ms=MOST, **counts)])).head
        await finish_turn(store, head, run, "y", total_cost=1.7976931348623157e308, **counts)
    async with open_store(store_url) as other_store:
        stitch = (await other_store.stitches(head))[1]
        found_run = await other_store.run(run.id)
        for name in COUNTS:
            assert (getattr(stitch, name), getattr(found_run, name)) == (MOST, MOST)
        assert (stitch.duration_ms, (await other_store.thread(head.id)).version) == (MOST, MOST)
        assert [usage.average_tokens for usage in await other_store.average_tokens(LONG_AGO)] == [2.0 * MOST] * 2
        (overview, _) = await other_store.overview(await other_store.threads())
        assert overview.usage["input_tokens"] == MOST


NUMBERS: dict[str, Any] = {
    "2**63": 2**63,
    "-1": -1,
    "10**30": 10**30,
    "a half": 0.5,
    "a text": "many",
    "none": math.nan,
}
COUNTED: dict[str, Act] = {
    "input_tokens": lambda store, head, run, number: store.append(head, [said("x", input_tokens=number)]),
    "duration_ms": lambda store, head, run, number: store.append(head, [said("x", duration_ms=number)]),
    "version": lambda store, head, run, number: store.append(head, fields={"version": number}),
    "tokens of a new run": lambda store, head, run, number: store.append(
        head, [said("x")], new_runs=[Run(**{**store.new_run(head).as_json(), "output_tokens": number})]
    ),
    "tokens of a run": lambda store, head, run, number: store.append(
        head, [said("x")], run_updates=[(run, {"output_tokens": number})]
    ),
}
COST: dict[str, Act] = {
    "the cost of a run": lambda store, head, run, number: store.append(
        head, [said("x")], run_updates=[(run, {"total_cost": number})]
    ),
    "its status": lambda store, head, run, value: store.append(
        head, [said("x")], run_updates=[(run, {"status": value})]
    ),
    "a field it has not": lambda store, head, run, value: store.append(
        head, [said("x")], run_updates=[(run, {"nose": value})]
    ),
    "a time": lambda store, head, run, value: store.edit(head, expires_at=value),
    "a bool": lambda store, head, run, value: store.edit(head, cancel_requested=value),
}


async def test_rejected_counts_write_nothing(store: Store) -> None:
    await _places_refuse(store, COUNTED, NUMBERS)


async def test_other_rejected_values_write_nothing(store: Store) -> None:
    await _places_refuse(store, COST, {"nan": math.nan, "infinity": math.inf, "a text": "soon", "a list": []})


async def test_converted_values_are_stored_with_type_of_field(store: Store) -> None:
    """A text that contains a number or a time is stored as such, in every store."""
    head = await store.create()
    raw_values: dict[str, Any] = {"priority": "5", "expires_at": "2026-01-01T00:00:00Z", "cancel_requested": "yes"}
    values = {"priority": 5, "expires_at": datetime(2026, 1, 1, tzinfo=UTC), "cancel_requested": True}
    await store.edit(head, **raw_values)
    found_thread = await store.thread(head.id)
    assert {name: getattr(found_thread, name) for name in values} == values
    after = (await store.append(found_thread, [said("x")], fields={**raw_values, "priority": 7.0})).head
    assert await store.thread(head.id) == after
    assert type(after.priority) is int


async def test_rejects_time_without_zone(store: Store) -> None:
    with pytest.raises(Refused, match="zone"):
        await store.create(expires_at=datetime(2026, 1, 1))  # noqa: DTZ001
    assert await store.threads() == []


async def test_list_with_impossible_filter_is_rejected_or_empty(store: Store) -> None:
    await store.create()
    for text in ("..", "x" * 10_000, "\x00", "\ud800"):
        with suppress(Refused):
            assert await store.threads(user_id=text) == []
