"""Store and read outcomes, documents with tasks, and relationships of tasks."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Final
from uuid import UUID

from lockstitch import Conflict, NotFound, Refused, Store, Thread, Transaction
from lockstitch.apps.prioritizer.list_parsers import read_list
from lockstitch.apps.prioritizer.models import RelationshipType, Task, TaskDependency, as_json
from lockstitch.apps.prioritizer.records import Document, Outcome, TaskRelationship
from lockstitch.apps.prioritizer.task_lists import TaskList
from lockstitch.ext import Record, Where, as_id, foreign_id


@dataclass(frozen=True)
class TaskBase:
    """Documents with their tasks, and the stored dependencies."""

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
        """Stored dependencies between existing tasks."""
        tasks = self.tasks
        return [
            relationship.dependency
            for relationship in self.relationships
            if relationship.source_task_id in tasks and relationship.target_task_id in tasks
        ]


async def base_of(store: Store, thread: Thread) -> TaskBase:
    """Return the current outcome, documents and dependencies of a session."""
    outcome_id = as_id(str(thread.extras.get("outcome_id")))
    outcome = await store.table(Outcome).get_or_none(outcome_id) if outcome_id else None
    named = thread.extras.get("documents")
    documents = None if named is None else [UUID(str(item)) for item in named]
    return await base_for(store, thread.project, thread.user_id or "", documents, outcome)


async def base_for(
    store: Store, project: str, user_id: str, documents: Sequence[UUID] | None, outcome: Outcome | None = None
) -> TaskBase:
    """Return the documents of a user, oldest first, or these documents in their order."""
    owned = (Where("project", "=", project), Where("user_id", "=", user_id))
    rows = await store.table(Document).find(*owned, order=("created_at", "id"))
    if documents is not None:
        place = {id: number for number, id in enumerate(documents)}
        rows = sorted((document for document in rows if document.id in place), key=lambda document: place[document.id])
    order = ("source_task_id", "target_task_id", "relationship_type")
    relationships = await store.table(TaskRelationship).find(*owned, order=order)
    return TaskBase(outcome, rows, relationships)


LONGEST: Final = 2_000
"""Maximum number of characters of an outcome."""


@dataclass(frozen=True, slots=True)
class Imported:
    """The records of an imported file, in the order in which they must be written."""

    documents: list[Document]
    relationships: list[TaskRelationship]
    before: Sequence[Document] = ()
    """The documents of the previous version of the file."""

    @property
    def records(self) -> list[Record]:
        return [*self.documents, *self.relationships]

    @property
    def task_count(self) -> int:
        return sum(len(document.tasks) for document in self.documents)


def new_outcome(store: Store, user_id: str, statement: str) -> Outcome:
    """Return a new outcome without storing it. Raises `Refused` if it is not valid."""
    now = store.clock.now()
    wanted = " ".join(statement.split())
    if not user_id.strip():
        raise Refused("An outcome needs a user_id.")
    if not wanted or len(wanted) > LONGEST:
        raise Refused(f"An outcome has 1 to {LONGEST:,} characters, not {len(wanted):,}.")
    return Outcome(project=store.project, user_id=user_id, statement=wanted, created_at=now, updated_at=now)


async def add_outcome(store: Store, user_id: str, statement: str) -> Outcome:
    outcome = new_outcome(store, user_id, statement)
    await store.table(Outcome).put(outcome)
    return outcome


async def outcome_of(store: Store, outcome_id: UUID) -> Outcome:
    """Return an outcome of this project. Raises `NotFound` if it does not exist."""
    outcome = await store.table(Outcome).get_or_none(outcome_id)
    if outcome is None or outcome.project != store.project:
        raise NotFound(f"Outcome {outcome_id} not found in project {store.project}.")
    return outcome


async def outcomes(store: Store, user_id: str | None = None) -> list[Outcome]:
    """Return the outcomes of a user or of all users, newest first."""
    return await store.table(Outcome).find(*_owned_by(store, user_id), order=("-created_at", "-id"))


async def set_active(store: Store, outcome_id: UUID, active: bool) -> Outcome:
    outcome = (await outcome_of(store, outcome_id)).changed(is_active=active, updated_at=store.clock.now())
    await store.table(Outcome).put(outcome)
    return outcome


async def documents(store: Store, user_id: str | None = None) -> list[Document]:
    """Return the documents of a user or of all users, oldest first."""
    return await store.table(Document).find(*_owned_by(store, user_id), order=("created_at", "id"))


async def of_file(store: Store, user_id: str, name: str) -> list[Document]:
    """Return the documents of the user's file with this name."""
    return await store.table(Document).find(*_owned_by(store, user_id), Where("source", "=", name))


async def read_file(store: Store, user_id: str, content: bytes | str, name: str) -> Imported:
    """Parse a file into records without storing them. They replace the documents of a file with the same name.

    Raises `Refused` if the file cannot be parsed.
    """
    known = await documents(store, user_id)
    task_ids = [task.id for document in known if document.source != name for task in document.tasks]
    before = [document for document in known if document.source == name]
    return imported(store, user_id, name, read_list(content, name, task_ids), before)


def imported(store: Store, user_id: str, name: str, task_list: TaskList, before: Sequence[Document]) -> Imported:
    """Return the records of a task list. They replace the documents `before`."""
    now = store.clock.now()
    documents: dict[UUID, Document] = {}
    owner: dict[str, UUID] = {}
    for place, document in enumerate(task_list.documents):
        id = foreign_id(store.project, "prioritizer", "\x1f".join((user_id, name, document.title)))
        same = documents.get(id)
        # Headings with the same text are one document.
        tasks = [*(same.structured_output["tasks"] if same else ()), *map(as_json, document.tasks)]
        documents[id] = Document(
            id=id,
            project=store.project,
            user_id=user_id,
            title=document.title,
            source=name,
            markdown=f"{same.markdown}\n\n{document.text}" if same else document.text,
            structured_output={"tasks": tasks},
            # Later documents of the file get later times, which keeps their order.
            created_at=now + timedelta(microseconds=place),
            updated_at=now,
        )
        owner |= {task.id: id for task in document.tasks}
    relationships = [
        TaskRelationship(
            project=store.project,
            user_id=user_id,
            source_task_id=relation.source,
            target_task_id=relation.target,
            relationship_type=relation.kind,
            confidence=relation.confidence,
            document_id=owner[relation.source],
            created_at=now,
            updated_at=now,
        )
        for relation in task_list.relations
    ]
    return Imported(list(documents.values()), relationships, before)


async def add_file(store: Store, user_id: str, content: bytes | str, name: str) -> Imported:
    """Store the tasks of a file. They replace the previous version of the file.

    If another file with the same task ids is stored at the same time, one of the two files gets other ids.
    """
    while True:
        imported = await read_file(store, user_id, content, name)
        try:
            await store.commit(Transaction(records=list(imported.records)))
        except Conflict:
            continue  # another file has stored one of these ids since
        await drop_stale(store, imported)
        return imported


async def drop_stale(store: Store, imported: Imported) -> None:
    """Delete documents that are no longer in the file, unless another caller has written them since."""
    remaining = {document.id for document in imported.documents}
    stale = [document for document in imported.before if document.id not in remaining]
    if stale:
        written = list({document.updated_at for document in stale})
        where = (Where("id", "in", [document.id for document in stale]), Where("updated_at", "in", written))
        await store.table(Document).delete(*where)


async def remove_document(store: Store, document_id: UUID) -> None:
    document = await store.table(Document).get_or_none(document_id)
    if document is None or document.project != store.project:
        raise NotFound(f"Document {document_id} not found in project {store.project}.")
    await store.table(Document).delete(Where("id", "=", document_id))


async def add_relationship(
    store: Store, user_id: str, source: str, target: str, kind: RelationshipType, confidence: float = 1.0
) -> TaskRelationship:
    """Store that the source task waits for the target. Raises `NotFound` if the user does not have the tasks."""
    tasks = (await base_for(store, store.project, user_id, None)).tasks
    for id in (source, target):
        if id not in tasks:
            raise NotFound(f"User {user_id} has no task {id}.")
    now = store.clock.now()
    task_relationship = TaskRelationship(
        project=store.project,
        user_id=user_id,
        source_task_id=source,
        target_task_id=target,
        relationship_type=kind,
        confidence=confidence,
        created_at=now,
        updated_at=now,
    )
    await store.table(TaskRelationship).put(task_relationship)
    return task_relationship


def _owned_by(store: Store, user_id: str | None) -> tuple[Where, ...]:
    project = Where("project", "=", store.project)
    return (project,) if user_id is None else (project, Where("user_id", "=", user_id))
