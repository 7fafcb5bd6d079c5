"""Models of JSON responses, for the OpenAPI document.

Routes return `ExactJSON`, which does not use these models. A test calls every operation and compares the responses with
the document. The models allow additional members, because later versions can add some.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, get_type_hints
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, create_model

from lockstitch import model
from lockstitch.model import Json, Record, side_records

# The argument names are the field names, which the type checker cannot know.
_create: Any = create_model


class ResponseModel(BaseModel):
    """A JSON object with these members. Additional members are allowed."""

    # Only the OpenAPI document needs these classes.
    model_config = ConfigDict(extra="allow", defer_build=True)


def response_model(record: type[Record], name: str = "", without: frozenset[str] = frozenset(), **extra: Any) -> Any:
    """Return the model of a record with all its fields. `extra` adds members with their types."""
    hints: Mapping[str, Any] = get_type_hints(record, include_extras=True)
    fields: dict[str, Any] = {
        field: (hints[field], ...) for field in record.model_fields if field not in without and field not in extra
    }
    fields |= {field: (kind, ...) for field, kind in extra.items()}
    return _create(name or record.__name__, __base__=ResponseModel, __doc__=record.__doc__, **fields)


def _object(name: str, **members: Any) -> Any:
    """Return the model of an object with these members."""
    return _create(name, __base__=ResponseModel, **{member: (kind, ...) for member, kind in members.items()})


Thread = response_model(model.Thread)
Run = response_model(model.Run)
Stitch = response_model(model.Stitch)
Memory = response_model(side_records.Memory)
SavedView = response_model(side_records.SavedView)
Alert = response_model(side_records.Alert)
Feedback = response_model(side_records.Feedback)
RunToAnnotate = _object("RunToAnnotate", run=Run, inputs=Json | None, outputs=Json | None)
RunsToAnnotate = _object("RunsToAnnotate", runs=list[RunToAnnotate], next=str | None)
File = response_model(side_records.File)
Agent = response_model(side_records.Agent)
AgentVersion = response_model(side_records.AgentVersion)
VersionChanges = _object("VersionChanges", agent=str, version=int, since=int | None, changes=list[Json])
Audit = response_model(side_records.Audit)
Schedule = response_model(model.Schedule)
Token = response_model(model.Token, without=frozenset({"sha256"}))
NewToken = response_model(model.Token, "NewTokenShown", without=frozenset({"sha256"}), token=str)


class Score(ResponseModel):
    """The average of the scores with one name."""

    average: float
    count: int


RunWithUsage = response_model(model.Run, "RunWithUsage", usage=dict[str, int], scores=dict[str, Score])


class Overview(ResponseModel):
    """A thread with the sums over its runs."""

    id: UUID
    key: str | None
    project: str
    kind: str
    status: str
    waiting_for: list[Json]
    agent: str | None
    version: int | None
    position: int
    runs: int
    usage: dict[str, int]
    total_cost: float | None
    error: str | None
    scores: dict[str, Score]
    created_at: datetime
    updated_at: datetime


class ThreadRow(Overview):
    """A thread in a list."""

    title: str | None
    goal: str | None
    user_id: str | None
    parent_id: UUID | None


class Threads(ResponseModel):
    threads: list[ThreadRow]
    next: str | None


class ThreadTree(Overview):
    """A thread with the threads below it."""

    parent_id: UUID | None
    goal: str | None
    tasks: list[Json]
    children: list["ThreadTree"]


Matches = _object("Matches", exact=Thread | None, threads=list[Thread], runs=list[Run])


class PendingReply(ResponseModel):
    """A call that waits for a reply."""

    kind: str
    call_id: str
    call_key: str
    tool: str
    input: Any
    question: str | None
    member: str | None
    since: datetime | None


WaitingThread = _object("WaitingThread", thread=Thread, replies=list[PendingReply])
Inbox = _object("Inbox", threads=list[WaitingThread], count=int)


class Deleted(ResponseModel):
    deleted: int


Dataset = response_model(side_records.Dataset, cases=int)
DatasetCase = response_model(
    side_records.Example,
    "DatasetCase",
    without=frozenset({"project"}),
    case=str,
    input=str | list[Json],
    expected=Any,
    rubric=Any,
)
Datasets = _object("Datasets", datasets=list[Dataset], next=str | None)


class DeletedDataset(ResponseModel):
    id: UUID
    name: str


DatasetCases = _object("DatasetCases", version=int, cases=list[DatasetCase], next=str | None)
DatasetVersion = response_model(side_records.DatasetVersion)
DatasetVersions = _object("DatasetVersions", versions=list[DatasetVersion], next=int | None)
DatasetChange = _object(
    "DatasetChange", dataset=str, dataset_id=UUID, version=int, added=int, replaced=int, removed=int
)
AddedCases = _object(
    "AddedCases",
    dataset=str,
    dataset_id=UUID,
    version=int,
    added=list[UUID],
    known=list[UUID],
    skipped=list[Json],
)
Experiment = response_model(side_records.Experiment)
Experiments = _object("Experiments", experiments=list[Experiment])


class Eval(ResponseModel):
    """An evaluation with its totals. Intervals are those of 95 % confidence."""

    id: UUID
    name: str
    number: int
    agent: str
    version: int
    graders: list[str]
    dataset: str
    dataset_id: UUID | None
    dataset_version: int | None
    status: str
    created_at: datetime
    cases: int
    trials_per_case: int
    trials_done: int
    trials_total: int
    score: float | None
    score_interval: list[float] | None
    pass_rate: float | None
    pass_interval: list[float] | None
    cost: float | None
    grading_cost: float | None
    latency_ms: int | None
    replay: bool
    incomplete: int | None
    diverged: int | None
    reason: str | None


class EvalCase(ResponseModel):
    """The trials of a case. Intervals are those of 95 % confidence."""

    case: str
    trials: int
    passed: int
    score: float
    score_interval: list[float] | None
    pass_interval: list[float] | None
    cost: float | None
    latency_ms: float | None
    outcomes: list[Json]


class EvalDifference(ResponseModel):
    """The difference of an evaluation from the baseline, over the cases that both have."""

    id: UUID
    shared: int
    score: float | None
    interval: list[float] | None
    certain: bool
    better: int
    worse: int


class ComparedCase(ResponseModel):
    """A case in all compared evaluations."""

    case: str
    scores: list[Json | None]
    deltas: list[Json | None]


Evals = _object("Evals", evals=list[Eval], next=str | None)
EvalCases = _object("EvalCases", cases=list[EvalCase], next=int | None)
EvalComparison = _object(
    "EvalComparison",
    evals=list[Eval],
    differences=list[EvalDifference],
    cases=list[ComparedCase],
    total=int,
    next=str | None,
)


class History(ResponseModel):
    turns: list[Json]
    more: bool
    next: int | None


Stitches = _object("Stitches", stitches=list[Stitch], next=int | None)


class Status(ResponseModel):
    """The status of a thread."""

    thread_id: UUID
    status: str
    waiting_for: list[Json]
    position: int
    title: str | None
    tasks: list[Json]
    cancel_requested: bool
    updated_at: datetime


class StatusOfRun(Status):
    run_id: UUID | None


class Result(ResponseModel):
    """The result of a run in its current state."""

    thread_id: UUID
    run_id: UUID
    status: str
    stop_reason: str | None
    output_text: str | None
    steps: int
    usage: dict[str, int]
    total_cost: float | None
    in_doubt: list[Json]
    waiting_for: list[Json]
    generated_files: list[Json]
    error: str | None
    partial: bool


class Node(ResponseModel):
    """One line of a trace."""

    kind: str
    type: str
    id: UUID
    thread_id: UUID
    position: int | None
    name: str | None
    status: str | None
    started_at: datetime
    offset_ms: int
    duration_ms: int | None
    left_off: int
    children: list["Node"]


Trace = response_model(model.Run, "Trace", usage=dict[str, int], shown=int, left_off=int, tree=Node)


class Difference(ResponseModel):
    a: Json
    b: Json
    same: bool
    changes: list[Json]
    steps: list[Json]


class Replay(ResponseModel):
    """A replay, and its comparison with the recorded runs."""

    thread_id: UUID
    source_thread_id: UUID
    status: str
    same: bool
    same_calls: bool
    output_text: str | None
    error: str | None
    diverged: Json | None
    totals: Json
    turns: list[Json]


Agents = _object("Agents", agents=list[Agent], here=list[str])


class Hit(ResponseModel):
    """A search result."""

    thread_id: UUID
    position: int | None
    run_id: UUID | None
    score: float
    key: str | None
    title: str | None
    snippet: str


class Statistics(ResponseModel):
    project: str
    since: datetime | None
    until: datetime | None


class Cells(ResponseModel):
    """The result of a query, in rows of cells."""

    columns: list[str]
    rows: list[list[Any]]
    more: bool


class Workers(ResponseModel):
    workers: list[Json]
    open: dict[str, int]


class Dashboard(ResponseModel):
    """Open threads and workers."""

    at: datetime
    open: dict[str, int]
    failed: int
    threads: list[ThreadTree]
    tools: dict[str, list[str]]
    workers: list[Json]
    held: dict[str, list[Json]]
    cost: dict[str, float | None]


class ThreadUsage(ResponseModel):
    """The average tokens per run of a thread."""

    thread_id: UUID
    runs: int
    average_tokens: float


class WhoAmI(ResponseModel):
    """The caller of a request, as the server sees it."""

    project: str
    actor: str
    scopes: list[str]
    agents: list[str]
    version: str


class Projects(ResponseModel):
    projects: list[str]
    project: str


class Sessions(ResponseModel):
    sessions: list[Json]
    has_more: bool


class Conversations(ResponseModel):
    conversations: list[Json]
    has_more: bool


class Quarantined(ResponseModel):
    """A body that could not be read completely."""

    id: UUID
    source: str
    problem: str
    size: int
    headers: Json
    at: datetime


class Arrivals(ResponseModel):
    waiting: int
    bytes: int
    quarantined: int
    oldest_seconds: float | None
    stuck: int
    quarantine: list[Quarantined]


class Arrival(ResponseModel):
    id: UUID


class Traces(ResponseModel):
    traces: list[Json]


class TraceRows(ResponseModel):
    run: Json
    llm_calls: list[Json]
    tool_calls: list[Json]


class TraceNested(ResponseModel):
    steps: list[Json]
    children: list[Json]


class Taken(ResponseModel):
    """Confirmation that a body is stored and will be processed."""

    message: str


class Info(ResponseModel):
    """The features of the server, for LangSmith clients."""

    version: str
    batch_ingest_config: Json
    instance_flags: Json


class ScoresTaken(ResponseModel):
    """Confirmation that scores of a Langfuse client are stored."""

    message: str | None = None
    id: str | None = None


class ScoresRejected(ResponseModel):
    """The number of accepted and rejected scores, with the reasons."""

    accepted: int
    rejected: int
    errors: list[Json]


class EventsTaken(ResponseModel):
    """The result of each event of a Langfuse client."""

    successes: list[Json]
    errors: list[Json]


class LangfuseHealth(ResponseModel):
    """The version and the status of the server, for Langfuse clients."""

    version: str
    status: str


class LangfuseProjects(ResponseModel):
    """The project of a token, for Langfuse clients."""

    data: list[Json]


class LangSmithRun(ResponseModel):
    """A span in the format of LangSmith."""

    id: str
    name: str
    run_type: str
    start_time: str
    trace_id: str
    parent_run_id: str | None


class LangSmithRuns(ResponseModel):
    runs: list[LangSmithRun]
    cursors: dict[str, str | None]


class LangSmithProject(ResponseModel):
    id: str
    name: str
    start_time: str


class LangSmithFeedback(ResponseModel):
    id: str
    key: str
    created_at: str
    run_id: str | None


class LangSmithStats(ResponseModel):
    """Statistics of runs in the format of LangSmith."""

    run_count: int
    total_tokens: int
    feedback_stats: Json


class LangSmithObject(ResponseModel):
    """An object in the format of LangSmith."""


class LangSmithDataset(ResponseModel):
    id: str
    name: str
    data_type: str
    example_count: int


class LangSmithExample(ResponseModel):
    id: str
    dataset_id: str


class LangSmithItems(ResponseModel):
    """A page of objects in the format of LangSmith's API v2."""

    items: list[Json]
    next_cursor: str | None = None


class PartialSuccess(ResponseModel):
    """Spans of an OTLP request that were not accepted. Absent if all of them were."""

    rejected_spans: Annotated[str | int, Field(alias="rejectedSpans")]
    error_message: Annotated[str, Field(alias="errorMessage")]


class Exported(ResponseModel):
    """The response to an OTLP request: an empty object if all spans were accepted."""

    partial_success: Annotated[PartialSuccess | None, Field(alias="partialSuccess")] = None
