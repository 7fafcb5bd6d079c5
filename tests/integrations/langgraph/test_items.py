"""`LockstitchStore`: the long-term memory of LangGraph."""

import asyncio
from typing import Any

import pytest
from langgraph.store.base import GetOp, InvalidNamespaceError, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore

from lockstitch import Refused
from lockstitch.integrations.langgraph import LockstitchStore
from lockstitch.store import Store

pytestmark = pytest.mark.anyio

ITEMS: dict[tuple[tuple[str, ...], str], dict[str, Any]] = {
    (("users", "ada"), "food"): {"likes": "tea", "rank": 3, "deep": {"a": 1, "b": [1]}},
    (("users", "ada"), "rain"): {"likes": "rain", "rank": 1.5, "done": True},
    (("users", "ada", "old"), "food"): {"likes": "milk", "rank": 0, "done": False},
    (("users", "adam"), "food"): {"likes": None, "rank": 7, "ä ö": "ü"},
    (("teams",), "one"): {"likes": "tea", "rank": 10, "deep": {"a": 2}},
}

FILTERS: list[dict[str, Any]] = [
    {},
    {"likes": "tea"},
    {"likes": "tea", "rank": 3},
    {"likes": None},
    {"rank": {"$gt": 1.5}},
    {"rank": {"$gte": 1.5, "$lt": 10}},
    {"rank": {"$lte": 0}},
    {"rank": {"$ne": 3}},
    {"likes": {"$ne": "tea"}},
    {"likes": {"$eq": "tea"}},
    {"done": True},
    {"done": {"$ne": True}},
    {"deep": {"a": 1}},
    {"deep": {"a": {"$gt": 1}}},
    {"ä ö": "ü"},
]


async def test_finds_what_langgraphs_own_store_finds(store: Store) -> None:
    memory, own = LockstitchStore(store), InMemoryStore()
    for (namespace, key), value in ITEMS.items():
        await memory.aput(namespace, key, value)
        own.put(namespace, key, value)
    for namespace in ((), ("users",), ("users", "ada"), ("users", "ad"), ("teams",)):
        for wanted in FILTERS:
            found = await memory.asearch(namespace, filter=wanted, limit=100)
            expected = [] if _fails(own, namespace, wanted) else own.search(namespace, filter=wanted, limit=100)
            assert _keys(found) == _keys(expected), (namespace, wanted)
    for options in (
        {},
        {"prefix": ("users",)},
        {"prefix": ("users", "*", "old")},
        {"suffix": ("ada",)},
        {"max_depth": 1},
        {"max_depth": 2, "limit": 1, "offset": 1},
    ):
        assert await memory.alist_namespaces(**options) == own.list_namespaces(**options), options
    item = await memory.aget(("users", "ada"), "food")
    assert item is not None
    assert (item.namespace, item.key, item.value) == (("users", "ada"), "food", ITEMS[("users", "ada"), "food"])


def _keys(items: Any) -> set[tuple[Any, str]]:
    return {(item.namespace, item.key) for item in items}


def _fails(own: InMemoryStore, namespace: tuple[str, ...], wanted: dict[str, Any]) -> bool:
    """True if the other store cannot compare an item without the value."""
    try:
        own.search(namespace, filter=wanted)
    except TypeError:
        return True
    return False


async def test_pages_by_last_change_and_keeps_creation_time(store: Store) -> None:
    memory = LockstitchStore(store)
    for number in range(5):
        await memory.aput(("n",), f"{number}", {"n": number})
    first = await memory.aget(("n",), "0")
    await memory.aput(("n",), "0", {"n": "new"})
    changed = await memory.aget(("n",), "0")
    assert first is not None
    assert changed is not None
    assert changed.created_at == first.created_at
    assert changed.updated_at > first.updated_at
    assert [item.key for item in await memory.asearch(("n",), limit=2)] == ["0", "4"]
    assert [item.key for item in await memory.asearch(("n",), limit=2, offset=2)] == ["3", "2"]
    await memory.adelete(("n",), "0")
    assert await memory.aget(("n",), "0") is None


async def test_batch_reads_first_and_writes_in_one_transaction(store: Store) -> None:
    memory = LockstitchStore(store)
    results = await memory.abatch(
        [
            PutOp(("n",), "a", {"n": 1}),
            GetOp(("n",), "a"),
            PutOp(("n",), "a", {"n": 2}),
            SearchOp(("n",)),
            PutOp(("n",), "b", None),
        ]
    )
    assert results == [None, None, None, [], None]
    assert [item.value for item in await memory.asearch(("n",))] == [{"n": 2}]
    with pytest.raises(Refused):
        await memory.abatch([PutOp(("n",), "c", {"n": 1}), PutOp(("n",), "d", {"n": float("nan")})])
    assert await memory.aget(("n",), "c") is None
    with pytest.raises(InvalidNamespaceError):
        await memory.abatch([GetOp(("n.m",), "a")])
    with pytest.raises(Refused, match=r"\$like"):
        await memory.asearch(("n",), filter={"n": {"$like": 1}})


async def test_projects_and_threads_share_no_items(store: Store) -> None:
    memory, other = LockstitchStore(store), LockstitchStore(store.in_project("other"))
    await memory.aput(("n",), "a", {"n": 1})
    assert await other.aget(("n",), "a") is None
    assert await other.alist_namespaces() == []
    await asyncio.to_thread(other.put, ("n",), "a", {"n": 2})
    assert [item.value for item in await memory.asearch(())] == [{"n": 1}]


def test_opens_a_store_for_programs_without_a_loop(store_url: str) -> None:
    with LockstitchStore.open(store_url, project="p") as memory:
        memory.put(("n",), "a", {"n": 1})
    with LockstitchStore.open(store_url, project="p") as memory:
        item = memory.get(("n",), "a")
        assert item is not None
        assert item.value == {"n": 1}
