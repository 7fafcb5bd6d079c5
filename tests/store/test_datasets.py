"""Datasets: versions of their examples, and cases made of runs."""

import asyncio
from uuid import UUID

import pytest

from lockstitch.agents import Agent
from lockstitch.agents.providers.scripted import Scripted
from lockstitch.errors import Conflict, NotFound, Refused
from lockstitch.model import Dataset, DatasetVersion, Example, PastExample, new_id
from lockstitch.store import Store
from lockstitch.store.datasets import (
    add_to_dataset,
    change_examples,
    create_dataset,
    delete_dataset,
    delete_examples,
    examples_of,
    find_dataset,
    get_example,
    put_examples,
    versions_of,
)

pytestmark = pytest.mark.anyio


def example(store: Store, dataset: Dataset, name: str | None, question: str, id: UUID | None = None) -> Example:
    now = store.clock.now()
    about = {"project": store.project, "created_at": now, "updated_at": now}
    return Example(id=id or new_id(), dataset_id=dataset.id, name=name, inputs={"input": question}, **about)


async def questions(store: Store, reference: str) -> list[str]:
    dataset, version = await find_dataset(store, reference)
    return [each.inputs["input"] for each in await examples_of(store, dataset, version)]


async def test_each_change_makes_a_version_that_stays_readable(store: Store) -> None:
    dataset = await create_dataset(store, "shop")
    first, second = example(store, dataset, "a", "one"), example(store, dataset, "b", "two")
    await put_examples(store, dataset, [first, second])
    await put_examples(store, dataset, [first.changed(inputs={"input": "ONE"})])
    await delete_examples(store, [second.id])
    assert await put_examples(store, dataset, [first.changed(inputs={"input": "ONE"})]) is None
    await put_examples(store, dataset, [example(store, dataset, "b", "three")])

    assert [await questions(store, f"shop@{number}") for number in (1, 2, 3, 4)] == [
        ["one", "two"],
        ["ONE", "two"],
        ["ONE"],
        ["ONE", "three"],
    ]
    dataset = (await find_dataset(store, "shop")).dataset
    rows = await versions_of(store, dataset)
    assert [(row.number, row.examples, row.added, row.replaced, row.removed) for row in rows] == [
        (4, 2, 1, 0, 0),
        (3, 1, 0, 0, 1),
        (2, 2, 0, 1, 0),
        (1, 2, 2, 0, 0),
    ]
    assert [row.number for row in await versions_of(store, dataset, limit=2, before=4)] == [3, 2]
    # Only states that a change replaced are stored a second time.
    assert await store.table(PastExample).count() == 2
    assert (await get_example(store, dataset, "b", 2)).inputs == {"input": "two"}
    assert (await get_example(store, dataset, str(first.id))).inputs == {"input": "ONE"}

    page = await examples_of(store, dataset, 2, limit=1)
    after = (page[0].created_at, page[0].id)
    assert [each.name for each in (*page, *await examples_of(store, dataset, 2, limit=1, after=after))] == ["a", "b"]

    with pytest.raises(NotFound, match="no version 5"):
        await find_dataset(store, "shop@5")
    with pytest.raises(NotFound, match="no case c in version 4"):
        await get_example(store, dataset, "c")
    with pytest.raises(Conflict, match="already has a case a"):
        await put_examples(store, dataset, [example(store, dataset, "a", "again")])
    with pytest.raises(NotFound):
        await find_dataset(store.in_project("other"), "shop")
    with pytest.raises(Refused, match="1 to 255"):
        await create_dataset(store, " ")
    assert (await find_dataset(store, "shop")).version == 4

    await delete_dataset(store, dataset)
    kinds = (Dataset, Example, PastExample, DatasetVersion)
    assert [await store.table(kind).count() for kind in kinds] == [0, 0, 0, 0]


async def test_writers_at_the_same_time_make_different_versions(store: Store) -> None:
    dataset = await create_dataset(store, "busy")
    writes = [put_examples(store, dataset, [example(store, dataset, f"c{number}", "?")]) for number in range(12)]
    made = await asyncio.gather(*writes)
    assert sorted(version.number for version in made if version is not None) == list(range(1, 13))
    dataset = (await find_dataset(store, "busy")).dataset
    assert [version.examples for version in await versions_of(store, dataset)] == list(range(12, 0, -1))
    assert len(await questions(store, "busy@7")) == 7
    same = [put_examples(store, dataset, [example(store, dataset, "same", "?")]) for _ in range(4)]
    outcomes = await asyncio.gather(*same, return_exceptions=True)
    assert sum(isinstance(outcome, Conflict) for outcome in outcomes) == 3


async def test_runs_and_threads_become_cases_once(store: Store) -> None:
    agent = Agent("helper", model=Scripted(lambda request: f"Answer {len(request.messages)}"), title=False)
    first = await agent.run("Where is my order?", store=store, thread="ada")
    second = await agent.run("And now?", store=store, thread="ada")
    picture = [{"type": "text", "text": "What is this?"}, {"type": "text", "text": "A cat?"}]
    await agent.run(picture, store=store, thread="bob")
    await store.create(key="empty", kind="chat")

    result = await add_to_dataset(store, "support", ["bob", "ada", first.run_id, "empty", str(second.run_id)])
    assert [(case.inputs, case.outputs, case.source_run_id == first.run_id) for case in result.added] == [
        ({"input": picture}, {"output": "Answer 1"}, False),
        ({"input": "And now?"}, {"output": "Answer 3"}, False),
        ({"input": "Where is my order?"}, {"output": "Answer 1"}, True),
    ]
    assert result.skipped == [("empty", "the thread has no finished run")]
    assert (result.dataset.version, result.dataset.name) == (1, "support")
    assert await questions(store, "support") == [picture, "And now?", "Where is my order?"]

    # A case that was edited is not replaced by its run.
    (case,) = [each for each in result.added if each.source_run_id == first.run_id]
    await change_examples(store, result.dataset.id, [case.changed(outputs={"output": "At the depot"})])
    again = await add_to_dataset(store, "support", ["ada", first.run_id], create=False)
    assert (again.added, set(again.known), again.dataset.version) == ([], {first.run_id, second.run_id}, 2)
    assert (await get_example(store, again.dataset, case.id)).outputs == {"output": "At the depot"}
    assert again.as_json()["known"] == [str(second.run_id), str(first.run_id)]

    with pytest.raises(NotFound, match="neither a thread nor a run"):
        await add_to_dataset(store, "new", ["ada", "missing"])
    with pytest.raises(NotFound, match="Dataset new not found"):
        await add_to_dataset(store, "new", ["ada"], create=False)
    with pytest.raises(Refused, match="earlier version"):
        await add_to_dataset(store, "support@1", ["bob"])
