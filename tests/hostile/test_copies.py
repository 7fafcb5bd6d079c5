"""Hostile content is exact after a copy from any backend to any other."""

from pathlib import Path
from typing import Any

import pytest

from lockstitch.model import File, Memory, Thread
from lockstitch.store import Store, open_store
from tests.conformance.contract import everything
from tests.fixtures import BACKENDS
from tests.hostile.contents import KEPT, TEXTS, assert_same, entry
from tests.hostile.stores import fresh_url
from tests.samples import begin_turn, finish_turn, said

pytestmark = pytest.mark.anyio

MEDIA = {"type": "base64", "media_type": "image/png", "data": "AAAA" * 10_000}


async def full_of_it(store: Store) -> Thread:
    """Write a thread with hostile content in every field, and one thread for every hostile text."""
    head = await store.create(key="..", settings=KEPT, extras=KEPT, state=KEPT, tasks=[KEPT], title="/")
    started, run = await begin_turn(store, head, "\x00", extras=KEPT, cost=KEPT, tags=["\x00", ""], total_cost=5e-324)
    head = (await store.append(started.head, [entry(value, run_id=run.id) for value in KEPT.values()])).head
    counts = {"input_tokens": 2**63 - 1, "output_tokens": 2**63 - 1, "cache_read_tokens": 2**63 - 1}
    large = said([{"type": "image", "source": MEDIA}], data={"x" * 100_000: "y" * 100_000}, **counts)
    head = (await store.append(head, [large])).head
    head = (await finish_turn(store, head, run, "Done", error="../..", output=KEPT, **counts)).head
    now = store.clock.now()
    for number, text in enumerate(TEXTS.values()):
        text_thread = await store.create(key=text + "!" if text == ".." else text, user_id=text, agent=text, title=text)
        await store.deliver(text_thread, entry(text, name=text, call_id=text), kind="input", sender=text, call_id=text)
        times: dict[str, Any] = {"created_at": now, "last_updated_at": now}
        await store.files.put(File(thread_id=head.id, file_id=text, filename=text, metadata={text: number}, **times))
        await store.agents.register(text, text, {text: number})
        await store.memories.put(
            Memory(text=text, tags=[text], metadata={text: number}, created_at=now, updated_at=now)
        )
    held_thread = await store.claim(await store.create(key="held"))
    for name, value in KEPT.items():
        await store.deliver(held_thread, entry(value), kind="input", sender=name)
    return head


async def without_leases(store: Store) -> dict[str, list[dict[str, Any]]]:
    """Return everything that a copy contains. Leases and numbers that a store assigns are not copied."""
    copied = await everything(store._backend)
    for row in copied["stitches"]:
        del row["log_id"]
    for row in copied["threads"]:
        for name in ("worker_id", "status", "wake_at"):
            del row[name]
    for row in copied["blobs"]:
        row["content"] = row["content"].hex()
    del copied["workers"]
    return copied


@pytest.mark.usefixtures("databases")  # created before the event loop of the test runs
async def test_store_is_copied_between_any_backends(
    store: Store, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    head = await full_of_it(store)
    here = await without_leases(store)
    for target in BACKENDS:
        with fresh_url(target, "target", tmp_path, request) as url:
            async with open_store(url) as other_store:
                await store.copy_to(other_store)
                assert (await store.copy_to(other_store)).total == 0, target
            async with open_store(url) as other_store:
                copied = await without_leases(other_store)
                for table in here:
                    assert_same(copied[table], here[table], f"{table} in {target}")
                assert_same(await other_store.context(head), await store.context(head))
                report = await other_store.verify()
                assert report.ok, report.problems
    assert {path.name.partition(".")[0] for path in tmp_path.iterdir()} <= {"store", "target"}
