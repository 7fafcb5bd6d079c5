"""`whole_trees`: complete trees of threads, in order, with one query per level."""

from typing import Any

import pytest

from lockstitch.backend import Find
from lockstitch.model import Thread
from lockstitch.store import Store
from lockstitch.store.queries.overview import descendants_of, roots_of, trees, trees_of

pytestmark = pytest.mark.anyio


async def family(store: Store, depth: int, width: int) -> list[list[Thread]]:
    """A tree, level by level: each thread has `width` children."""
    levels = [[await store.create(kind="goal", goal="root")]]
    for number in range(1, depth + 1):
        level: list[Thread] = []
        for parent in levels[-1]:
            for place in range(width):
                name = f"{number}.{place}"
                level.append(await store.create(kind="task", goal=name, parent_id=parent.id))
        levels.append(level)
    return levels


class RecordedQueries:
    """A backend that counts its queries."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend
        self.questions = 0

    async def find(self, find: Find[Any]) -> Any:
        self.questions += 1
        return await self._backend.find(find)


async def test_reads_trees_with_one_query_per_level(store: Store) -> None:
    levels = await family(store, depth=3, width=3)
    backend: Any = RecordedQueries(store._backend)
    assert await descendants_of(backend, levels[0]) == [thread for level in levels for thread in level]
    assert backend.questions == 4
    backend.questions = 0
    assert await roots_of(backend, levels[-1]) == levels[0]
    assert backend.questions == 3
    backend.questions = 0
    nodes = await trees_of(backend, levels[-1])
    assert backend.questions == 3 + 4 + 2, "and one for all runs, one for their scores"
    assert [len(nodes), len(list(nodes[0].walk()))] == [1, 40]
    assert await store.tree(levels[0][0]) == await descendants_of(store._backend, levels[0])


async def test_walks_depth_first_with_place_among_siblings(store: Store) -> None:
    await family(store, depth=2, width=2)
    (tree,) = await trees(store._backend, await store.threads(depth=0))
    walked = [(node.thread.goal, place) for node, place in tree.walk()]
    assert walked == [
        ("root", ()),
        ("1.0", (False,)),
        ("2.0", (False, False)),
        ("2.1", (False, True)),
        ("1.1", (True,)),
        ("2.0", (True, False)),
        ("2.1", (True, True)),
    ]
    assert [child["goal"] for child in tree.as_json()["children"][1]["children"]] == ["2.0", "2.1"]


async def test_returns_each_tree_once_in_requested_order(store: Store) -> None:
    first, second = await family(store, 1, 1), await family(store, 1, 2)
    threads = [second[1][1], first[1][0], second[1][0], first[0][0]]
    assert await roots_of(store._backend, threads) == [second[0][0], first[0][0]]
    assert [len(list(tree.walk())) for tree in await trees_of(store._backend, threads)] == [3, 2]
    assert await trees_of(store._backend, []) == []
