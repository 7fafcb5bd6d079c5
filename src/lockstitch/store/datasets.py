"""Datasets with their examples, and experiments: create, find and delete them in the project of a store.

The tables `store.datasets`, `store.examples` and `store.experiments` read and write single records of all projects. The
functions of this module keep names unique and delete what belongs to a dataset.
"""

from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

from lockstitch.backend import Where
from lockstitch.errors import Conflict, NotFound
from lockstitch.model import Dataset, Example, ExampleFile, Experiment, foreign_id
from lockstitch.store.store import Store


def dataset_id(project: str, name: str) -> UUID:
    """Return the id of a new dataset. Two processes that create the same name get the same id, so one of them fails."""
    return foreign_id(project, "native", f"dataset:{name}")


def experiment_id(project: str, name: str) -> UUID:
    """Return the id of the experiment or group of runs with this name. It is also known before a record exists."""
    return foreign_id(project, "langsmith", f"session:{name}")


async def create_dataset(store: Store, name: str, **fields: Any) -> Dataset:
    """Create a dataset and return it.

    Args:
        store: The store. The dataset belongs to its project.
        name: Name, unique within the project.
        fields: Other fields of `Dataset`.

    Raises:
        Conflict: If the project has a dataset with this name.
    """
    now = store.clock.now()
    about: dict[str, Any] = {"project": store.project, "name": name, "created_at": now, "updated_at": now, **fields}
    if await dataset_named(store, name) is not None:
        raise Conflict(f"Dataset {name} already exists in project {store.project}. Nothing was written.")
    dataset = Dataset(id=dataset_id(store.project, name), **about)
    try:
        await store.datasets.put(dataset, new=True)
    except Conflict:
        if await dataset_named(store, name) is not None:
            raise
        # A dataset that has another name today was created with this name.
        dataset = Dataset(**about)
        await store.datasets.put(dataset, new=True)
    return dataset


async def dataset_named(store: Store, name: str) -> Dataset | None:
    """Return the dataset with this name, or None.

    Args:
        store: The store. Datasets of other projects are not found.
        name: Name of the dataset.
    """
    return await store.datasets.first(Where("project", "=", store.project), Where("name", "=", name))


async def get_dataset(store: Store, id: UUID) -> Dataset:
    """Return a dataset of the project.

    Args:
        store: The store. Datasets of other projects are not found.
        id: Id of the dataset.

    Raises:
        NotFound: If the project has no such dataset.
    """
    dataset = await store.datasets.get_or_none(id)
    if dataset is None or dataset.project != store.project:
        raise NotFound(f"Dataset {id} not found in project {store.project}.")
    return dataset


async def delete_dataset(store: Store, dataset: Dataset) -> None:
    """Delete a dataset with its examples and their files. Experiments on it stay.

    Args:
        store: The store.
        dataset: The dataset.
    """
    # The dataset first: without it, no example can be added.
    await store.datasets.delete(id=dataset.id)
    while examples := await store.examples.find(Where("dataset_id", "=", dataset.id), limit=500):
        await delete_examples(store, [example.id for example in examples])


async def put_examples(
    store: Store, dataset: Dataset, examples: Sequence[Example], files: Sequence[ExampleFile] = ()
) -> None:
    """Write examples of a dataset with their files. The change time of the dataset becomes the current time.

    Args:
        store: The store.
        dataset: The dataset.
        examples: New or changed examples.
        files: New files of these examples.
    """
    if files:
        await store.table(ExampleFile).put(*files)
    await store.examples.put(*examples)
    await store.datasets.put(dataset.changed(updated_at=store.clock.now()))


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

    Args:
        store: The store. Examples of other projects stay.
        ids: Ids of examples.
    """
    if not ids:
        return 0
    project = Where("project", "=", store.project)
    number = await store.examples.delete(Where("id", "in", sorted(set(ids))), project)
    await store.table(ExampleFile).delete(Where("example_id", "in", sorted(set(ids))), project)
    return number


async def create_experiment(store: Store, name: str, **fields: Any) -> Experiment:
    """Create an experiment and return it.

    Args:
        store: The store. The experiment belongs to its project.
        name: Name, unique within the project. Runs of the experiment have it as `group` in their state.
        fields: Other fields of `Experiment`.

    Raises:
        Conflict: If the project has an experiment with this name.
    """
    now = store.clock.now()
    about: dict[str, Any] = {"started_at": now, "created_at": now, "updated_at": now, **fields}
    experiment = Experiment(id=experiment_id(store.project, name), project=store.project, name=name, **about)
    try:
        await store.experiments.put(experiment, new=True)
    except Conflict as exc:
        raise Conflict(f"Experiment {name} already exists in project {store.project}. Nothing was written.") from exc
    return experiment


async def get_experiment(store: Store, id: UUID) -> Experiment | None:
    """Return an experiment of the project, or None.

    Args:
        store: The store. Experiments of other projects are not found.
        id: Id of the experiment.
    """
    experiment = await store.experiments.get_or_none(id)
    return experiment if experiment is not None and experiment.project == store.project else None
