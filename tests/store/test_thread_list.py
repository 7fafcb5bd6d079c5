"""Lists of threads: figures of ended runs, orders, filters, and pages."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from lockstitch.errors import Refused
from lockstitch.model import Thread
from lockstitch.model.figures import ThreadSort
from lockstitch.store import Store

pytestmark = pytest.mark.anyio


async def ended(store: Store, head: Thread, seconds: float, status: str = "completed", **fields: Any) -> Thread:
    """Add a run to a thread: first open, then ended after this time."""
    run = store.new_run(head).changed(tags=fields.pop("tags", []), metadata=fields.pop("metadata", {}))
    head = (await store.append(head, new_runs=[run])).head
    end = {"status": status, "completed_at": run.started_at + timedelta(seconds=seconds), **fields}
    return (await store.append(head, run_updates=[(run, end)])).head


def names(threads: list[Thread]) -> list[str | None]:
    return [thread.key for thread in threads]


async def test_threads_are_sorted_by_status_page_by_page(store: Store) -> None:
    statuses = ("completed", "waiting", "running", "waiting", "cancelled", "failed", "pending", "completed")
    now = store.clock.now()
    for number, status in enumerate(statuses):
        created = now - timedelta(minutes=number)
        head = store.new_thread(key=f"{status} {number}").changed(status=status, created_at=created, updated_at=created)
        await store._backend.put([head])
    expected = [
        "running 2",
        "waiting 1",
        "waiting 3",
        "pending 6",
        "failed 5",
        "completed 0",
        "completed 7",
        "cancelled 4",
    ]
    for ascending in (False, True):
        found: list[Thread] = []
        while page := await store.threads(
            sort="status", ascending=ascending, limit=3, after=found[-1] if found else None
        ):
            found += page
        assert names(found) == (expected[::-1] if ascending else expected)
        named = await store.threads(sort="status", ascending=ascending, limit=None, id=[head.id for head in found])
        assert named == found
    some = await store.threads(sort="status", status=["waiting", "completed"], limit=2, offset=1)
    assert names(some) == ["waiting 3", "completed 0"]


async def test_threads_are_sorted_and_filtered_by_the_figures_of_their_runs(store: Store) -> None:
    """All orders and filters work alone and together, page by page."""
    for number, key in enumerate(("small", "large", "failing", "empty")):
        head = await store.create(key=key, agent="helper", version=number + 1)
        if key == "small":
            await ended(store, head, 2, input_tokens=10, output_tokens=5, total_cost=0.25, model="m-1", tags=["a"])
        elif key == "large":
            head = await ended(store, head, 9, input_tokens=100, total_cost=1.5, model="m-1", tags=["a", "b"])
            metadata: dict[str, Any] = {"customer": 42, "beta": True, "nested": {"x": 1}, "note": "é" * 256}
            await ended(store, head, 1, input_tokens=100, total_cost=0.5, model="m-2", metadata=metadata)
        elif key == "failing":
            head = await ended(store, head, 3, "failed", error="Timeout after 3 s" + "." * 600)
            await ended(store, head, 4, output_tokens=50, metadata={"customer": "42"})
    large = await store.thread("large")
    assert (large.model, large.latency_ms, large.total_tokens, large.total_cost) == ("m-2", 1000, 200, 2.0)
    failing = await store.thread("failing")
    assert failing.last_error is not None
    assert len(failing.last_error) == 500
    assert (failing.total_cost, failing.total_tokens, failing.latency_ms) == (None, 50, 4000)

    orders: Mapping[str, list[str]] = {
        "latency": ["failing", "small", "large"],
        "tokens": ["large", "failing", "small"],
        "cost": ["large", "small"],
        "model": ["large", "small"],
    }
    for sort, expected in orders.items():
        for ascending in (False, True):
            found: list[Thread] = []
            while page := await store.threads(
                sort=sort,  # type: ignore[arg-type]
                ascending=ascending,
                limit=1,
                after=found[-1] if found else None,
            ):
                found += page
            assert names(found) == (expected[::-1] if ascending else expected), sort

    filters: list[tuple[dict[str, Any], set[str]]] = [
        ({"tag": "a"}, {"small", "large"}),
        ({"tag": ["a", "b"]}, {"large"}),
        ({"tag": "A"}, set()),
        ({"metadata": {"customer": 42}}, {"large", "failing"}),
        ({"metadata": {"customer": "42", "beta": True}}, {"large"}),
        ({"metadata": {"note": "é" * 256}}, set()),
        ({"model": "m-1"}, {"small"}),
        ({"model": ["m-1", "m-2"]}, {"small", "large"}),
        ({"min_cost": 0.25}, {"small", "large"}),
        ({"min_cost": 0.26}, {"large"}),
        ({"error": True}, {"failing"}),
        ({"error": "timeOUT"}, {"failing"}),
        ({"error": "connection"}, set()),
        ({"error": False}, {"small", "large", "empty"}),
        ({"version": 2}, {"large"}),
        ({"until": store.clock.now() - timedelta(days=1)}, set()),
        ({"tag": "a", "model": "m-2", "min_cost": 1, "agent": "helper", "version": 2}, {"large"}),
        ({"tag": "b", "model": "m-1"}, set()),
    ]
    for conditions, expected_names in filters:
        assert set(names(await store.threads(**conditions))) == expected_names, conditions
        assert await store.count(**conditions) == len(expected_names), conditions
        if "error" not in conditions:
            by_cost = names(await store.threads(sort="cost", **conditions))
            assert by_cost == [name for name in ("large", "small") if name in expected_names], conditions
    for wrong in ({"sort": "price"}, {"metadata": {"": "x"}}, {"metadata": {"a": {}}}):
        with pytest.raises(Refused):
            await store.threads(**wrong)  # type: ignore[arg-type]
    ids = [large.id, failing.id, (await store.in_project("other").create()).id]
    assert names(await store.threads(id=ids, limit=None)) == ["failing", "large"]
    assert names(await store.threads(id=ids, limit=None, sort="cost")) == ["large"]
    assert names(await store.threads(id=ids, limit=1)) == ["failing"]
    assert await store.count(id=ids) == 2
    await store.delete("large")
    assert names(await store.threads(tag="b")) == []


async def test_threads_of_evaluations_can_be_left_out(store: Store) -> None:
    """The start of the key is compared with its case, also in pages, orders and counts."""
    keys = ("chat", "eval/f/1/sum", None, "Eval/f", "evaluation", "eval/f/1/sum/judge", "eval")
    for key in keys:
        await ended(store, await store.create(key=key, agent="helper"), 1, total_cost=0.5)
    kept = [key for key in reversed(keys) if not (key or "").startswith("eval/")]
    every: list[dict[str, Any]] = [{}, {"status": "waiting"}, {"agent": "helper"}, {"min_cost": 0.1}, {"depth": 0}]
    for filters in every:
        found: list[Thread] = []
        while page := await store.threads(evaluations=False, limit=2, after=found[-1] if found else None, **filters):
            found += page
        assert names(found) == kept, filters
        assert await store.count(evaluations=False, **filters) == len(kept), filters
        assert await store.count(evaluations=False, most=3, **filters) == 3, filters
        assert await store.count(**filters) == len(keys), filters
    orders: list[ThreadSort] = ["cost", "latency", "status"]
    for sort in orders:
        assert set(names(await store.threads(evaluations=False, sort=sort))) == set(kept), sort
    ids = [head.id for head in await store.threads()]
    assert names(await store.threads(id=ids, limit=None, evaluations=False)) == kept
