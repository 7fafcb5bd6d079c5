"""The contract of a backend: what a store must promise, and the words it is asked in.

A backend moves records atomically and translates its driver's errors. Ids, validation, folds, transitions and
retries live once, above it. Every method is safe to call from many tasks at once; every promise holds between
processes too.

The one rule behind everything: **a commit is a compare-and-set.** It names the fence, the holder and the position
it saw. If any of them is no longer so, nothing at all is written and `Conflict` is raised.
"""

from collections.abc import AsyncGenerator, Sequence
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
    """The change of one thread in a commit, valid only if the thread is as its writer read it.

    - The backend compares `fence`, `position` and `worker_id` (None: no worker holds the thread). It compares
      `delivered` if it is not None. A change that makes a thread wait or end sets it, so that no delivery is missed.
    - `stitches` start at `position + 1`. The backend sets the position and the tip_id of the head.
    - `head` and `runs` are changed fields. The backend writes only these fields.
    - The backend adds `new_children` to pending_children, which deliveries lower concurrently. While a cancel of the
      thread is requested, it refuses a change with new children. So no child escapes a cancel.
    - `consumed` are the deliveries of the inbox that become stitches of this change, with their positions.
    - `blob_refs` are the hashes of the blobs that the thread refers to from now on.
    - `replaced_stitches` are stitches of a mirror, up to `position`, that have more data now. Stitches of other threads
      are never replaced. Such a change raises the fence, because the position does not show it to other writers.
    """

    thread_id: UUID
    fence: int
    position: int
    worker_id: UUID | None = None
    delivered: int | None = None
    stitches: Sequence[Stitch] = ()
    head: Fields = {}
    new_runs: Sequence[Run] = ()
    runs: Sequence[tuple[UUID, Fields]] = ()
    consumed: Sequence[tuple[UUID, int]] = ()
    new_children: int = 0
    blob_refs: Sequence[str] = ()
    replaced_stitches: Sequence[Stitch] = ()


@dataclass(frozen=True, slots=True)
class ThreadEdit:
    """Fields that every process may write at any time, because no decision depends on them: see `EDITABLE`."""

    thread_id: UUID
    fields: Fields


EDITABLE = frozenset({"title", "extras", "priority", "expires_at", "cancel_requested"})


class Receipt(NamedTuple):
    """The result of one step of a commit.

    For a change: the position of the thread, and the values that show its holder new deliveries and a cancel request.

    For a delivery: the position of its stitch (None: it is in the inbox), True if it is new, and the id of the stored
    delivery. If the same was delivered before, that is the id of the first delivery. A delivery to a thread that has
    ended is not stored: it is not new, and it has no id.

    For an edit: nothing.
    """

    position: int | None
    delivered: int = 0
    cancel_requested: bool = False
    new: bool = True
    woken: bool = False
    delivery_id: UUID | None = None


class Commit(NamedTuple):
    """One transaction of a backend, made by `plan_commit`.

    The backend deletes `deleted_threads`, creates `threads`, executes the steps in their order, and then writes the
    notices and the records of an application.

    - All writers order steps in the same way: descendants before ancestors, then by thread id. So two commits cannot
      wait for each other in a circle.
    - Threads are deleted as by `delete`, with all of their records. Raises `ThreadBusy` if a worker holds one of them.
    - Records are written as by `put`. Only the values of daily metrics are added to the stored values: they count the
      deleted threads, and several commits may delete threads at the same time.
    - `superseded` are mirrors. This commit writes their stitches to other threads. The backend compares each of them
      like a change and deletes it before everything else. Then its id, its key and the ids of its stitches are free for
      the rest of the commit. `records` may contain the side records of these threads.
    """

    steps: Sequence[ThreadChange | Delivery | ThreadEdit] = ()
    threads: Sequence[Thread] = ()
    notices: Sequence[WebhookEvent] = ()
    records: Sequence[Record] = ()
    deleted_threads: Sequence[UUID] = ()
    superseded: Sequence[ThreadChange] = ()

    @property
    def is_record_only(self) -> bool:
        """True if the commit has no records of an application and deletes nothing."""
        return not self.records and not self.deleted_threads and not self.superseded


class Where(NamedTuple):
    """One condition on a field; several are joined by and."""

    field: str
    operator: Literal["=", "!=", "<", "<=", ">", ">=", "in", "is null", "is not null"]
    value: Any = None


@dataclass(frozen=True, slots=True)
class Find(Generic[R]):
    """Which records of a kind, in which order.

    A field in `order` that begins with "-" descends; all must go the same way. `after` holds the values of the
    order's fields in the last record already seen: its page costs the same at any depth, which `offset` does not.
    """

    kind: type[R]
    where: Sequence[Where] = ()
    order: Sequence[str] = ()
    after: Sequence[Any] | None = None
    limit: int | None = None
    offset: int = 0


class ChangeHint(NamedTuple):
    """A hint that a thread has moved; reading it tells how."""

    thread_id: UUID
    position: int


WATCHING = ChangeHint(UUID(int=0), 0)
"""What `watch` yields first: from here on nothing is missed."""

WORK_READY = ChangeHint(UUID(int=0), 1)
"""A hint that some thread has become ready to be claimed: made, woken or given back."""


class Backend(Protocol):
    """Moves records atomically. All errors are LockstitchErrors."""

    async def migrate(self) -> int:
        """Bring the schema to this code's version, in place, and return the version.

        Two processes may call it at once. SchemaMismatch when the store is newer than the code.
        """
        ...

    async def append(self, commit: Commit) -> list[Receipt]:
        """Commit all of `commit` or nothing, and return a receipt per step once it is durable.

        `apply_delivery` decides what a delivery changes, while the row of its receiver is locked. A second delivery
        with the same thread, sender and call changes nothing, and its receipt says so. The run of a stitch must exist.

        Raises `Conflict` if a thread is not as its change expects, `NotFound` if the thread of a delivery or of an edit
        does not exist, and `OutcomeUnknown` if the connection broke and the commit may have happened.
        """
        ...

    async def read(self, thread_id: UUID, ranges: Sequence[tuple[int, int | None]]) -> list[Stitch]:
        """The stitches of these ranges of positions (both ends included, None: to the end), in order, each once."""
        ...

    async def get(self, kind: type[R], key: Sequence[Any]) -> R | None:
        """The record with this primary key."""
        ...

    async def find(self, find: Find[R]) -> list[R]:
        """The records that `find` describes."""
        ...

    async def put(self, records: Sequence[Record], *, new: bool = False) -> None:
        """Write records of one kind as they are, replacing those with the same key, all or none.

        What is `new` replaces nothing: Conflict when there is one with the same key, and then nothing is written.
        This is how side records are kept and how stores are copied; native threads change by `append` alone.
        """
        ...

    async def delete(self, find: Find[Any], *, force: bool = False) -> int:
        """Delete the records that `find` describes and return how many.

        Threads take everything of theirs along: runs, stitches, letters, side records, blobs nobody else refers
        to, descendants. Rows are locked descendants first. ThreadBusy when one of them is held, unless forced.
        Stitches are deleted by thread and positions ("=", ">=", "<=") only, runs not at all.
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
        """Take threads for a worker: status running, fence raised.

        With `thread_id` that thread, whatever it waits for, if nobody holds it or its holder's lease has run out;
        a thread that has ended is not claimed. Otherwise up to `limit` runnable ones (pending, or waiting with a
        wake_at that has come), of these agents only if given. Projects take turns, beginning with the first by name
        behind `after` and again from the front; of a project's threads the most urgent, and then the longest ready,
        come first. Threads are returned in that order.

        None is taken that would bring the threads held of a limit's agents above it; what is held is counted under
        the limit's lock, so that two who claim at once cannot exceed it together. The limits are stored ones.

        With `suspects` False no suspect is taken, see `Thread.suspect`. With True one suspect is taken: the one that
        was lost most often, then the most urgent, then the longest ready; projects do not take turns. `alone` is stored
        with it. A thread that is taken from a holder whose lease expired counts as lost, as with `release`.

        Of many claiming at once exactly one gets a thread. A worker that is dead or unknown gets none.
        """
        ...

    async def heartbeat(self, worker: Worker) -> bool:
        """Register a worker or renew its lease, by the store's clock. False: it was declared dead and must stop."""
        ...

    async def release(self, worker_id: UUID, *, expired_only: bool = False, cause: EndCause = "stopped") -> list[UUID]:
        """Declare a worker dead and release its threads: status pending, fence raised, place in the queue kept.

        With `expired_only` only if its lease has expired by the store's clock. Returns the released threads.

        Unless the cause is `stopped`, the worker lost its threads: `lost_by` names it and `losses` rises. If the worker
        crashed (`died` or `expired`) and held only one thread, executed alone, `crashes` of that thread rises.
        """
        ...

    def watch(self) -> AsyncGenerator[ChangeHint, None]:
        """READY once it watches; then threads that move, here or in another process, soon after they do, and WORK
        soon after something has become ready to be claimed.

        Hints may repeat. Close the generator to stop watching.
        """
        ...

    async def close(self) -> None:
        """Let go of everything; nothing acknowledged is lost by not calling it."""
        ...


Sizes = dict[str, int]


class ThreadUsage(NamedTuple):
    """A row of the token report."""

    thread_id: UUID
    runs: int
    average_tokens: float


class SearchHit(NamedTuple):
    """A place where a text was found: in a thread's title (position None) or in an input or answer."""

    thread_id: UUID
    position: int | None
    score: float


class Reports(Protocol):
    """The second, read-only contract: questions over many records that a database answers better than a loop."""

    async def count(self, find: Find[Any]) -> int:
        """How many records `find` describes, its order, cursor and limits ignored."""
        ...

    async def average_tokens(self, project: str, since: datetime) -> list[ThreadUsage]:
        """Per thread, the average of input and output tokens of its top-level runs started since then."""
        ...

    async def usage(self, asked: StatsFilter) -> list[UsageRow]:
        """What the runs that are asked of used, a row for each group, in no order.

        Groupings agree: their sums are equal, and equal to the sums over runs. What a run counts beyond its model calls
        that stand in the log is its own model's.
        """
        ...

    async def latencies(self, asked: StatsFilter, kind: Literal["tool", "model"]) -> list[LatencyRow]:
        """How long the calls of each tool or model took and how many failed, a row for each, in no order.

        Asked by day or hour, there is a row for each of those instead, over all tools or models. What is archived is
        not looked into.
        """
        ...

    async def list_runs(self, asked: StatsFilter, order: Literal["newest", "slowest"], limit: int) -> list[Run]:
        """The first runs that are asked of: those that began last, or those of the ended ones that took longest."""
        ...

    async def mirrored_run(self, project: str, foreign_id: str) -> Run | None:
        """The run of a project that mirrors what another system knows by this id."""
        ...

    async def outline(self, run_id: UUID) -> list[StitchOutline]:
        """The stitches of a run in their order, without what they say: many are read at a small cost."""
        ...

    async def search(self, project: str, text: str, limit: int) -> list[SearchHit]:
        """Threads and stitches that contain every word of `text`, best first."""
        ...

    async def size(self, thread_id: UUID | None) -> Sizes:
        """Bytes kept: heads, runs, stitches, blobs, and for a whole store what stands on disk."""
        ...


ANSWER: Final = 32 << 20
"""Bytes of an answer to SQL of a user; rows beyond it are left off."""


class QueryResult(NamedTuple):
    """The result of a SQL statement; `more` if rows were left off, because they were too many or too large."""

    columns: list[str]
    rows: list[tuple[Any, ...]]
    truncated: bool


@runtime_checkable
class JoinsTransactions(Protocol):
    """What a backend may offer besides: to take part in a transaction of the caller's own."""

    async def insert_within(self, connection: object, thread: Thread) -> None:
        """Write a new thread over a connection of the caller's, so that it exists exactly if their commit does.

        Refused when the connection is not one of this database's driver, leads to another database, or has no
        transaction to take part in. What fails is undone alone; the caller's transaction goes on.
        """
        ...


@runtime_checkable
class SupportsExtensions(Protocol):
    """What a backend that speaks SQL offers besides: tables of applications."""

    async def extend(self, extension: Extension) -> None:
        """Make an extension's tables, or bring them to its version, in place. Two processes may do so at once."""
        ...

    async def extensions(self) -> list[str]:
        """The names of the extensions that the store has."""
        ...

    async def run_query(
        self, extension: Extension, name: str, parameters: Fields, into: type[Record] | None, *, writes: bool
    ) -> list[Any]:
        """The rows that a named query of an extension gives, as tuples, or as records of a kind, whose columns then
        stand for `{columns}` in the query. One that writes is one transaction."""
        ...


class FullBackend(Backend, Reports, Protocol):
    """What a backend of Lockstitch is: both contracts, and whether it speaks SQL."""

    archive_encoding: Literal["zstd", "gzip"]

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
        """Run one read-only SQL statement. None if the backend has no SQL.

        The statement is a user's: it runs where it can be stopped and cannot reach more than the record. Raises
        Refused if it is not one reading statement, takes too long or needs too much memory, and where the database
        offers no login that can only read. With `force` it runs there as the store's own user, in a read-only
        transaction. `own` is for statements that Lockstitch has written itself: they need no such protection.

        Through a lens its views come first and hide core tables of the same names. Raises Refused if the database has
        no such lens.
        """
        ...

    def lens(self, name: str, *, blocking: bool = False) -> AbstractAsyncContextManager[Any] | None:
        """A read-only connection of the database's driver, `blocking` or not, with a lens in place. None: no SQL."""
        ...
