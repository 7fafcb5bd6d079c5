"""Datasets with versions of their examples, cases made of runs, and experiments, in the project of a store.

The tables `store.datasets`, `store.examples` and `store.experiments` read and write single records of all projects. The
functions of this package keep names unique, make versions, and delete what belongs to a dataset.
"""

from lockstitch.store.datasets.catalog import (
    DatasetRef,
    change_dataset,
    check_dataset_name,
    create_dataset,
    dataset_id,
    dataset_named,
    delete_dataset,
    find_dataset,
    get_dataset,
)
from lockstitch.store.datasets.experiments import create_experiment, experiment_id, get_experiment
from lockstitch.store.datasets.sources import AddedCases, add_to_dataset, content_of, finished_run
from lockstitch.store.datasets.versions import (
    change_examples,
    delete_examples,
    examples_of,
    get_example,
    get_examples,
    put_examples,
    version_at,
    versions_of,
)

__all__ = [
    "AddedCases",
    "DatasetRef",
    "add_to_dataset",
    "change_dataset",
    "change_examples",
    "check_dataset_name",
    "content_of",
    "create_dataset",
    "create_experiment",
    "dataset_id",
    "dataset_named",
    "delete_dataset",
    "delete_examples",
    "examples_of",
    "experiment_id",
    "find_dataset",
    "finished_run",
    "get_dataset",
    "get_example",
    "get_examples",
    "get_experiment",
    "put_examples",
    "version_at",
    "versions_of",
]
