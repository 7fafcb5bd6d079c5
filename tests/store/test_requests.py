"""The exact request of a model call, rebuilt from stored parts."""

from typing import Any
from uuid import uuid4

import pytest

from lockstitch.backend import Find, Where
from lockstitch.errors import NotFound, StoreDamaged
from lockstitch.model import Blob, BlobUse, Entry, Stitch, Thread, codec
from lockstitch.model.message import build, reference
from lockstitch.store import Store, open_store
from tests.samples import asked, begin_turn, result, said

pytestmark = pytest.mark.anyio

SYSTEM = "You are größer.\u2028\n"
TOOLS = [{"name": "look", "description": "d", "input_schema": {"z": 2**70, "a": "\x00"}}]
PARAMETERS = {"model": "m", "temperature": 0.1, "max_tokens": 100, "stop": None}


async def call(store: Store, head: Thread, *ids: str, tools: Any = TOOLS, **more: Any) -> tuple[Thread, Stitch, bytes]:
    """Append a model call as the engine does. Return the new head, the stitch and the sent bytes."""
    request = build(PARAMETERS, SYSTEM, tools, await store.context(head, lane=more.get("lane")))
    digests = [await store.store_text(head, SYSTEM)]
    digests.append(await store.store_text(head, codec.dumps(tools).decode(), "application/json") if tools else None)
    entry = asked(*ids, data={"request": reference(PARAMETERS, *digests, request)}, **more)
    appended = await store.append(head, [entry])
    return appended.head, appended.stitches[0], codec.dumps(request)


async def test_rebuilds_request_byte_for_byte(store: Store) -> None:
    committed, run = await begin_turn(store, await store.create(), "Hello")
    head, first, sent_bytes = await call(store, committed.head, "a", "b", run_id=run.id)
    head = (await store.append(head, [result("b", 1, 2), result("a", 0, 2)])).head
    head, second, sent_again = await call(store, head, run_id=run.id)

    assert codec.dumps(await store.request(first.id)) == sent_bytes
    assert codec.dumps(await store.request(str(second.id))) == sent_again
    assert list(await store.request(first.id)) == [*PARAMETERS, "system", "tools", "messages"]


async def test_rebuilds_request_after_compaction_and_reopening(store: Store, store_url: str) -> None:
    committed, _ = await begin_turn(store, await store.create(), "Hello")
    head, sent_by_lane = committed.head, {}
    for number in range(4):
        head, stitch, text = await call(store, head, f"c{number}", tools=TOOLS if number % 2 else [])
        sent_by_lane[stitch.id] = text
        head = (await store.append(head, [result(f"c{number}", 0, head.position)])).head
        if number % 2:
            keep = {"applied": True, "keep": [[1, 1]], "replace": {"2": {"role": "user", "content": f"sum {number}"}}}
            head = (await store.append(head, [Entry(type="compaction", data=keep)])).head
    await store.append(head, [said("one more"), Entry(type="fork", data={"messages": []})])

    async with open_store(store_url) as reopened:
        for reader in (store, reopened):
            assert {id: codec.dumps(await reader.request(id)) for id in sent_by_lane} == sent_by_lane
    assert len(set(sent_by_lane.values())) == 4


async def test_rebuilds_request_of_member_from_its_lane(store: Store) -> None:
    committed, leader = await begin_turn(store, await store.create(), "Hello")
    member = store.new_run(committed.head, parent_run_id=leader.id)
    lane = {"run_id": member.id, "lane": member.id}
    head = (await store.append(committed.head, [said("part", **lane)], new_runs=[member])).head
    head, stitch, sent_bytes = await call(store, head, **lane)
    await store.append(head, [said("more", **lane), Entry(type="compaction", data={"applied": True}, **lane)])

    assert codec.dumps(await store.request(stitch.id)) == sent_bytes
    assert (await store.request(stitch.id))["messages"] == [said("part").message]


async def test_rebuilt_request_contains_media(store: Store) -> None:
    source = {"data": "QUJD" * 20_000, "type": "base64", "media_type": "image/png"}
    message = {"role": "user", "content": [{"type": "image", "source": source}]}
    head = (await store.append(await store.create(), [Entry(type="input", message=message)])).head
    _, stitch, sent_bytes = await call(store, head)

    assert codec.dumps(await store.request(stitch.id)) == sent_bytes
    assert b"QUJDQUJD" in sent_bytes


async def test_raises_damaged_when_part_of_request_is_missing(store: Store) -> None:
    head, stitch, _ = await call(store, (await begin_turn(store, await store.create(), "Hello"))[0].head)
    digest = stitch.data["request"]["system"]
    await store._backend.delete(Find(BlobUse, (Where("sha256", "=", digest),)))
    await store._backend.delete(Find(Blob, (Where("sha256", "=", digest),)))

    with pytest.raises(StoreDamaged, match=digest):
        await store.request(stitch.id)
    assert len(await store.context(head)) == 2


async def test_raises_damaged_when_rebuilt_request_differs(store: Store) -> None:
    head = (await begin_turn(store, await store.create(), "Hello"))[0].head
    wrong = reference(PARAMETERS, None, None, {"messages": ["something else"]})
    stitch = (await store.append(head, [asked("a", data={"request": wrong})])).stitches[0]

    with pytest.raises(StoreDamaged, match="cannot be rebuilt"):
        await store.request(stitch.id)


async def test_only_model_calls_have_requests(store: Store) -> None:
    head = (await begin_turn(store, await store.create(), "Hello"))[0].head
    appended = await store.append(head, [asked("a"), Entry(type="error", data={"request": {}})])
    for stitch in [*(await store.stitches(head, 1, 1)), *appended.stitches]:
        with pytest.raises(NotFound, match="has no request"):
            await store.request(stitch.id)
    for unknown in (uuid4(), "no id"):
        with pytest.raises(NotFound):
            await store.request(unknown)
