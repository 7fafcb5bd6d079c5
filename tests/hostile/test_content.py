"""Content of any kind is read back exactly, or rejected before anything is written."""

import asyncio
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lockstitch.errors import Refused
from lockstitch.model import Run, Thread
from lockstitch.store import Store, open_store
from tests.conformance.contract import everything, refused
from tests.hostile.contents import KEPT, REFUSED, assert_same, entry
from tests.samples import begin_turn, said

pytestmark = pytest.mark.anyio

BAGS = ("settings", "extras", "state")

Act = Callable[[Store, Thread, Run, Any], Awaitable[object]]


@pytest.mark.req("S0-062")
async def test_hostile_content_in_message_and_data_is_exact(store: Store, store_url: str) -> None:
    entries = [entry(value) for value in KEPT.values()]
    head = (await store.append(await store.create(), entries)).head
    await store.append(head, [entry(KEPT)])
    async with open_store(store_url) as other_store:
        *singles, combined = await other_store.stitches(head)
        for name, stitch in zip(KEPT, singles, strict=True):
            assert stitch.message is not None
            assert_same(stitch.message["content"][0]["value"], KEPT[name], name)
            assert_same(stitch.data, {"value": KEPT[name]}, name)
        assert_same(combined.data, {"value": KEPT})
        expected = [*(entry.message for entry in entries), entry(KEPT).message]
        assert_same(await other_store.context(head), expected)
        assert (await other_store.verify()).ok
        await other_store.search("hostile")
        await other_store.size()


async def test_hostile_content_in_thread_fields_is_exact(store: Store, store_url: str) -> None:
    head = await store.create(**dict.fromkeys(BAGS, KEPT), tasks=[KEPT], key="made")
    edited = await store.create(key="edited")
    await store.edit(edited, extras=KEPT)
    appended = await store.create(key="appended", kind="goal", goal="g")
    fields = {"settings": KEPT, "state": KEPT, "status": "completed", "result": KEPT}
    after = (await store.append(appended, fields=fields)).head
    async with open_store(store_url) as other_store:
        stored_thread = await other_store.thread("made")
        for name in BAGS:
            assert_same(getattr(stored_thread, name), KEPT, name)
        assert_same(stored_thread.as_json(), head.as_json())
        assert_same((await other_store.thread("edited")).extras, KEPT)
        assert_same((await other_store.thread("appended")).as_json(), after.as_json())


async def test_hostile_content_in_run_is_exact(store: Store, store_url: str) -> None:
    tags = ["\x00", "", "😀", "a,b", '"'] * 2
    started, run = await begin_turn(store, await store.create(), "x", extras=KEPT, cost=KEPT, metadata=KEPT, tags=tags)
    changed = {"output": KEPT, "state": KEPT, "total_cost": 5e-324}
    await store.append(started.head, [said("y", run_id=run.id)], run_updates=[(run, changed)])
    async with open_store(store_url) as other_store:
        assert_same((await other_store.run(run.id)).as_json(), run.changed(**changed).as_json())


@pytest.mark.parametrize("holding", [False, True], ids=["no worker holds it", "held"])
async def test_hostile_content_in_delivery_is_exact(store: Store, store_url: str, holding: bool) -> None:
    head = await store.create()
    if holding:
        head = await store.claim(head)
    for name, value in KEPT.items():
        assert (await store.deliver(head, entry(value), kind="input", sender=name)).new
    if not holding:
        head = await store.claim(head)
    head, deliveries = await store.inbox(head)
    await store.append(head, consumed=deliveries)
    async with open_store(store_url) as other_store:
        stitches = await other_store.stitches(head)
        for (name, value), stitch in zip(KEPT.items(), stitches, strict=True):
            assert_same(stitch.message, entry(value).message, name)
            assert_same(stitch.data, {"value": value}, name)


def _run_fields(value: Any) -> dict[str, Any]:
    return {"extras": {"v": value}}


PLACES: dict[str, Act] = {
    "message": lambda store, head, run, value: store.append(head, [said("x").changed(message={"v": value})]),
    "content": lambda store, head, run, value: store.append(head, [said("a"), said(value)]),
    "data": lambda store, head, run, value: store.append(head, [said("a"), said("x", data={"v": value})]),
    "settings": lambda store, head, run, value: store.append(head, [said("x")], fields={"settings": {"v": value}}),
    "waiting_for": lambda store, head, run, value: store.append(head, fields={"waiting_for": [{"v": value}]}),
    "a new thread": lambda store, head, run, value: store.create(extras={"v": value}),
    "a new child": lambda store, head, run, value: store.append(
        head, [said("x")], new_threads=[store.new_thread(parent_id=head.id, depth=1, state={"v": value})]
    ),
    "an edit": lambda store, head, run, value: store.edit(head, extras={"v": value}),
    "a delivery": lambda store, head, run, value: store.deliver(
        head, said("x", data={"v": value}), kind="input", sender="ada"
    ),
    "a new run": lambda store, head, run, value: store.append(
        head, [said("x")], new_runs=[store.new_run(head, **_run_fields(value))]
    ),
    "a changed run": lambda store, head, run, value: store.append(
        head, [said("x")], run_updates=[(run, _run_fields(value))]
    ),
}


@pytest.mark.parametrize("place", PLACES)
async def test_rejected_content_writes_nothing(store: Store, place: str) -> None:
    started, run = await begin_turn(store, await store.create(key="k"), "x")
    before = await everything(store._backend)

    async def act(value: Any) -> object:
        return await PLACES[place](store, started.head, run, value)

    for name, value in REFUSED.items():
        for hidden in (value, [None, {"x": [value, None]}]):
            exc = await refused(Refused, act(hidden), f"{name} in {place}")
            assert "othing was written" in str(exc), name
            assert exc.exit_code == 2
            assert await store.thread("k") == started.head, name
    assert await everything(store._backend) == before
    # The same head still accepts valid content, so nothing was half written.
    assert (await store.append(started.head, [said("sound")])).head.position == 2


async def test_rejected_entry_stops_only_its_commit(store: Store) -> None:
    head, other_thread = await store.create(), await store.create()
    for name, value in REFUSED.items():
        sound = [said(str(number)) for number in range(5)]
        refused_one, edited, appended = await asyncio.gather(
            store.append(head, [*sound, said("x", data={"v": value})]),
            store.edit(other_thread, title=name),
            store.append(other_thread, [said(name)]),
            return_exceptions=True,
        )
        assert isinstance(refused_one, Refused), name
        assert edited is None, name
        assert not isinstance(appended, BaseException), name
        other_thread = appended.head
    assert await store.thread(head.id) == head
    assert await store.stitches(head) == []
    assert len(await store.context(other_thread)) == len(REFUSED)


class _Colour(Enum):
    RED = "red"


@pytest.mark.parametrize(
    ("value", "kept"),
    [(UUID(int=1), str(UUID(int=1))), (_Colour.RED, "red"), ((1, 2), [1, 2])],
    ids=["UUID", "Enum", "tuple"],
)
async def test_values_are_converted_to_json_equivalents(store: Store, value: Any, kept: Any) -> None:
    head = await store.create()
    await store.append(head, [said("x", data={"v": value})])
    assert (await store.stitches(head))[0].data == {"v": kept}


async def test_rejects_circular_value(store: Store) -> None:
    """Content that contains itself is infinite. The check must end."""
    circle: dict[str, Any] = {}
    circle["again"] = [circle]
    head = await store.create()
    async with asyncio.timeout(10):
        with pytest.raises(Refused):
            await store.append(head, [said("x", data=circle)])
        with pytest.raises(Refused):
            await store.edit(head, extras=circle)
    assert (await store.thread(head.id)).position == 0


LARGE: dict[str, str] = {
    "one character": "x" * 10_000_000,
    "NULs": "\x00" * 200_000,
    # Fewer megabytes, but more different words than one index entry can contain.
    "words": " ".join(f"word{number}" for number in range(200_000)),
}


@pytest.mark.parametrize("name", LARGE)
async def test_ten_megabytes_in_message_are_stored(store: Store, store_url: str, name: str) -> None:
    text = LARGE[name]
    head = (await store.append(await store.create(), [said(text, data={text: "a key"})])).head
    async with open_store(store_url) as stored:
        (stitch_read,) = await stored.stitches(head)
        assert stitch_read.message == {"role": "user", "content": text}
        assert stitch_read.data == {text: "a key"}


async def test_ten_megabytes_in_thread_fields_are_stored(store: Store, store_url: str) -> None:
    text = LARGE["one character"]
    await store.create(key="k", kind="goal", goal=text, extras={"v": text})
    async with open_store(store_url) as other_store:
        stored_thread = await other_store.thread("k")
        assert (stored_thread.goal, stored_thread.extras) == (text, {"v": text})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(
    max_examples=8, deadline=None, derandomize=True, database=None, suppress_health_check=[
        HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large,
    ]
)  # fmt: skip
@given(values=st.lists(json_values, min_size=1, max_size=20))
def test_any_json_is_stored_exactly(store_url: str, values: list[Any]) -> None:
    """One store for all examples. Each example has a separate thread."""

    async def there_and_back() -> None:
        async with open_store(store_url) as store:
            head = await store.create(settings={"v": values})
            await store.append(head, [entry(value) for value in values])
            for value, stitch in zip(values, await store.stitches(head), strict=True):
                assert_same(stitch.message, entry(value).message)
                assert_same(stitch.data, {"value": value})
            assert_same((await store.thread(head.id)).settings, {"v": values})

    asyncio.run(there_and_back())
