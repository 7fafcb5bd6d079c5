"""Media: large base64 content is stored once as a blob, and readers get the same bytes."""

from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

import pytest

from lockstitch.backend import Find
from lockstitch.errors import Refused, StoreDamaged
from lockstitch.model import Blob, BlobUse, Entry, Stitch, Thread, codec, tool_result
from lockstitch.store import Store
from tests.samples import asked, begin_turn, result, said

pytestmark = pytest.mark.anyio

LARGE = 32 * 1024


def base64(size: int, seed: int = 0) -> str:
    """Return base64 with this number of characters."""
    return b64encode(Random(seed).randbytes(size)).decode()[:size]


def picture(data: str, **more: Any) -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data, **more}}


def media_entry(*content: Any, **fields: Any) -> Entry:
    return Entry(type="input", message={"role": "user", "content": list(content)}, **fields)


async def blobs(store: Store) -> dict[str, Blob]:
    return {blob.sha256: blob for blob in await store._backend.find(Find(Blob))}


async def raw(store: Store, thread: Thread) -> list[Stitch]:
    """Return the stitches in their stored form."""
    return await store._backend.read(thread.id, [(1, None)])


@pytest.mark.req("S0-142", "S0-061")
async def test_moves_large_base64_to_blob_and_restores_it(store: Store, backend: str, tmp_path: Path) -> None:
    data = base64(LARGE)
    head = (
        await store.append(await store.create(), [media_entry(picture(data), {"type": "text", "text": "this"})])
    ).head

    stored = await blobs(store)
    digest = sha256(data.encode()).hexdigest()
    assert list(stored) == [digest]
    assert (stored[digest].content, stored[digest].size, stored[digest].media_type) == (
        data.encode(),
        LARGE,
        "image/png",
    )
    assert data not in codec.dumps((await raw(store, head))[0].as_json()).decode()
    expected = [{"role": "user", "content": [picture(data), {"type": "text", "text": "this"}]}]
    assert await store.context(head) == expected
    assert (await store.stitches(head))[0].message == expected[0]
    assert (await store.size(head))["blobs"] == LARGE
    if backend == "files":
        assert (tmp_path / "store" / "blobs" / digest).read_bytes() == data.encode()


async def test_keeps_small_or_invalid_base64_in_the_row(store: Store) -> None:
    text = {"type": "text", "text": base64(LARGE)}
    odd = {"type": "base64", "data": "ß" * LARGE}
    numbers = {"type": "base64", "data": list(range(10))}
    entry = media_entry(picture(base64(LARGE - 1)), text, odd, numbers)
    head = (await store.append(await store.create(), [entry])).head

    assert await blobs(store) == {}
    assert (await raw(store, head))[0].message == entry.message


@pytest.mark.parametrize("order", [("type", "media_type", "data"), ("data", "type", "media_type"), ("data", "type")])
async def test_restores_keys_in_their_order(store: Store, order: tuple[str, ...]) -> None:
    values = {"type": "base64", "media_type": "application/pdf", "data": base64(LARGE + 2)}
    source = {"bag": {"type": "lockstitch:blob"}, **{name: values[name] for name in order}, "after": [None]}
    entry = media_entry({"type": "document", "source": source, "title": "t"})
    before = codec.dumps(entry.message)
    head = (await store.append(await store.create(), [entry])).head

    assert len(await blobs(store)) == 1
    assert codec.dumps((await store.stitches(head))[0].message) == before


async def test_finds_media_in_results_and_data(store: Store) -> None:
    value, other_value = base64(LARGE, 1), base64(LARGE, 2)
    head, run = await begin_turn(store, await store.create(), "Hello")
    head = (await store.append(head.head, [asked("a", run_id=run.id)])).head
    block = tool_result("a", [{"type": "text", "text": "look"}, picture(value)])
    entry = result("a", 0, 2, run_id=run.id).changed(message=block)
    fork = Entry(type="fork", run_id=run.id, data={"messages": [{"role": "user", "content": [picture(other_value)]}]})
    before = await store.append(head, [entry])
    assert (await store.context(head))[-1] == {"role": "user", "content": [block]}
    head = (await store.append(before.head, [fork])).head

    assert {blob.content.decode() for blob in (await blobs(store)).values()} == {value, other_value}
    assert await store.context(head) == fork.data["messages"]
    assert [stitch.message for stitch in await store.log(run.id)][2] == block
    assert (await store.messages(run.id))[-1]["content"] == [block]
    assert (await store.stitch(entry.id)).message == block
    last = await store.last_stitch(head)
    assert last is not None
    assert last.message == block


async def test_append_returns_media_in_place(store: Store) -> None:
    entry = media_entry(picture(base64(LARGE)))
    appended = await store.append(await store.create(), [entry])

    assert appended.stitches[0].message == entry.message


async def test_stores_same_image_once(store: Store) -> None:
    data = base64(LARGE)
    entries = [
        media_entry(picture(data)),
        media_entry(picture(data), picture(data)),
        media_entry({"type": "text", "text": "and"}),
    ]
    head = (await store.append(await store.create(), entries)).head
    head = (await store.append(head, [media_entry(picture(data))])).head
    other_thread = (await store.append(await store.create(), [media_entry(picture(data))])).head

    assert len(await blobs(store)) == 1
    assert len(await store._backend.find(Find(BlobUse))) == 2
    for thread in (head, other_thread):
        assert data not in str([stitch.message for stitch in await raw(store, thread)])
        assert all(picture(data) in m["content"] for m in await store.context(thread) if len(str(m)) > LARGE)
    assert len(await store.context(head)) == 4


async def test_moves_media_of_deliveries_to_blobs(store: Store) -> None:
    value, other_value = base64(LARGE, 1), base64(LARGE, 2)
    thread = await store.create(kind="goal", goal="g")
    await store.deliver(thread, media_entry(picture(value)), kind="input", sender="ada")
    held_thread = await store.claim(thread)
    await store.deliver(thread, media_entry(picture(other_value)), kind="input", sender="bob")
    assert len(await blobs(store)) == 2
    head, deliveries = await store.inbox(held_thread)
    assert other_value not in str(deliveries)
    head = (await store.append(head, consumed=deliveries)).head

    assert value not in str(await raw(store, head))
    assert await store.context(head) == [media_entry(picture(data)).message for data in (value, other_value)]


async def test_keeps_blob_until_last_thread_is_deleted(store: Store) -> None:
    data, own_data = base64(LARGE, 1), base64(LARGE, 2)
    thread = (await store.append(await store.create(), [media_entry(picture(data))])).head
    other_head = (
        await store.append(await store.create(), [media_entry(picture(data)), media_entry(picture(own_data))])
    ).head

    await store.delete(other_head)
    assert [blob.content.decode() for blob in (await blobs(store)).values()] == [data]
    assert await store.context(thread) == [media_entry(picture(data)).message]
    await store.delete(thread)
    assert await blobs(store) == {}
    assert await store._backend.find(Find(BlobUse)) == []


async def test_stores_text_once_by_hash(store: Store) -> None:
    other_thread, third_thread = await store.create(), await store.create()
    digests = {
        await store.store_text(thread, "You are größer.") for thread in (other_thread, third_thread, other_thread)
    }

    assert digests == {sha256("You are größer.".encode()).hexdigest()}
    assert [blob.content.decode() for blob in (await blobs(store)).values()] == ["You are größer."]
    assert len(await store._backend.find(Find(BlobUse))) == 2


async def test_keeps_content_that_looks_like_a_reference(store: Store) -> None:
    """A caller that knows a hash must not get the content behind it, and content must not change."""
    secret = base64(LARGE, 1)
    await store.append(await store.create(), [media_entry(picture(secret))])
    (digest,) = await blobs(store)
    bags = [
        {"type": "lockstitch:blob", "sha256": digest, "media_type": "image/png"},
        {"type": "lockstitch:blob", "sha256": "0" * 64},
        {"type": "lockstitch:blob"},
        {"type": "lockstitch:blob", "bag": {"type": "lockstitch:blob", "sha256": digest}},
    ]
    entry = media_entry(*bags, {"type": "text", "text": "x", "inner": {"deep": [bags[0]]}}, data={"sent": bags})
    alone = (await store.append(await store.create(), [entry])).head
    mixed = (await store.append(await store.create(), [media_entry(*bags, picture(base64(LARGE, 2)))])).head

    assert codec.dumps(await store.context(alone)) == codec.dumps([entry.message])
    assert (await store.stitches(alone))[0].data == entry.data
    assert (await store.context(mixed))[0]["content"] == [*bags, picture(base64(LARGE, 2))]
    assert secret not in str(await store.context(mixed))


async def test_raises_damaged_when_blob_is_missing(store: Store) -> None:
    head = (await store.append(await store.create(), [media_entry(picture(base64(LARGE)))])).head
    await store._backend.delete(Find(BlobUse))
    await store._backend.delete(Find(Blob))

    with pytest.raises(StoreDamaged, match="is missing"):
        await store.context(head)


@pytest.mark.parametrize("media_type", [None, 5, "a\x00b"])
async def test_accepts_unusual_media_type(store: Store, media_type: Any) -> None:
    entry = media_entry(picture(base64(LARGE), media_type=media_type))
    head = (await store.append(await store.create(), [entry])).head

    assert await store.context(head) == [entry.message]


async def test_rejected_content_leaves_no_stitch(store: Store) -> None:
    head = await store.create()
    entry = said("x").changed(message={"role": "user", "content": [picture(base64(LARGE), scale=float("nan"))]})
    with pytest.raises(Refused):
        await store.append(head, [entry])
    assert await store.stitches(head) == []
