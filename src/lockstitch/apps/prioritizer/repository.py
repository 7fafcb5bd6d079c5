"""Outcomes, documents, tasks, relationships: stored and read."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Final
from uuid import UUID

from lockstitch import NotFound, Refused, Store, Thread, Transaction
from lockstitch.apps.prioritizer.list_parsers import read_list
from lockstitch.apps.prioritizer.models import RelationshipType, Task, TaskDependency, as_json
from lockstitch.apps.prioritizer.records import Document, Outcome, TaskRelationship
from lockstitch.apps.prioritizer.task_lists import TaskList
from lockstitch.ext import Record, Where, as_id, foreign_id


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
        tasks = self.tasks
        return [
            relationship.dependency
            for relationship in self.relationships
            if relationship.source_task_id in tasks and relationship.target_task_id in tasks
        ]


async def base_of(store: Store, thread: Thread) -> TaskBase:
    """What the session of this thread is about, as it stands now."""
    outcome_id = as_id(str(thread.extras.get("outcome_id")))
    outcome = await store.table(Outcome).get_or_none(outcome_id) if outcome_id else None
    named = thread.extras.get("documents")
    documents = None if named is None else [UUID(str(item)) for item in named]
    return await base_for(store, thread.project, thread.user_id or "", documents, outcome)


async def base_for(
    store: Store, project: str, user_id: str, documents: Sequence[UUID] | None, outcome: Outcome | None = None
) -> TaskBase:
    """The documents of a user, all or these, oldest first."""
    theirs = (Where("project", "=", project), Where("user_id", "=", user_id))
    rows = await store.table(Document).find(*theirs, order=("created_at", "id"))
    if documents is not None:
        place = {id: number for number, id in enumerate(documents)}
        rows = sorted((document for document in rows if document.id in place), key=lambda document: place[document.id])
    order = ("source_task_id", "target_task_id", "relationship_type")
    relationships = await store.table(TaskRelationship).find(*theirs, order=order)
    return TaskBase(outcome, rows, relationships)


LONGEST: Final = 2_000
"""Letters of an outcome."""


@dataclass(frozen=True, slots=True)
class Imported:
    """The documents that a file became, and all records of theirs in the order in which they must be written."""

    documents: list[Document]
    relationships: list[TaskRelationship]
    before: Sequence[Document] = ()
    """What the file was when it was read."""

    @property
    def records(self) -> list[Record]:
        return [*self.documents, *self.relationships]

    @property
    def task_count(self) -> int:
        return sum(len(document.tasks) for document in self.documents)


def new_outcome(store: Store, user_id: str, statement: str) -> Outcome:
    """An outcome that is not stored yet."""
    now = store.clock.now()
    wanted = " ".join(statement.split())
    if not user_id.strip():
        raise Refused("An outcome is somebody's: say whose.")
    if not wanted or len(wanted) > LONGEST:
        text = f"{len(wanted):,} letters" if wanted else "nothing"
        raise Refused(
            f"An outcome says in at most {LONGEST:,} letters what is to be true in the end; this one says {text}."
        )
    return Outcome(project=store.project, user_id=user_id, statement=wanted, created_at=now, updated_at=now)


async def add_outcome(store: Store, user_id: str, statement: str) -> Outcome:
    outcome = new_outcome(store, user_id, statement)
    await store.table(Outcome).put(outcome)
    return outcome


async def outcome_of(store: Store, outcome_id: UUID) -> Outcome:
    """An outcome of this project, or NotFound."""
    outcome = await store.table(Outcome).get_or_none(outcome_id)
    if outcome is None or outcome.project != store.project:
        raise NotFound(f"There is no outcome {outcome_id} in project {store.project} of this store.")
    return outcome


async def outcomes(store: Store, user_id: str | None = None) -> list[Outcome]:
    """The outcomes of a user or of all, newest first."""
    return await store.table(Outcome).find(*_theirs(store, user_id), order=("-created_at", "-id"))


async def set_active(store: Store, outcome_id: UUID, active: bool) -> Outcome:
    outcome = (await outcome_of(store, outcome_id)).changed(is_active=active, updated_at=store.clock.now())
    await store.table(Outcome).put(outcome)
    return outcome


async def documents(store: Store, user_id: str | None = None) -> list[Document]:
    """The documents of a user or of all, oldest first."""
    return await store.table(Document).find(*_theirs(store, user_id), order=("created_at", "id"))


async def of_file(store: Store, user_id: str, name: str) -> list[Document]:
    """The documents that a user's file of this name is."""
    return await store.table(Document).find(*_theirs(store, user_id), Where("source", "=", name))


async def read_file(store: Store, user_id: str, content: bytes | str, name: str) -> Imported:
    """What a file would become: nothing is written yet. Refused says what is wrong with it.

    The same file read again takes the place of what it was before.
    """
    known = await documents(store, user_id)
    task_ids = [task.id for document in known if document.source != name for task in document.tasks]
    before = [document for document in known if document.source == name]
    return imported(store, user_id, name, read_list(content, name, task_ids), before)


def imported(store: Store, user_id: str, name: str, task_list: TaskList, before: Sequence[Document]) -> Imported:
    """A file's list as the documents that take the place of those `before`."""
    now = store.clock.now()
    documents: dict[UUID, Document] = {}
    owner: dict[str, UUID] = {}
    for place, document in enumerate(task_list.documents):
        id = foreign_id(store.project, "prioritizer", "\x1f".join((user_id, name, document.title)))
        same = documents.get(id)
        # Two headings of one name are one document.
        tasks = [*(same.structured_output["tasks"] if same else ()), *map(as_json, document.tasks)]
        documents[id] = Document(
            id=id,
            project=store.project,
            user_id=user_id,
            title=document.title,
            source=name,
            markdown=f"{same.markdown}\n\n{document.text}" if same else document.text,
            structured_output={"tasks": tasks},
            # So that they are found in the order of the file.
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
    """Keep the tasks of a file. What the file said before is replaced."""
    imported = await read_file(store, user_id, content, name)
    await store.commit(Transaction(records=list(imported.records)))
    await drop_stale(store, imported)
    return imported


async def drop_stale(store: Store, imported: Imported) -> None:
    """Remove documents that a file held and holds no more, as they were when it was read: one that somebody else has
    written since, who keeps a file of this name at the same moment, is not stale."""
    remaining = {document.id for document in imported.documents}
    stale = [document for document in imported.before if document.id not in remaining]
    if stale:
        written = list({document.updated_at for document in stale})
        where = (Where("id", "in", [document.id for document in stale]), Where("updated_at", "in", written))
        await store.table(Document).delete(*where)


async def remove_document(store: Store, document_id: UUID) -> None:
    document = await store.table(Document).get_or_none(document_id)
    if document is None or document.project != store.project:
        raise NotFound(f"There is no document {document_id} in project {store.project} of this store.")
    await store.table(Document).delete(Where("id", "=", document_id))


async def add_relationship(
    store: Store, user_id: str, source: str, target: str, kind: RelationshipType, confidence: float = 1.0
) -> TaskRelationship:
    """Keep that one task waits for another. NotFound when the user has no such task."""
    tasks = (await base_for(store, store.project, user_id, None)).tasks
    for id in (source, target):
        if id not in tasks:
            raise NotFound(f"{user_id} has no task {id}.")
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


def _theirs(store: Store, user_id: str | None) -> tuple[Where, ...]:
    project = Where("project", "=", store.project)
    return (project,) if user_id is None else (project, Where("user_id", "=", user_id))
