"""What hangs off threads, runs and stitches: small records, each a table with a key."""

from datetime import date, datetime
from typing import Annotated, ClassVar, Literal
from uuid import UUID

from pydantic import Field

from lockstitch.model.ids import new_id
from lockstitch.model.record import Count, Json, Number, Record, Text, Time

Name = Annotated[Text, Field(min_length=1, max_length=255)]


class Agent(Record):
    """A named definition of who acts; `version` is the newest of its versions."""

    table: ClassVar[str] = "agents"
    primary_key: ClassVar[tuple[str, ...]] = ("project", "name")

    project: Name = "default"
    name: Name
    role: Literal["agent", "team", "workflow"] = "agent"
    version: Count = 1
    metadata: Json = {}
    created_at: Time
    updated_at: Time


class AgentVersion(Record):
    """One version of a definition; its digest tells whether the code's definition is a new one."""

    table: ClassVar[str] = "agent_versions"
    primary_key: ClassVar[tuple[str, ...]] = ("project", "name", "version")

    project: Name = "default"
    name: Name
    version: Count
    digest: Text
    definition: Json
    created_at: Time


class TeamMember(Record):
    """A member of a team's version."""

    table: ClassVar[str] = "agent_links"
    primary_key: ClassVar[tuple[str, ...]] = ("project", "team", "version", "place")

    project: Name = "default"
    team: Name
    version: Count
    place: Count
    member: Name
    member_version: Count | None = None


class Blob(Record):
    """Content by its sha256: media lifted out of messages, system texts and tool lists of requests."""

    table: ClassVar[str] = "blobs"
    primary_key: ClassVar[tuple[str, ...]] = ("sha256",)

    sha256: Annotated[Text, Field(min_length=64, max_length=64)]
    size: Count
    media_type: Text | None = None
    content: bytes
    created_at: Time


class BlobUse(Record):
    """Which thread refers to a blob, so that deleting the last of them deletes the blob."""

    table: ClassVar[str] = "blob_uses"
    primary_key: ClassVar[tuple[str, ...]] = ("thread_id", "sha256")

    thread_id: UUID
    sha256: Annotated[Text, Field(min_length=64, max_length=64)]


class File(Record):
    """A file that a run made or changed; file_id is the provider's own name for it."""

    table: ClassVar[str] = "files"
    primary_key: ClassVar[tuple[str, ...]] = ("thread_id", "file_id")

    thread_id: UUID
    file_id: Name
    filename: Text
    storage_path: Text | None = None
    size: Count | None = None
    mime_type: Text | None = None
    step: Count | None = None
    created_in_run: UUID | None = None
    last_updated_run: UUID | None = None
    created_at: Time
    last_updated_at: Time
    metadata: Json = {}


class Memory(Record):
    """Something to remember about a user or a project, or a learning from a run."""

    table: ClassVar[str] = "memories"

    id: UUID = Field(default_factory=new_id)
    project: Name = "default"
    user_id: Annotated[Text, Field(max_length=255)] | None = None
    agent: Text | None = None
    thread_id: UUID | None = None
    kind: Literal["memory", "learning"] = "memory"
    text: Text
    tags: list[str] = []
    metadata: Json = {}
    created_at: Time
    updated_at: Time


class Knowledge(Record):
    """A document that agents may look things up in."""

    table: ClassVar[str] = "knowledge"

    id: UUID = Field(default_factory=new_id)
    project: Name = "default"
    name: Text
    description: Text | None = None
    type: Text | None = None
    size: Count | None = None
    status: Text | None = None
    metadata: Json = {}
    created_at: Time
    updated_at: Time


class Eval(Record):
    """One evaluation of an agent, with its outcome."""

    table: ClassVar[str] = "evals"

    id: UUID = Field(default_factory=new_id)
    project: Name = "default"
    name: Text
    type: Text
    agent: Text | None = None
    run_id: UUID | None = None
    input: Json = {}
    result: Json = {}
    created_at: Time
    updated_at: Time


class Feedback(Record):
    """What a person or a check said about a thread, a run or a stitch."""

    table: ClassVar[str] = "feedback"

    id: UUID = Field(default_factory=new_id)
    project: Name = "default"
    thread_id: UUID | None = None
    run_id: UUID | None = None
    stitch_id: UUID | None = None
    user_id: Annotated[Text, Field(max_length=255)] | None = None
    name: Name
    score: Number | None = None
    value: Json | None = None
    comment: Text | None = None
    source: Text = "native"
    created_at: Time
    updated_at: Time


class IngestBody(Record):
    """A body as another system sent it: acknowledged once it is here, parsed after; `problem` is its quarantine."""

    table: ClassVar[str] = "arrivals"

    id: UUID = Field(default_factory=new_id)
    project: Name = "default"
    source: Name
    headers: Json = {}
    body: bytes
    parsed: bool = False
    problem: Text | None = None
    at: Time


class LiveDelta(Record):
    """Text on its way to readers; gone once its stitch is committed."""

    table: ClassVar[str] = "live"
    primary_key: ClassVar[tuple[str, ...]] = ("run_id", "step_number", "number")

    thread_id: UUID
    run_id: UUID
    step_number: Count
    number: Count
    text: Json


class Token(Record):
    """A right to call the server for one project; only its hash is kept."""

    table: ClassVar[str] = "tokens"
    primary_key: ClassVar[tuple[str, ...]] = ("sha256",)

    sha256: Text
    project: Name = "default"
    name: Name
    scopes: list[str] = []
    created_at: Time
    expires_at: Time | None = None
    revoked_at: Time | None = None


class Audit(Record):
    """Who did what to the store."""

    table: ClassVar[str] = "audit"

    id: UUID = Field(default_factory=new_id)
    project: Name = "default"
    actor: Text
    act: Text
    subject: Text
    data: Json = {}
    at: Time


class DailyMetric(Record):
    """A day's totals of the runs that were removed, so that purging loses no figure."""

    table: ClassVar[str] = "metrics"
    primary_key: ClassVar[tuple[str, ...]] = ("project", "day", "agent", "model")

    project: Name = "default"
    day: Text
    agent: Text = ""
    model: Text = ""
    runs: Count = 0
    failed_runs: Count = 0
    input_tokens: Count = 0
    output_tokens: Count = 0
    cache_read_tokens: Count = 0
    cache_write_tokens: Count = 0
    total_cost: Number = 0.0
    unpriced: Count = 0


class Archive(Record):
    """Stitches of one old turn, compressed: from first_position to last_position of a thread, without a gap."""

    table: ClassVar[str] = "archives"
    primary_key: ClassVar[tuple[str, ...]] = ("thread_id", "first_position")

    thread_id: UUID
    first_position: Count
    last_position: Count
    run_id: UUID
    encoding: Literal["zstd", "gzip"]
    sha256: Text
    content: bytes
    created_at: Time


class Limit(Record):
    """How many threads of these agents may be held at once, by all processes of a store together.

    One for an agent names that agent; one for a provider names all agents that use it.
    """

    table: ClassVar[str] = "limits"
    primary_key: ClassVar[tuple[str, ...]] = ("name",)

    name: Name
    at_most: Count
    agents: list[Name] = []


class WebhookEvent(Record):
    """Something that people outside are to be told: made in the commit that it tells of, gone once it was told.

    Its id is the key by which a receiver knows one that it was told twice.
    """

    table: ClassVar[str] = "notices"

    id: UUID = Field(default_factory=new_id)
    thread_id: UUID
    hook: Name
    event: Literal["failed", "waiting"]
    body: Json
    tries: Count = 0
    due_at: Time
    at: Time


class MirroredModelCall(Record):
    """That a span of a mirror tells of a model call, by the provider's own id of its response."""

    table: ClassVar[str] = "model_calls"
    primary_key: ClassVar[tuple[str, ...]] = ("project", "provider", "response_id", "stitch_id")

    project: Name = "default"
    provider: Text
    response_id: Name
    thread_id: UUID
    stitch_id: UUID
    at: Time


def day_of(moment: datetime | date) -> str:
    return moment.isoformat()[:10]


def hour_of(moment: datetime) -> str:
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
    Feedback,
    IngestBody,
    LiveDelta,
    Token,
    Audit,
    DailyMetric,
    Archive,
    Limit,
    WebhookEvent,
    MirroredModelCall,
)
"""Every kind of side record, in an order in which they can be copied."""

OWNED_BY_THREAD: dict[type[Record], str] = {
    BlobUse: "thread_id",
    File: "thread_id",
    Feedback: "thread_id",
    LiveDelta: "thread_id",
    Archive: "thread_id",
    WebhookEvent: "thread_id",
    MirroredModelCall: "thread_id",
}
"""The kinds that go when their thread goes, and the field that names it."""
