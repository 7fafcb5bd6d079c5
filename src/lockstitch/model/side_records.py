"""Small records that belong to threads, runs, stitches or projects. Each class is one table."""

from collections.abc import Iterable
from datetime import date, datetime
from typing import Annotated, ClassVar, Literal
from uuid import UUID

from pydantic import Field

from lockstitch.model.clock import format_time
from lockstitch.model.ids import new_id
from lockstitch.model.record import Count, Json, Number, Record, Text, Time
from lockstitch.model.run import Run

Name = Annotated[Text, Field(min_length=1, max_length=255)]
"""A text of 1 to 255 characters, for fields of records."""


class Agent(Record):
    """A named agent, team or workflow."""

    table: ClassVar[str] = "agents"
    primary_key: ClassVar[tuple[str, ...]] = ("project", "name")

    project: Name = "default"
    """Project of the agent."""
    name: Name
    """Name, unique within its project."""
    role: Literal["agent", "team", "workflow"] = "agent"
    """Role of the definition."""
    version: Count = 1
    """Number of the current version: the definition that was registered last."""
    metadata: Json = {}
    """Additional data."""
    created_at: Time
    """Creation time."""
    updated_at: Time
    """Time of the last change."""


class AgentVersion(Record):
    """One version of an agent's definition."""

    table: ClassVar[str] = "agent_versions"
    primary_key: ClassVar[tuple[str, ...]] = ("project", "name", "version")

    project: Name = "default"
    """Project of the agent."""
    name: Name
    """Name of the agent."""
    version: Count
    """Number of the version."""
    digest: Text
    """Digest of the definition. A definition with another digest becomes a new version."""
    definition: Json
    """The definition as JSON."""
    created_at: Time
    """Creation time."""


class TeamMember(Record):
    """A member in one version of a team."""

    table: ClassVar[str] = "agent_links"
    primary_key: ClassVar[tuple[str, ...]] = ("project", "team", "version", "place")

    project: Name = "default"
    """Project of the team."""
    team: Name
    """Name of the team."""
    version: Count
    """Version of the team."""
    place: Count
    """Number of the member in the team, from 1."""
    member: Name
    """Name of the member."""
    member_version: Count | None = None
    """Version of the member."""


class Blob(Record):
    """Content that is stored once under its sha256: media of messages, system texts and tool lists of requests."""

    table: ClassVar[str] = "blobs"
    primary_key: ClassVar[tuple[str, ...]] = ("sha256",)

    sha256: Annotated[Text, Field(min_length=64, max_length=64)]
    """SHA-256 of the content, in hex."""
    size: Count
    """Size in bytes."""
    media_type: Text | None = None
    """Media type, if known."""
    content: bytes
    """The content."""
    created_at: Time
    """Creation time."""


class BlobUse(Record):
    """A reference from a thread to a blob. If the last reference is deleted, the blob is deleted too."""

    table: ClassVar[str] = "blob_uses"
    primary_key: ClassVar[tuple[str, ...]] = ("thread_id", "sha256")
    thread_field: ClassVar[str | None] = "thread_id"

    thread_id: UUID
    """Id of the thread."""
    sha256: Annotated[Text, Field(min_length=64, max_length=64)]
    """SHA-256 of the blob, in hex."""


class File(Record):
    """A file that a run created or changed."""

    table: ClassVar[str] = "files"
    primary_key: ClassVar[tuple[str, ...]] = ("thread_id", "file_id")
    thread_field: ClassVar[str | None] = "thread_id"

    thread_id: UUID
    """Id of the thread."""
    file_id: Name
    """Id of the file at the provider."""
    filename: Text
    """File name."""
    storage_path: Text | None = None
    """Path in the file store."""
    size: Count | None = None
    """Size in bytes."""
    mime_type: Text | None = None
    """Media type."""
    step: Count | None = None
    """Number of the step that created the file."""
    created_in_run: UUID | None = None
    """Id of the run that created the file."""
    last_updated_run: UUID | None = None
    """Id of the run that changed the file last."""
    created_at: Time
    """Creation time."""
    last_updated_at: Time
    """Time of the last change."""
    metadata: Json = {}
    """Additional data."""

    def as_generated(self) -> Json:
        """Return the file as an element of generated_files in the documented format."""
        return {
            "file_id": self.file_id,
            "filename": self.filename,
            "storage_path": self.storage_path,
            "size": self.size,
            "mime_type": self.mime_type,
            "step": self.step,
            "timestamp": format_time(self.last_updated_at),
        }


def generated_files(run: Run, files: Iterable[File]) -> list[Json]:
    """Return the files that a run created or changed, in the order of their ids.

    A run records them in its state as they were then, because a later run may change them. `files` are files of the
    thread. Those that were stored for this run without its state are added.
    """
    stored = [file.as_generated() for file in files if file.last_updated_run == run.id]
    recorded: list[Json] = run.state.get("files") or []
    shown: dict[str, Json] = {file["file_id"]: file for file in [*stored, *recorded]}
    return [shown[file_id] for file_id in sorted(shown)]


class Memory(Record):
    """A fact about a user or a project, or a learning from a run."""

    table: ClassVar[str] = "memories"

    id: UUID = Field(default_factory=new_id)
    """Id of the memory, a UUIDv7."""
    project: Name = "default"
    """Project of the memory."""
    user_id: Annotated[Text, Field(max_length=255)] | None = None
    """Id of the user that the memory is about."""
    agent: Text | None = None
    """Name of the agent that stored the memory."""
    thread_id: UUID | None = None
    """Id of the thread that the memory comes from."""
    kind: Literal["memory", "learning"] = "memory"
    """`memory` for a fact, `learning` for a learning from a run."""
    text: Text
    """The memory in words."""
    tags: list[str] = []
    """Tags."""
    metadata: Json = {}
    """Additional data."""
    created_at: Time
    """Creation time."""
    updated_at: Time
    """Time of the last change."""


class Knowledge(Record):
    """A document that agents can search."""

    table: ClassVar[str] = "knowledge"

    id: UUID = Field(default_factory=new_id)
    """Id of the document, a UUIDv7."""
    project: Name = "default"
    """Project of the document."""
    name: Text
    """Name."""
    description: Text | None = None
    """Description."""
    type: Text | None = None
    """Type of the document, as set by the writer."""
    size: Count | None = None
    """Size in bytes."""
    status: Text | None = None
    """Status, as set by the writer."""
    metadata: Json = {}
    """Additional data."""
    created_at: Time
    """Creation time."""
    updated_at: Time
    """Time of the last change."""


class Eval(Record):
    """One evaluation of an agent, with its result."""

    table: ClassVar[str] = "evals"

    id: UUID = Field(default_factory=new_id)
    """Id of the evaluation, a UUIDv7."""
    project: Name = "default"
    """Project of the evaluation."""
    name: Text
    """Name."""
    type: Text
    """Type of the evaluation."""
    agent: Text | None = None
    """Name of the evaluated agent."""
    run_id: UUID | None = None
    """Id of the evaluated run."""
    input: Json = {}
    """Input of the evaluation."""
    result: Json = {}
    """Result of the evaluation."""
    parent_id: UUID | None = None
    """Id of the evaluation, in the record of one of its cases."""
    position: Count | None = None
    """Number of the trial in its evaluation, from 0, in the record of a case."""
    dataset_id: UUID | None = None
    """Id of the dataset, in the record of an evaluation of a stored dataset."""
    created_at: Time
    """Creation time."""
    updated_at: Time
    """Time of the last change."""


class EvalScores(Record):
    """The mean scores of the cases of a finished evaluation, so that a comparison does not read all trials."""

    table: ClassVar[str] = "eval_scores"

    id: UUID
    """Id of the evaluation."""
    project: Name = "default"
    """Project of the evaluation."""
    scores: Json
    """The mean score of each case, in the order of the dataset."""


class Feedback(Record):
    """Feedback of a person or a check on a thread, a run or a stitch."""

    table: ClassVar[str] = "feedback"
    thread_field: ClassVar[str | None] = "thread_id"

    id: UUID = Field(default_factory=new_id)
    """Id of the feedback, a UUIDv7."""
    project: Name = "default"
    """Project of the feedback."""
    thread_id: UUID | None = None
    """Id of the thread."""
    run_id: UUID | None = None
    """Id of the run."""
    stitch_id: UUID | None = None
    """Id of the stitch."""
    user_id: Annotated[Text, Field(max_length=255)] | None = None
    """Id of the user who gave the feedback."""
    name: Name
    """Name of the rated property, for example `helpful`."""
    score: Number | None = None
    """Score."""
    value: Json | None = None
    """Value, if a score is not enough."""
    comment: Text | None = None
    """Comment in words."""
    source: Text = "native"
    """System that the feedback comes from; `native` for Lockstitch."""
    created_at: Time
    """Creation time."""
    updated_at: Time
    """Time of the last change."""
    experiment_id: UUID | None = None
    """Id of the experiment, if the feedback rates all runs of an experiment."""
    metadata: Json = {}
    """Additional data, such as the id of the feedback in the other system, a correction, or the evaluator."""


class Dataset(Record):
    """A named collection of examples, to evaluate agents with."""

    table: ClassVar[str] = "datasets"

    id: UUID = Field(default_factory=new_id)
    """Id of the dataset."""
    project: Name = "default"
    """Project of the dataset."""
    name: Name
    """Name, unique within its project."""
    description: Text | None = None
    """Description."""
    kind: Literal["kv", "llm", "chat"] = "kv"
    """Form of the examples: any fields (`kv`), a prompt with an answer (`llm`), or messages with an answer (`chat`)."""
    inputs_schema: Json | None = None
    """JSON schema of the inputs, if the writer gave one."""
    outputs_schema: Json | None = None
    """JSON schema of the outputs, if the writer gave one."""
    metadata: Json = {}
    """Additional data."""
    version: Count = 0
    """Number of the current version. Each change of examples makes a new version. 0: no examples were written yet."""
    created_at: Time
    """Creation time."""
    updated_at: Time
    """Time of the last change of the dataset or of its examples."""


class Example(Record):
    """One example of a dataset: the inputs of a run, and the outputs that are expected."""

    table: ClassVar[str] = "examples"

    id: UUID = Field(default_factory=new_id)
    """Id of the example, a UUIDv7 unless the writer chose it."""
    project: Name = "default"
    """Project of the dataset."""
    dataset_id: UUID
    """Id of the dataset."""
    name: Name | None = None
    """Name, unique within the dataset. None: the example is known by its id."""
    inputs: Json = {}
    """Inputs of a run."""
    outputs: Json | None = None
    """Expected outputs, if there are any."""
    metadata: Json = {}
    """Additional data."""
    splits: list[Name] = []
    """Names of the parts of the dataset that the example belongs to, for example `train`."""
    source_run_id: UUID | None = None
    """Id of the run or of the imported span that the example was made of."""
    version: Count = 0
    """Version of the dataset that wrote this state of the example."""
    created_at: Time
    """Creation time."""
    updated_at: Time
    """Time of the last change."""


class PastExample(Record):
    """An earlier state of an example, from one version of its dataset until another version changed or deleted it."""

    table: ClassVar[str] = "past_examples"
    primary_key: ClassVar[tuple[str, ...]] = ("dataset_id", "id", "version")

    id: UUID
    """Id of the example."""
    project: Name = "default"
    """Project of the dataset."""
    dataset_id: UUID
    """Id of the dataset."""
    name: Name | None = None
    """Name of the example."""
    inputs: Json = {}
    """Inputs of a run."""
    outputs: Json | None = None
    """Expected outputs, if there are any."""
    metadata: Json = {}
    """Additional data."""
    splits: list[Name] = []
    """Names of the parts of the dataset that the example belongs to."""
    source_run_id: UUID | None = None
    """Id of the run or of the imported span that the example was made of."""
    version: Count
    """First version of the dataset with this state."""
    until: Count
    """First later version of the dataset without this state."""
    created_at: Time
    """Creation time of the example."""
    updated_at: Time
    """Time at which this state was written."""


class DatasetVersion(Record):
    """One version of a dataset: the state of its examples after one change."""

    table: ClassVar[str] = "dataset_versions"
    primary_key: ClassVar[tuple[str, ...]] = ("dataset_id", "number")

    dataset_id: UUID
    """Id of the dataset."""
    number: Count
    """Number of the version, from 1."""
    project: Name = "default"
    """Project of the dataset."""
    examples: Count
    """Number of examples in this version."""
    added: Count = 0
    """Number of examples that the change added."""
    replaced: Count = 0
    """Number of examples that the change replaced."""
    removed: Count = 0
    """Number of examples that the change deleted."""
    created_at: Time
    """Time of the change."""


class ExampleFile(Record):
    """A file that belongs to an example."""

    table: ClassVar[str] = "example_files"
    primary_key: ClassVar[tuple[str, ...]] = ("example_id", "name")

    example_id: UUID
    """Id of the example."""
    name: Name
    """Name of the file, unique within its example."""
    project: Name = "default"
    """Project of the dataset."""
    media_type: Text | None = None
    """Media type, if known."""
    size: Count
    """Size in bytes."""
    content: bytes
    """The content."""
    created_at: Time
    """Creation time."""


class Experiment(Record):
    """A named group of runs. An experiment on a dataset has runs of its examples."""

    table: ClassVar[str] = "experiments"

    id: UUID = Field(default_factory=new_id)
    """Id of the experiment."""
    project: Name = "default"
    """Project of the experiment."""
    name: Name
    """Name, unique within its project. The state of a run has it as `group`."""
    dataset_id: UUID | None = None
    """Id of the dataset. None: the runs are a group without a dataset."""
    description: Text | None = None
    """Description."""
    metadata: Json = {}
    """Additional data, for example the version of the dataset and of the code."""
    started_at: Time
    """Start time."""
    ended_at: Time | None = None
    """End time, if the writer gave one."""
    created_at: Time
    """Creation time."""
    updated_at: Time
    """Time of the last change."""


class SavedView(Record):
    """A view of the list of threads: filters, columns and order."""

    table: ClassVar[str] = "saved_views"
    primary_key: ClassVar[tuple[str, ...]] = ("project", "name")

    project: Name = "default"
    """Project of the view."""
    name: Name
    """Name of the view, unique within its project."""
    filters: Json = {}
    """Filters, by the name of their URL parameter."""
    columns: list[str] = []
    """Names of the columns, in their order. Empty: the default columns."""
    sort: Text = "time"
    """Name of the order: `time`, `status`, `latency`, `tokens`, `cost` or `model`."""
    ascending: bool = False
    """True if the lowest value comes first."""
    is_default: bool = False
    """True if the list opens with this view."""
    created_at: Time
    """Creation time."""
    updated_at: Time
    """Time of the last change."""


class Alert(Record):
    """A limit for the runs of a project. Workers and servers check it about once a minute."""

    table: ClassVar[str] = "alerts"
    primary_key: ClassVar[tuple[str, ...]] = ("project", "name")

    project: Name = "default"
    """Project of the runs."""
    name: Name
    """Name of the alert, unique within its project."""
    measure: Literal["cost", "error_rate", "latency"]
    """`cost`: dollars of all runs. `error_rate`: share of the ended runs that failed. `latency`: the time that 95 % of
    the ended runs did not exceed, in seconds, pauses included."""
    above: float
    """The alert fires while the measure is above this value."""
    window_minutes: int = Field(60, ge=1, le=43_200)
    """Length of the window in minutes. The measure covers the runs that started in the window before the check."""
    agent: Name | None = None
    """Only runs of this agent. None: of all agents."""
    minimum_runs: int = Field(1, ge=1)
    """The alert does not fire with fewer runs in the window."""
    webhook: Text | None = None
    """URL that receives each change by POST."""
    created_at: Time
    """Creation time."""
    updated_at: Time
    """Time when a person set the alert."""
    firing: bool = False
    """True while the measure is above the limit, at the last check."""
    value: float | None = None
    """Value of the measure at the last check. None: the window had no runs to measure."""
    runs: Count = 0
    """Number of runs in the window at the last check."""
    checked_at: Time | None = None
    """Time of the last check. None: not checked since it was set."""
    changed_at: Time | None = None
    """Time of the check at which the alert started or stopped firing."""
    reported: bool = True
    """False until the webhook has accepted the last change."""
    tries: Count = 0
    """Number of deliveries of the last change that were started."""
    due_at: Time | None = None
    """Time of the next delivery."""


class ShareLink(Record):
    """A link that shows one trace to readers without a token."""

    table: ClassVar[str] = "share_links"
    primary_key: ClassVar[tuple[str, ...]] = ("token",)
    thread_field: ClassVar[str | None] = "thread_id"

    token: UUID
    """Secret of the link, a random UUID. It gives read access to the trace of the run."""
    project: Name = "default"
    """Project of the run."""
    thread_id: UUID
    """Id of the thread of the run. The link is deleted with it."""
    run_id: UUID
    """Id of the run."""
    actor: Text
    """Name of the person or token that created the link."""
    created_at: Time
    """Creation time."""
    expires_at: Time | None = None
    """Time when the link stops working. None: never, as for links of LangSmith clients."""


class IngestBody(Record):
    """The raw body of a trace request from another system.

    The server acknowledges a request once its body is stored, and parses it afterwards.
    """

    table: ClassVar[str] = "ingest_bodies"

    id: UUID = Field(default_factory=new_id)
    """Id of the body, a UUIDv7."""
    project: Name = "default"
    """Project that receives the traces."""
    source: Name
    """Protocol or system that sent the body."""
    headers: Json = {}
    """HTTP headers that parsing needs."""
    body: bytes
    """The body."""
    parsed: bool = False
    """True once the body is parsed."""
    problem: Text | None = None
    """Reason why the body could not be parsed. A body with a problem is quarantined."""
    at: Time
    """Time of arrival."""


class LiveDelta(Record):
    """A part of a model response while it streams. It is deleted once its stitch is committed."""

    table: ClassVar[str] = "live_deltas"
    primary_key: ClassVar[tuple[str, ...]] = ("run_id", "step_number", "number")
    thread_field: ClassVar[str | None] = "thread_id"

    thread_id: UUID
    """Id of the thread."""
    run_id: UUID
    """Id of the run."""
    step_number: Count
    """Number of the step in its run."""
    number: Count
    """Number of the part, ascending."""
    text: Json
    """The part: its kind, its text and the attempt of the model call."""


class Token(Record):
    """An access token of the server for one project. Only its hash is stored."""

    table: ClassVar[str] = "tokens"
    primary_key: ClassVar[tuple[str, ...]] = ("sha256",)

    sha256: Text
    """SHA-256 of the token, in hex."""
    project: Name = "default"
    """Project that the token gives access to."""
    name: Name
    """Name of the token, for lists and the audit log."""
    scopes: list[str] = []
    """Allowed scopes."""
    created_at: Time
    """Creation time."""
    expires_at: Time | None = None
    """Time after which the token is not valid."""
    revoked_at: Time | None = None
    """Time of revocation."""


class Audit(Record):
    """One entry of the audit log."""

    table: ClassVar[str] = "audit"

    id: UUID = Field(default_factory=new_id)
    """Id of the entry, a UUIDv7."""
    project: Name = "default"
    """Project of the entry."""
    actor: Text
    """Name of the person or token that acted."""
    act: Text
    """The action."""
    subject: Text
    """Thread or other object of the action."""
    data: Json = {}
    """Details of the action."""
    at: Time
    """Time of the action."""


class DailyMetric(Record):
    """Totals of one day's deleted runs. With them, statistics stay complete after a purge."""

    table: ClassVar[str] = "daily_metrics"
    primary_key: ClassVar[tuple[str, ...]] = ("project", "day", "agent", "model")

    project: Name = "default"
    """Project of the runs."""
    day: Text
    """Day in UTC, as `2026-03-05`."""
    agent: Text = ""
    """Name of the agent, or empty."""
    model: Text = ""
    """Name of the model, or empty."""
    runs: Count = 0
    """Number of runs."""
    failed_runs: Count = 0
    """Number of failed runs."""
    input_tokens: Count = 0
    """Input tokens, cached tokens included."""
    output_tokens: Count = 0
    """Output tokens."""
    cache_read_tokens: Count = 0
    """Input tokens that the provider read from its cache."""
    cache_write_tokens: Count = 0
    """Input tokens that the provider wrote to its cache."""
    total_cost: Number = 0.0
    """Cost in US dollars, without unpriced calls."""
    unpriced: Count = 0
    """Number of model calls without a known price."""

    def plus(self, other: "DailyMetric") -> "DailyMetric":
        """Return the sum with another metric of the same key. Counts stop at the largest integer of a database."""
        counts = (*("runs", "failed_runs", "input_tokens", "output_tokens"), "cache_read_tokens", "cache_write_tokens")
        sums = {name: min(getattr(self, name) + getattr(other, name), 2**63 - 1) for name in (*counts, "unpriced")}
        return self.changed(**sums, total_cost=self.total_cost + other.total_cost)


class Archive(Record):
    """Stitches of one old turn, at consecutive positions: compressed, or in a lake."""

    table: ClassVar[str] = "archives"
    primary_key: ClassVar[tuple[str, ...]] = ("thread_id", "first_position")
    thread_field: ClassVar[str | None] = "thread_id"

    thread_id: UUID
    """Id of the thread."""
    first_position: Count
    """Position of the first stitch."""
    last_position: Count
    """Position of the last stitch."""
    run_id: UUID
    """Id of the turn's run."""
    encoding: Literal["gzip", "none"]
    """Compression of the content. PostgreSQL itself compresses a column."""
    sha256: Text
    """SHA-256 of the uncompressed text, in hex. If a lake has the stitches: of their fields with values."""
    content: bytes
    """The stitches, one line of JSON each, in this encoding. Empty if a lake has them."""
    lake: Text | None = None
    """Folder or URL of the lake that has the stitches. None: the content has them."""
    created_at: Time
    """Creation time."""


class Limit(Record):
    """Maximum number of threads of some agents that all processes of a store hold at the same time.

    The limit of an agent names that agent. The limit of a provider names all agents that use the provider.
    """

    table: ClassVar[str] = "limits"
    primary_key: ClassVar[tuple[str, ...]] = ("name",)

    name: Name
    """Name of the limit."""
    at_most: Count
    """Maximum number of held threads."""
    agents: list[Name] = []
    """Names of the agents that the limit applies to."""


class WebhookEvent(Record):
    """An event for a webhook.

    The commit that it reports creates it; the sender deletes it once the webhook has received it.

    A webhook may receive an event twice. The id identifies the duplicate.
    """

    table: ClassVar[str] = "webhook_events"
    thread_field: ClassVar[str | None] = "thread_id"

    id: UUID = Field(default_factory=new_id)
    """Id of the event, a UUIDv7."""
    thread_id: UUID
    """Id of the thread that the event reports."""
    hook: Name
    """Webhook that receives the event."""
    event: Literal["failed", "waiting"]
    """`failed`: the thread failed. `waiting`: it waits for a person."""
    body: Json
    """Request body."""
    tries: Count = 0
    """Number of failed attempts."""
    due_at: Time
    """Time of the next attempt."""
    at: Time
    """Time of the event."""


class Schedule(Record):
    """A plan that starts a thread at each tick of a cron expression or of an interval. `model/ticks.py` has the rules.

    A worker moves `next_tick` forward in the transaction that starts the thread, if it is as the worker read it. So a
    tick starts one thread, however many workers there are.
    """

    table: ClassVar[str] = "schedules"
    primary_key: ClassVar[tuple[str, ...]] = ("project", "name")

    id: UUID = Field(default_factory=new_id)
    """Id of the schedule, a UUIDv7. The ids of its threads are derived from it."""
    project: Name = "default"
    """Project of the schedule and of its threads."""
    name: Name
    """Name, unique within its project."""
    agent: Name
    """Name of the agent that executes the threads."""
    goal: Annotated[Text, Field(min_length=1)]
    """Task of each thread, in words."""
    cron: Text | None = None
    """Cron expression with five fields. None: `interval_seconds` is set."""
    interval_seconds: Annotated[int, Field(ge=1, le=10**10)] | None = None
    """Seconds between two ticks. The first tick is one interval after the creation of the schedule."""
    time_zone: Name = "UTC"
    """Name of the IANA time zone of the cron expression, for example `Europe/Berlin`."""
    missed: Literal["once", "skip", "all"] = "once"
    """Ticks that passed while no worker ran: start one thread for all of them (`once`), none (`skip`), or one each."""
    paused: bool = False
    """True if no tick starts a thread."""
    next_tick: Time | None = None
    """Time of the next tick. None if the schedule is paused."""
    last_tick: Time | None = None
    """Time of the last tick that started a thread."""
    last_thread_id: UUID | None = None
    """Id of the thread that was started last."""
    title: Annotated[Text, Field(max_length=255)] | None = None
    """Title of the threads."""
    user_id: Annotated[Text, Field(max_length=255)] | None = None
    """Id of the user that the threads belong to."""
    priority: Annotated[int, Field(gt=-(2**31), lt=2**31)] = 0
    """Claim priority of the threads. Higher values first."""
    extras: Json = {}
    """Additional data of an application, for the threads."""
    created_at: Time
    """Creation time."""
    updated_at: Time
    """Time of the last change by a user."""

    @property
    def times(self) -> str:
        """The cron expression with its time zone, or the interval, for people."""
        if self.interval_seconds is None:
            return f"{self.cron} {self.time_zone}"
        for unit, seconds in (("d", 86_400), ("h", 3600), ("m", 60)):
            if self.interval_seconds % seconds == 0:
                return f"every {self.interval_seconds // seconds}{unit}"
        return f"every {self.interval_seconds}s"


class MirroredModelCall(Record):
    """A link from the provider's response id to the span of an imported trace that describes the model call."""

    table: ClassVar[str] = "mirrored_model_calls"
    primary_key: ClassVar[tuple[str, ...]] = ("project", "provider", "response_id", "stitch_id")
    thread_field: ClassVar[str | None] = "thread_id"

    project: Name = "default"
    """Project of the trace."""
    provider: Text
    """Name of the provider, or empty."""
    response_id: Name
    """Id that the provider gave the response."""
    thread_id: UUID
    """Id of the imported thread."""
    stitch_id: UUID
    """Id of the stitch of the span."""
    at: Time
    """Time at which the link was stored."""


def day_of(moment: datetime | date) -> str:
    """Return the day of a time, as `2026-03-05`."""
    return moment.isoformat()[:10]


def hour_of(moment: datetime) -> str:
    """Return the hour of a time, as `2026-03-05T14`."""
    return moment.isoformat()[:13]


SIDE_RECORDS: tuple[type[Record], ...] = (
    Agent,
    AgentVersion,
    TeamMember,
    Blob,
    BlobUse,
    File,
    Memory,
    Knowledge,
    Eval,
    EvalScores,
    Feedback,
    Dataset,
    Example,
    PastExample,
    DatasetVersion,
    ExampleFile,
    Experiment,
    SavedView,
    Alert,
    ShareLink,
    IngestBody,
    LiveDelta,
    Token,
    Audit,
    DailyMetric,
    Archive,
    Limit,
    WebhookEvent,
    MirroredModelCall,
    Schedule,
)
"""All side record classes, in an order in which they can be copied."""

OWNED_BY_THREAD: dict[type[Record], str] = {
    kind: kind.thread_field for kind in SIDE_RECORDS if kind.thread_field is not None
}
"""Side record classes that are deleted with their thread, and the field with the thread's id."""
