"""`Backend`: the contract that every storage backend implements.

A backend writes records atomically and translates the errors of its database driver. Ids, validation, state transitions
and retries are implemented once, in the layers above. Every method is safe to call from many tasks at once. Every
guarantee also holds between processes.

**A commit is a compare-and-set.** It names the fence, the holder and the position that the writer saw. If one of them
has changed, the backend writes nothing and raises `Conflict`.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Generic, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable
from uuid import UUID

from lockstitch.extension import Extension
from lockstitch.model import Delivery, Limit, Record, Run, Stitch, Thread, WebhookEvent, Worker
from lockstitch.model.statistics import LatencyRow, StatsFilter, StitchOutline, UsageRow
from lockstitch.model.worker import EndCause

R = TypeVar("R", bound=Record)

Fields = dict[str, Any]
"""Changed fields of a record, by name."""


class ThreadChange(NamedTuple):
    """Changes of one commit to one thread, on condition that the thread is as the writer saw it.

    The backend compares `fence`, `position` and `worker_id` (None: no worker holds the thread), and `delivered` if it
    is set. A commit that ends the thread or lets it wait sets `delivered`, so that no concurrent delivery is missed.
    """

    thread_id: UUID
    """Id of the thread."""
    fence: int
    """Fence that the writer saw."""
    position: int
    """Position of the last stitch that the writer saw."""
    worker_id: UUID | None = None
    """Id of the holder that the writer saw. None: no worker holds the thread."""
    delivered: int | None = None
    """Number of deliveries that the writer saw. None: not compared."""
    stitches: Sequence[Stitch] = ()
    """New stitches from `position + 1` on. The backend sets the head's `position` and `tip_id`."""
    head: Fields = {}
    """Changed fields of the head."""
    new_runs: Sequence[Run] = ()
    """New runs."""
    runs: Sequence[tuple[UUID, Fields]] = ()
    """Changed fields of existing runs, by run id."""
    consumed: Sequence[tuple[UUID, int]] = ()
    """Deliveries of the inbox that became stitches of this change, with their positions."""
    new_children: int = 0
    """Number to add to `pending_children`, which deliveries lower concurrently.

    While a cancel is requested, a change with new children is rejected, so that no child escapes the cancel.
    """
    blob_refs: Sequence[str] = ()
    """Hashes of blobs that the thread refers to from now on."""
    replaced_stitches: Sequence[Stitch] = ()
    """Stitches of an imported trace at existing positions, with new content. Native stitches are never replaced.

    The writer raises the fence, because the position alone does not show the change to another writer.
    """

    @property
    def tip_id(self) -> UUID | None:
        """The id of the last new stitch that `previous_id` links; None if there is none."""
        for stitch in reversed(self.stitches):
            if stitch.in_chain:
                return stitch.id
        return None


@dataclass(frozen=True, slots=True)
class ThreadEdit:
    """Fields that every caller may write at any time, because no decision depends on them. See `Store.edit`."""

    thread_id: UUID
    fields: Fields


class Receipt(NamedTuple):
    """Result of one step of a commit.

    A delivery to a thread that has ended is not stored: `new` is False and `delivery_id` is None. The receipt of an
    edit is empty.
    """

    position: int | None
    """Of a change: last position of the thread. Of a delivery: position of its stitch; None if it is in the inbox."""
    delivered: int = 0
    """Number of deliveries that the thread has received. Its holder compares it."""
    cancel_requested: bool = False
    """True if a cancel is requested for the thread."""
    new: bool = True
    """False if the same delivery was stored before, or not stored at all."""
    woken: bool = False
    """True if the delivery ended the wait of the thread."""
    delivery_id: UUID | None = None
    """Id of the stored delivery. For a duplicate, the id of the first one."""


CHANGED_SINCE: Final = (
    "Another writer has changed or deleted this record. Nothing was written. Read it again and retry."
)
"""Message of the `Conflict` of a `RecordChange`."""


class RecordChange(NamedTuple):
    """Changed fields of one stored record, on condition that other fields are as the writer saw them.

    Fields that are not named keep their values, also those that another writer has changed since. If the record does
    not exist, or a value is another one, the commit raises `Conflict`.
    """

    kind: type[Record]
    """Class of the record."""
    key: Sequence[Any]
    """Values of its primary key."""
    seen: Fields
    """Values to compare, by field."""
    fields: Fields
    """Changed fields. At least one."""

    @property
    def find(self) -> "Find[Any]":
        """The selection of the record, if it is as the writer saw it."""
        values = {**dict(zip(self.kind.primary_key, self.key, strict=True)), **self.seen}
        return Find(
            self.kind,
            [Where(name, "is null") if value is None else Where(name, "=", value) for name, value in values.items()],
        )


class Commit(NamedTuple):
    """One transaction.

    The backend applies `superseded`, `deleted_threads` and `new_threads`, then `steps` and `webhook_events`, then
    `deleted_records`, `changed_records`, `new_records`, `default_records`, `records` and `restored_stitches`.

    All writers use the same order of steps: descendants before ancestors, then by id. Thus two commits cannot deadlock.
    The caller must sort the steps.
    """

    steps: Sequence[ThreadChange | Delivery | ThreadEdit] = ()
    """Changes, deliveries and edits, in the order in which rows are locked."""
    new_threads: Sequence[Thread] = ()
    """New threads."""
    webhook_events: Sequence[WebhookEvent] = ()
    """New webhook events."""
    records: Sequence[Record] = ()
    """Records of an application, written as by `put`. Daily metrics are added to the stored ones instead, because other
    commits may delete runs at the same time.

    With `superseded`, also the side records of the written threads.
    """
    new_records: Sequence[Record] = ()
    """Records of an application that must not exist. Raises `Conflict` if one does."""
    default_records: Sequence[Record] = ()
    """Records of an application. A record is not written if one with the same key exists."""
    deleted_records: "Sequence[Find[Any]]" = ()
    """Selections of records of an application to delete, or of archived stitches as by `delete`."""
    changed_records: Sequence[RecordChange] = ()
    """Changes of single fields of records. Raises `Conflict` if a record is not as the writer saw it."""
    deleted_threads: Sequence[UUID] = ()
    """Threads to delete as by `delete`, with everything that belongs to them. Raises `ThreadBusy` if one is held."""
    superseded: Sequence[ThreadChange] = ()
    """Threads to delete if they are as the writer saw them: purged trees, or imported threads with stitches that this
    commit writes again in other threads.

    Each is compared like any change, its holder included, and then deleted before everything else. The rest of the
    commit can use its id, its key and the ids of its stitches.
    """
    restored_stitches: Sequence[Stitch] = ()
    """Archived stitches of a thread that become rows of its log again, with their `log_id`."""

    @property
    def is_record_only(self) -> bool:
        """True if the commit contains no records of an application and deletes nothing."""
        records = self.records or self.new_records or self.default_records
        records = records or self.deleted_records or self.changed_records or self.restored_stitches
        return not records and not self.deleted_threads and not self.superseded

    @property
    def only_change(self) -> ThreadChange | None:
        """The change of a commit that contains nothing else; None for any other commit."""
        if len(self.steps) != 1 or self.new_threads or self.webhook_events or not self.is_record_only:
            return None
        step = self.steps[0]
        return step if isinstance(step, ThreadChange) else None


class Where(NamedTuple):
    """One condition on a field. Several conditions are joined by AND. See `AnyOf` for OR.

    `like` compares the text of an id with a pattern: `_` is any character, `%` any text. `contains` is true if a text
    has the value as a part, without regard to the case of the letters A to Z. Both read all rows. `not starts with` is
    also true if a text is missing.
    """

    field: str | tuple[str, ...]
    """Name of the field. Several names: their values together are one of those in `value`; only for `in`."""
    operator: Literal[
        "=", "!=", "<", "<=", ">", ">=", "in", "like", "contains", "not starts with", "is null", "is not null"
    ]
    """Comparison of the field with the value."""
    value: Any = None
    """The value; a list for `in`. With several fields, a list of tuples."""
    path: tuple[str, ...] = ()
    """Keys that lead from a JSON field to the compared value, which must be text, a number or a boolean.

    A value of another type is not equal, and it is neither smaller nor greater. A missing value is null, and so is JSON
    null. Text is compared by code points.
    """


class AnyOf(NamedTuple):
    """Conditions of which at least one is met: `AnyOf([Where(…), (Where(…), Where(…))])`."""

    alternatives: "Sequence[Condition | Sequence[Condition]]"
    """Conditions, or sequences of conditions that are joined by AND. Without alternatives, nothing matches."""


class Labeled(NamedTuple):
    """Condition on threads: a run of the thread has a tag, or a plain value in its metadata. Not a part of `AnyOf`.

    Values are compared as texts. Values of more than 255 characters have no label.
    """

    name: str
    """Key of the metadata. Empty: a tag."""
    value: str
    """The tag, or the value."""


Condition = Where | AnyOf | Labeled
"""A condition of a selection."""


def conditions_on(find: "Find[Any]", field: str) -> "list[Where]":
    """Return the conditions on a field, without those on parts of its JSON. All of them must be met."""
    return [
        condition
        for condition in find.where
        if isinstance(condition, Where) and condition.field == field and not condition.path
    ]


@dataclass(frozen=True, slots=True)
class Find(Generic[R]):
    """Select and order records of one class.

    A field in `order` that starts with "-" is descending. All fields must have the same direction. `after` contains the
    values of the ordered fields in the last record of the previous page. A page costs the same at any depth with
    `after`, but not with `offset`.
    """

    kind: type[R]
    where: Sequence[Condition] = ()
    order: Sequence[str] = ()
    after: Sequence[Any] | None = None
    limit: int | None = None
    offset: int = 0


class ChangeHint(NamedTuple):
    """A hint that a thread has changed. The receiver reads the thread to see the change."""

    thread_id: UUID
    position: int


WATCHING = ChangeHint(UUID(int=0), 0)
"""The first hint of `watch`: from now on no change is missed."""

WORK_READY = ChangeHint(UUID(int=0), 1)
"""A hint that a thread has become ready to be claimed: created, woken or released."""


class Backend(Protocol):
    """Reads and writes records atomically. Raises only subclasses of `LockstitchError`."""

    async def migrate(self) -> int:
        """Migrate the schema to the version of this code and return the version.

        Two processes may call it at once. Raises `SchemaMismatch` if the store needs newer code.
        """
        ...

    async def append(self, commit: Commit) -> list[Receipt]:
        """Commit all of `commit` or nothing. Return one receipt per step once the commit is durable.

        `apply_delivery` decides the effects of a delivery while the receiver's row is locked. A delivery with the same
        thread, sender and call as a stored one changes nothing, and its receipt says so. The run of a stitch must
        exist.

        Raises `Conflict` if a thread is not as a change expects, `NotFound` if the thread of a delivery or an edit does
        not exist, and `OutcomeUnknown` if the connection broke and the commit may or may not be stored.
        """
        ...

    async def read(self, thread_id: UUID, ranges: Sequence[tuple[int, int | None]]) -> list[Stitch]:
        """Return the stitches in these ranges of positions, in order, without duplicates.

        Both ends of a range are included. None as the end means the end of the log.
        """
        ...

    async def get(self, kind: type[R], key: Sequence[Any]) -> R | None:
        """Return the record with this primary key, or None."""
        ...

    async def find(self, find: Find[R]) -> list[R]:
        """Return the records that `find` selects."""
        ...

    async def put(self, records: Sequence[Record], *, new: bool = False) -> None:
        """Write records of one class, all or none. A record replaces the stored one with the same key.

        With `new`, no record may exist: raises `Conflict` if one does, and nothing is written. The store writes side
        records this way, and copies stores. Native threads change only through `append`.
        """
        ...

    async def delete(self, find: Find[Any], *, force: bool = False) -> int:
        """Delete the records that `find` selects and return their number.

        Threads are deleted with everything that belongs to them: runs, stitches, deliveries, side records, descendants,
        and blobs without other references. Rows are locked descendants first. Raises `ThreadBusy` if a worker holds one
        of the threads, unless `force` is set. Stitches can be selected only by thread and position ("=", ">=", "<=").
        Runs cannot be deleted alone.
        """
        ...

    async def claim(
        self,
        worker_id: UUID,
        *,
        thread_id: UUID | None = None,
        agents: Sequence[str] | None = None,
        project: str | None = None,
        limit: int = 1,
        after: str = "",
        limits: Sequence[Limit] = (),
        suspects: bool | None = None,
        alone: bool = False,
    ) -> list[Thread]:
        """Claim threads for a worker: set their status to running and raise their fence. Return them in claim order.

        With `thread_id`, claim that thread, ready or not, if no worker holds it or its holder's lease has expired. A
        thread that has ended is not claimed. Without it, claim up to `limit` ready threads (pending, or waiting with a
        `wake_at` in the past). `agents` limits the claim to threads of these agents. Projects take turns, starting with
        the first name after `after`. Within a project, higher priority comes first, then the longest ready.

        A claim never exceeds a limit. The backend counts held threads while it holds the lock of the limit, so two
        concurrent claims cannot exceed it together. `limits` must be stored.

        With `suspects` False, no suspect is claimed, see `Thread.suspect`. With True, one suspect is claimed: the one
        lost most often, then by priority, then the longest ready. Projects do not take turns then. `alone` is stored
        with it. A thread claimed from a holder with an expired lease counts as lost, as in `release`.

        Exactly one of many concurrent claims gets a thread. A dead or unknown worker gets none.
        """
        ...

    async def heartbeat(self, worker: Worker) -> bool:
        """Register a worker or renew its lease, by the store's clock.

        Return False if the worker was declared dead. It must stop then.
        """
        ...

    async def release(self, worker_id: UUID, *, expired_only: bool = False, cause: EndCause = "stopped") -> list[UUID]:
        """Declare a worker dead and release its threads. Return the ids of the released threads.

        Released threads are pending, have a higher fence, and keep their place in the queue. With `expired_only`,
        nothing happens unless the lease has expired by the store's clock.

        Unless the cause is `stopped`, the worker lost its threads: `lost_by` names it and `losses` rises. If the worker
        crashed (`died` or `expired`) and held only one thread, executed alone, `crashes` of that thread rises.
        """
        ...

    def watch(self, *, work_only: bool = False) -> AsyncGenerator[ChangeHint, None]:
        """Yield `WATCHING` first, then a hint for each thread that changes, in this or another process.

        `WORK_READY` follows soon after a thread has become ready to be claimed. Hints may repeat. With `work_only` the
        caller ignores other hints, so the backend need not find them. Close the generator to stop.
        """
        ...

    async def close(self) -> None:
        """Close all connections and files. Committed data is durable even without this call."""
        ...


Sizes = dict[str, int]


class ThreadUsage(NamedTuple):
    """One row of the token report."""

    thread_id: UUID
    runs: int
    average_tokens: float


RANKED: Final = 2_000
"""Maximum number of matches that a search on a database ranks: the newest. It reads no further matches."""


class SearchHit(NamedTuple):
    """A match of a search: in the title of a thread (position None), or in a stitch."""

    thread_id: UUID
    position: int | None
    score: float


class Reports(Protocol):
    """Read-only queries over many records."""

    async def count(self, find: Find[Any]) -> int:
        """Return the number of records that `find` selects, at most its limit. Order, cursor and offset are ignored."""
        ...

    async def seconds_until_ready(self, agents: Sequence[str], project: str | None) -> float | None:
        """Return the seconds until a thread of these agents may be ready to be claimed, by the clock of the store.

        The result is not above 0 if one may be ready now, and None if none waits for a time. The query writes and locks
        nothing, so it costs much less than a claim that finds nothing.
        """
        ...

    async def average_tokens(self, project: str, since: datetime) -> list[ThreadUsage]:
        """Return, per thread, the average input and output tokens of its top-level runs started since then."""
        ...

    async def usage(self, stats_filter: StatsFilter) -> list[UsageRow]:
        """Return the usage of the selected runs, one row per group, in no order.

        All groupings have equal sums, and these equal the sums over runs. Usage of a run without a model call in the
        log counts under the run's own model.
        """
        ...

    async def latencies(self, stats_filter: StatsFilter, kind: Literal["tool", "model"]) -> list[LatencyRow]:
        """Return durations and failures of the calls of each tool or model, in no order.

        If grouped by day or hour, each row is one day or hour over all tools or models. Archived stitches are not
        included.
        """
        ...

    async def list_runs(self, stats_filter: StatsFilter, order: Literal["newest", "slowest"], limit: int) -> list[Run]:
        """Return the first selected runs: the newest, or the slowest of those that have ended."""
        ...

    async def mirrored_run(self, project: str, foreign_id: str) -> Run | None:
        """Return the run of an imported trace by its id in the other system, or None."""
        ...

    async def outline(self, run_id: UUID) -> list[StitchOutline]:
        """Return the stitches of a run in order, without their content. Reading many of them is cheap."""
        ...

    async def search(self, project: str, text: str, limit: int, *, complete: bool = True) -> list[SearchHit]:
        """Return threads and stitches that contain every word of `text`, best match first.

        If `complete` is false, the search waits only for a small part of the index, and may leave out the stitches that
        `unindexed` counts.
        """
        ...

    async def unindexed(self) -> int:
        """Return the number of stitches that a search with `complete=False` may leave out. Deleted ones may count."""
        ...

    async def prepare_reports(self) -> bool:
        """Index the next stitches for searches, and store the totals of the next days for reports.

        Returns True if more are left. A call takes a fraction of a second.
        """
        ...

    async def size(self, thread_id: UUID | None) -> Sizes:
        """Return the stored bytes of heads, runs, stitches and blobs. For a whole store also the size on disk."""
        ...


ANSWER: Final = 32 << 20
"""Maximum size in bytes of the result of a user's SQL statement. Further rows are left out."""


class QueryResult(NamedTuple):
    """Result of a SQL statement. `truncated` is True if rows were left out because they were too many or too large."""

    columns: list[str]
    rows: list[tuple[Any, ...]]
    truncated: bool


@runtime_checkable
class JoinsTransactions(Protocol):
    """Optional interface of a backend: write inside a transaction of the caller."""

    async def insert_within(self, connection: object, thread: Thread) -> None:
        """Write a new thread through the caller's connection. It exists if and only if the caller commits.

        Raises `Refused` if the connection belongs to another driver or another database, or has no open transaction. If
        the write fails, only the write is undone. The caller's transaction can continue.
        """
        ...


Encoder = Callable[[Commit, Sequence[Record]], Any]
"""Returns the rows of a commit in the form that a backend writes, or None if the commit does more than create threads.

Its second argument are side records of these threads, of one class. The rows can be pickled.
"""


@runtime_checkable
class HasVersion(Protocol):
    """Optional interface of a backend without SQL: tell whether the record has changed."""

    async def version(self) -> object:
        """Return a value that changes with each commit of any process."""
        ...


class FullBackend(Backend, Reports, Protocol):
    """A complete backend: both contracts, tables of applications, and SQL if it supports it."""

    archive_encoding: Literal["gzip", "none"]

    encode: Encoder
    """Encodes new threads for `append_encoded`. It needs no backend, so that another process can call it."""

    async def append_encoded(self, rows: Any, *, new_ids: bool) -> None:
        """Write new threads that `encode` returned, all or none.

        With `new_ids`, no other thread can have a stitch with one of their ids.

        Raises `Conflict` if a thread, a run or a stitch with one of their ids exists.
        """
        ...

    async def extend(self, extension: Extension) -> None:
        """Create the tables of an extension, or migrate them to its version. Two processes may call it at once.

        Raises `Refused` if the extension needs SQL and the backend has none.
        """
        ...

    async def extensions(self) -> list[str]:
        """Return the names of the extensions in the store."""
        ...

    async def run_query(
        self, extension: Extension, name: str, parameters: Fields, into: type[Record] | None, *, writes: bool
    ) -> list[Any]:
        """Return the rows of a named query of an extension, as tuples or as records of the class `into`.

        With `into`, the columns of the class replace `{columns}` in the query. A query that writes is one transaction.
        Raises `Refused` if the backend has no SQL.
        """
        ...

    async def query(
        self,
        sql: str,
        *,
        limit: int,
        seconds: float,
        lens: str | None = None,
        force: bool = False,
        own: bool = False,
    ) -> QueryResult | None:
        """Run one read-only SQL statement. Return None if the backend has no SQL.

        The statement comes from a user. It runs in a place where it can be stopped and can read only the record. Raises
        `Refused` if it is not one reading statement, takes too long or needs too much memory, or if the database offers
        no read-only login. With `force`, a database without such a login runs it as the store's user, in a read-only
        transaction. `own` is for statements of Lockstitch itself, which need no such protection.

        With a lens, its views hide core tables of the same names. Raises `Refused` if the database has no such lens.
        """
        ...

    def lens(self, name: str, *, blocking: bool = False) -> AbstractAsyncContextManager[Any] | None:
        """Return a read-only connection of the database's driver with a lens, or None if the backend has no SQL.

        With `blocking`, the connection is a synchronous one.
        """
        ...
