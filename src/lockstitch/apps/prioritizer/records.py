"""Record classes of the prioritizer: outcomes, documents with tasks, relationships of tasks, and sessions."""

from typing import Annotated, ClassVar, Final, Literal, Self
from uuid import UUID

from pydantic import Field, model_validator

from lockstitch.apps.prioritizer.models import (
    MAX_STEPS,
    ExecutionMetadata,
    Plan,
    RelationshipType,
    SessionStatus,
    Task,
    TaskDependency,
    check_plan,
)
from lockstitch.ext import Count, Json, Number, Record, Text, Time, new_id

User = Annotated[Text, Field(min_length=1, max_length=255)]
NonEmptyText = Annotated[Text, Field(min_length=1)]


class Outcome(Record):
    """The goal of a user. Plans can be made for it while it is active."""

    table: ClassVar[str] = "user_outcomes"

    id: UUID = Field(default_factory=new_id)
    project: Text = "default"
    user_id: User
    statement: NonEmptyText
    is_active: bool = True
    created_at: Time
    updated_at: Time


class Document(Record):
    """A document of a user. `structured_output` contains its tasks."""

    table: ClassVar[str] = "processed_documents"

    id: UUID = Field(default_factory=new_id)
    project: Text = "default"
    user_id: User
    title: NonEmptyText
    source: Text | None = None
    markdown: Text
    structured_output: Json
    created_at: Time
    updated_at: Time

    @property
    def tasks(self) -> list[Task]:
        return [Task.model_validate(task) for task in self.structured_output["tasks"]]


class TaskRelationship(Record):
    """A stored dependency: the source task waits for the target task."""

    table: ClassVar[str] = "task_relationships"
    primary_key: ClassVar[tuple[str, ...]] = (
        *("project", "user_id", "source_task_id", "target_task_id", "relationship_type"),
    )

    project: Text = "default"
    user_id: User
    source_task_id: NonEmptyText
    target_task_id: NonEmptyText
    relationship_type: RelationshipType
    confidence: Annotated[Number, Field(ge=0, le=1)] = 1.0
    detection: Literal["manual", "ai"] = "manual"
    document_id: UUID | None = None
    """The document that states the dependency. It is deleted with the document."""
    created_at: Time
    updated_at: Time

    @model_validator(mode="after")
    def _of_two_tasks(self) -> Self:
        if self.source_task_id == self.target_task_id:
            raise ValueError(f"task {self.source_task_id} cannot wait for itself")
        return self

    @property
    def dependency(self) -> TaskDependency:
        return TaskDependency(
            source_task_id=self.source_task_id,
            target_task_id=self.target_task_id,
            relationship_type=self.relationship_type,
            confidence=self.confidence,
            detection_method="stored_relationship",
        )


class Session(Record):
    """A prioritisation: one thread and its result."""

    table: ClassVar[str] = "prioritizer_sessions"
    primary_key: ClassVar[tuple[str, ...]] = ("thread_id",)

    thread_id: UUID
    project: Text = "default"
    user_id: User
    outcome_id: UUID
    is_active: bool = True
    status: SessionStatus = "running"
    plan: Json | None = None
    metadata: Json = {}
    steps_taken: Annotated[Count, Field(le=MAX_STEPS)] = 0
    trace_expires_at: Time
    trace_kept: bool = True
    """True while the log contains the reasoning."""
    created_at: Time
    updated_at: Time

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        check_plan(self.status, self.plan)
        if self.plan is not None:
            Plan.model_validate(self.plan)
        if ExecutionMetadata.model_validate(self.metadata).steps_taken not in (0, self.steps_taken):
            raise ValueError("steps_taken differs from the metadata")
        return self


KINDS: Final = (Outcome, Document, TaskRelationship, Session)
