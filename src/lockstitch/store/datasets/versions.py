"""Write and read the examples of a dataset. Every change of examples makes a new version of the dataset.

`examples` has the current state of each example. A change moves the state that it replaces to `past_examples`, with the
range of versions that it belongs to. So a version costs as much space as its change.

**Two writers never make the same version.** A change inserts the record of its version, `(dataset, number)`, in the
same transaction as the examples. If another writer has inserted that number, nothing is written, and the change is
computed again from the new state.
"""

import asyncio
import random
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from lockstitch.backend import Where
from lockstitch.errors import Conflict, NotFound
from lockstitch.model import Dataset, DatasetVersion, Example, ExampleFile, PastExample
from lockstitch.store.datasets.catalog import get_dataset
from lockstitch.store.store import Store
from lockstitch.store.transaction import Transaction

_CONTENT: Final = ("name", "inputs", "outputs", "metadata", "splits", "source_run_id")
_STATE: Final = ("id", "project", "dataset_id", *_CONTENT, "version", "created_at", "updated_at")
_ATTEMPTS: Final = 100
_PAUSE: Final = (0.001, 0.05)


async def change_examples(
    store: Store,
    dataset_id: UUID,
    put: Sequence[Example] = (),
    *,
    remove: Collection[UUID] = (),
    files: Sequence[ExampleFile] = (),
    only_new: bool = False,
) -> DatasetVersion | None:
    """Write and delete examples of a dataset as one new version. Return it, or None if nothing changed.

    Args:
        store: The store.
        dataset_id: Id of the dataset.
        put: New or changed examples. An example with the content that is stored is not written.
        remove: Ids of examples to delete, with their files. Examples of other datasets stay.
        files: New files of these examples. Files have no versions.
        only_new: Leave out the examples of `put` whose ids the dataset has.

    Raises:
        Conflict: If another example of the dataset has a name that `put` contains.
        NotFound: If the project has no such dataset.
    """
    for _ in range(_ATTEMPTS):
        dataset = await get_dataset(store, dataset_id)
        transaction, version = await _change_of(store, dataset, put, remove, only_new)
        if files:
            transaction.records += files
        if version is None and not files:
            return None
        try:
            await store.commit(transaction)
        except Conflict:
            # Another writer has made this version.
            await asyncio.sleep(random.uniform(*_PAUSE))
            continue
        return version
    raise Conflict(f"Other writers change dataset {dataset_id} all the time. Nothing was written. Try again.")


async def _change_of(
    store: Store, dataset: Dataset, put: Sequence[Example], remove: Collection[UUID], only_new: bool
) -> tuple[Transaction, DatasetVersion | None]:
    ids = {example.id for example in put} | set(remove)
    of_dataset = Where("dataset_id", "=", dataset.id)
    found = await store.examples.find(Where("id", "in", sorted(ids)), of_dataset) if ids else []
    stored = {example.id: example for example in found}
    written = [
        example
        for example in put
        if example.id not in stored or not (only_new or _same_content(stored[example.id], example))
    ]
    removed = [stored[id] for id in set(remove) if id in stored]
    await _check_names(store, dataset, written, removed)
    now, number = store.clock.now(), dataset.version + 1
    transaction = Transaction()
    if not written and not removed:
        transaction.records.append(dataset.changed(updated_at=now))
        return transaction, None
    changed = [stored[example.id] for example in written if example.id in stored]
    added = len(written) - len(changed)
    version = DatasetVersion(
        dataset_id=dataset.id,
        number=number,
        project=dataset.project,
        examples=await store.examples.count(of_dataset) + added - len(removed),
        added=added,
        replaced=len(changed),
        removed=len(removed),
        created_at=now,
    )
    transaction.new_records.append(version)
    transaction.records += [_past(example, number) for example in (*changed, *removed)]
    transaction.records += [
        example.changed(dataset_id=dataset.id, version=number, updated_at=now) for example in written
    ]
    transaction.records.append(dataset.changed(version=number, updated_at=now))
    if removed:
        gone = [example.id for example in removed]
        transaction.delete(Example, Where("id", "in", gone))
        transaction.delete(ExampleFile, Where("example_id", "in", gone))
    return transaction, version


def _same_content(stored: Example, example: Example) -> bool:
    return all(getattr(stored, field) == getattr(example, field) for field in _CONTENT)


def _past(example: Example, until: int) -> PastExample:
    return PastExample(**{field: getattr(example, field) for field in _STATE}, until=until)


async def _check_names(store: Store, dataset: Dataset, written: Sequence[Example], removed: Sequence[Example]) -> None:
    """Raise `Conflict` if two examples would have the same name."""
    names = [example.name for example in written if example.name is not None]
    if not names:
        return
    own = {example.id for example in (*written, *removed)}
    where = (Where("dataset_id", "=", dataset.id), Where("name", "in", sorted(set(names))))
    others = [example.name for example in await store.examples.find(*where) if example.id not in own]
    twice = next((name for name in names if names.count(name) > 1), None) if len(set(names)) < len(names) else None
    if others or twice:
        name = others[0] if others else twice
        raise Conflict(f"Dataset {dataset.name} already has a case {name}. Nothing was written.")


async def put_examples(
    store: Store, dataset: Dataset, examples: Sequence[Example], files: Sequence[ExampleFile] = ()
) -> DatasetVersion | None:
    """Write examples of a dataset with their files, as one new version. Return it, or None if nothing changed.

    Args:
        store: The store.
        dataset: The dataset.
        examples: New or changed examples.
        files: New files of these examples.

    Raises:
        Conflict: If another example of the dataset has the name of one of these.
        NotFound: If the dataset was deleted.
    """
    return await change_examples(store, dataset.id, examples, files=files)


async def get_examples(store: Store, ids: Collection[UUID]) -> list[Example]:
    """Return the examples of the project with these ids. Unknown ids are left out.

    Args:
        store: The store. Examples of other projects are not found.
        ids: Ids of examples.
    """
    where = (Where("id", "in", sorted(set(ids))), Where("project", "=", store.project))
    return await store.examples.find(*where) if ids else []


async def delete_examples(store: Store, ids: Collection[UUID]) -> int:
    """Delete examples of the project with their files. Return the number of examples.

    Each dataset gets one new version. Its earlier versions still have the examples, without files.

    Args:
        store: The store. Examples of other projects stay.
        ids: Ids of examples.
    """
    examples = await get_examples(store, ids)
    number = 0
    for dataset_id in sorted({example.dataset_id for example in examples}):
        version = await change_examples(
            store, dataset_id, remove=[example.id for example in examples if example.dataset_id == dataset_id]
        )
        number += version.removed if version is not None else 0
    return number


async def examples_of(
    store: Store,
    dataset: Dataset,
    version: int | None = None,
    *,
    limit: int | None = None,
    after: tuple[datetime, UUID] | None = None,
) -> list[Example]:
    """Return the examples of one version of a dataset, oldest first.

    Args:
        store: The store.
        dataset: The dataset.
        version: Number of the version. None: the version that the dataset had when it was read.
        limit: Maximum number of examples. None: all.
        after: Creation time and id of the last example of the previous page.
    """
    number = dataset.version if version is None else version
    where = (Where("dataset_id", "=", dataset.id), Where("version", "<=", number))
    page: dict[str, Any] = {"order": ("created_at", "id"), "after": after, "limit": limit}
    # The current states first: a state that moves to the past between the two reads is read twice, and never missed.
    current = await store.examples.find(*where, **page)
    past = await store.table(PastExample).find(*where, Where("until", ">", number), **page)
    states = {state.id: _example(state) for state in past} | {example.id: example for example in current}
    ordered = sorted(states.values(), key=lambda example: (example.created_at, example.id))
    return ordered if limit is None else ordered[:limit]


def _example(state: PastExample) -> Example:
    return Example(**{field: getattr(state, field) for field in _STATE})


async def versions_of(
    store: Store, dataset: Dataset, *, limit: int | None = None, before: int | None = None
) -> list[DatasetVersion]:
    """Return the versions of a dataset, newest first.

    Args:
        store: The store.
        dataset: The dataset.
        limit: Maximum number of versions. None: all.
        before: Number of the last version of the previous page.
    """
    where = (Where("dataset_id", "=", dataset.id),)
    after = None if before is None else (before,)
    return await store.table(DatasetVersion).find(*where, order=("-number",), after=after, limit=limit)


async def version_at(store: Store, dataset: Dataset, moment: datetime) -> int:
    """Return the number of the version that a dataset had at a time. 0: it had no examples yet.

    Args:
        store: The store.
        dataset: The dataset.
        moment: The time.
    """
    where = (Where("dataset_id", "=", dataset.id), Where("created_at", "<=", moment))
    version = await store.table(DatasetVersion).first(*where, order=("-number",))
    return 0 if version is None else version.number


async def get_example(store: Store, dataset: Dataset, case: str | UUID, version: int | None = None) -> Example:
    """Return one example of a dataset by its name or id.

    Args:
        store: The store.
        dataset: The dataset.
        case: Name or id of the example.
        version: Number of the version. None: the version that the dataset had when it was read.

    Raises:
        NotFound: If this version of the dataset has no such example.
    """
    number = dataset.version if version is None else version
    for example in await examples_of(store, dataset, number):
        if str(case) in (example.name, str(example.id)):
            return example
    raise NotFound(f"Dataset {dataset.name} has no case {case} in version {number}.")
