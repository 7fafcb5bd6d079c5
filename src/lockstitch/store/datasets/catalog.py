"""Create, find, rename and delete datasets in the project of a store. Names are unique within a project."""

from typing import Any, Final, NamedTuple
from uuid import UUID

from lockstitch.backend import Where
from lockstitch.errors import Conflict, NotFound, Refused
from lockstitch.model import Dataset, DatasetVersion, ExampleFile, PastExample, as_id, codec, foreign_id
from lockstitch.store.store import Store

MAX_NAME: Final = 255
_AT_ONCE: Final = 500


class DatasetRef(NamedTuple):
    """A dataset and one of its versions."""

    dataset: Dataset
    version: int

    @property
    def text(self) -> str:
        """The name with the version, as in `questions@3`."""
        return f"{self.dataset.name}@{self.version}"


def dataset_id(project: str, name: str) -> UUID:
    """Return the id of a new dataset. Two processes that create the same name get the same id, so one of them fails."""
    return foreign_id(project, "native", f"dataset:{name}")


async def create_dataset(store: Store, name: str, **fields: Any) -> Dataset:
    """Create a dataset and return it.

    Args:
        store: The store. The dataset belongs to its project.
        name: Name, unique within the project.
        fields: Other fields of `Dataset`.

    Raises:
        Conflict: If the project has a dataset with this name.
        Refused: If the name is empty or too long.
    """
    check_dataset_name(name)
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


async def find_dataset(store: Store, reference: str | UUID | Dataset) -> DatasetRef:
    """Return a dataset of the project, with the version that the reference names, or the current one.

    Args:
        store: The store. Datasets of other projects are not found.
        reference: Name or id of the dataset. `name@3` is version 3. A `Dataset` is the version that it had when it was
            read.

    Raises:
        NotFound: If the project has no such dataset, or the dataset has no such version.
    """
    if isinstance(reference, Dataset):
        return DatasetRef(reference, reference.version)
    if isinstance(reference, UUID):
        dataset = await get_dataset(store, reference)
        return DatasetRef(dataset, dataset.version)
    dataset = await _by_name_or_id(store, reference)
    if dataset is not None:
        return DatasetRef(dataset, dataset.version)
    name, _, number = reference.rpartition("@")
    dataset = await _by_name_or_id(store, name) if number.isascii() and number.isdigit() else None
    if dataset is None:
        raise NotFound(f"Dataset {reference} not found in project {store.project}.")
    if not 1 <= int(number) <= dataset.version:
        raise NotFound(f"Dataset {name} has no version {number}. Its current version is {dataset.version}.")
    return DatasetRef(dataset, int(number))


async def _by_name_or_id(store: Store, text: str) -> Dataset | None:
    named = await dataset_named(store, codec.check_text(text, "The name of the dataset")) if text else None
    id = as_id(text)
    if named is not None or id is None:
        return named
    dataset = await store.datasets.get_or_none(id)
    return dataset if dataset is not None and dataset.project == store.project else None


async def change_dataset(store: Store, dataset: Dataset, **fields: Any) -> Dataset:
    """Change fields of a dataset other than its examples, and return it. The version stays.

    Args:
        store: The store.
        dataset: The dataset.
        fields: Changed fields of `Dataset`.

    Raises:
        Conflict: If another dataset of the project has the new name.
    """
    name = fields.get("name", dataset.name)
    if name != dataset.name and await dataset_named(store, check_dataset_name(name)) is not None:
        raise Conflict(f"Dataset {name} already exists in project {store.project}. Nothing was written.")
    changed = dataset.changed(**dataset.validate_fields({**fields, "updated_at": store.clock.now()}))
    await store.datasets.put(changed)
    return changed


async def delete_dataset(store: Store, dataset: Dataset) -> None:
    """Delete a dataset with all versions of its examples and their files. Experiments and evaluations on it stay.

    Args:
        store: The store.
        dataset: The dataset.
    """
    # The dataset first: without it, no example can be added.
    await store.datasets.delete(id=dataset.id)
    of_dataset = Where("dataset_id", "=", dataset.id)
    while examples := await store.examples.find(of_dataset, limit=_AT_ONCE):
        ids = [example.id for example in examples]
        await store.examples.delete(Where("id", "in", ids))
        await store.table(ExampleFile).delete(Where("example_id", "in", ids))
    await store.table(PastExample).delete(of_dataset)
    await store.table(DatasetVersion).delete(of_dataset)


def check_dataset_name(name: str) -> str:
    """Return the name of a dataset. Raises `Refused` if it is empty or too long."""
    codec.check_text(name, "The name of the dataset")
    if not name.strip() or len(name) > MAX_NAME:
        raise Refused(f"The name of a dataset must have 1 to {MAX_NAME} characters.")
    return name
