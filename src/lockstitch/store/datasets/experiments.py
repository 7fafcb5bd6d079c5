"""Create and find experiments: named groups of runs, in the project of a store."""

from typing import Any
from uuid import UUID

from lockstitch.errors import Conflict
from lockstitch.model import Experiment, foreign_id
from lockstitch.store.store import Store


def experiment_id(project: str, name: str) -> UUID:
    """Return the id of the experiment or group of runs with this name. It is also known before a record exists."""
    return foreign_id(project, "langsmith", f"session:{name}")


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
