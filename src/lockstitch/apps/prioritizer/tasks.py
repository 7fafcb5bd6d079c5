"""The tasks that a session is about: those of its user's documents, or of the documents that it names."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from uuid import UUID

from lockstitch.apps.prioritizer.models import Task, TaskDependency
from lockstitch.apps.prioritizer.records import Document, Outcome, TaskRelationship
from lockstitch.backend import Find, Where
from lockstitch.records import Thread, as_id
from lockstitch.store import Store


@dataclass(frozen=True)
class TaskBase:
    """Documents with their tasks, and what is stored of who waits for whom."""

    outcome: Outcome | None
    documents: Sequence[Document]
    relationships: Sequence[TaskRelationship]

    @cached_property
    def tasks(self) -> dict[str, Task]:
        return {task.id: task for document in self.documents for task in document.tasks}

    @cached_property
    def document_of(self) -> dict[str, Document]:
        return {task.id: document for document in self.documents for task in document.tasks}

    @cached_property
    def dependencies(self) -> list[TaskDependency]:
        """Those between tasks that there are."""
        known = self.tasks
        return [
            one.dependency for one in self.relationships if one.source_task_id in known and one.target_task_id in known
        ]


async def base_of(store: Store, thread: Thread) -> TaskBase:
    """What the session of this thread is about, as it stands now."""
    outcome_id = as_id(str(thread.extras.get("outcome_id")))
    outcome = await store.backend.get(Outcome, (outcome_id,)) if outcome_id else None
    named = thread.extras.get("documents")
    documents = None if named is None else [UUID(str(one)) for one in named]
    return await base_for(store, thread.project, thread.user_id or "", documents, outcome)


async def base_for(
    store: Store, project: str, user_id: str, documents: Sequence[UUID] | None, outcome: Outcome | None = None
) -> TaskBase:
    """The documents of a user, all or these, oldest first."""
    theirs = (Where("project", "=", project), Where("user_id", "=", user_id))
    found = await store.backend.find(Find(Document, theirs, order=("created_at", "id")))
    if documents is not None:
        place = {id: number for number, id in enumerate(documents)}
        found = sorted((one for one in found if one.id in place), key=lambda one: place[one.id])
    order = ("source_task_id", "target_task_id", "relationship_type")
    relationships = await store.backend.find(Find(TaskRelationship, theirs, order=order))
    return TaskBase(outcome, found, relationships)
