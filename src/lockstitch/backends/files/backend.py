"""`FilesBackend`: the backend for a folder of JSON files."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, TypeVar
from uuid import UUID

from lockstitch.backend import (
    WATCHING,
    ChangeHint,
    Commit,
    Fields,
    Find,
    QueryResult,
    Receipt,
    SearchHit,
    Sizes,
    ThreadChange,
    ThreadUsage,
    Where,
)
from lockstitch.backends.files import append as change
from lockstitch.backends.files import claim, coordinator, extensions, log, put, reports, schema
from lockstitch.backends.files import query as finding
from lockstitch.backends.files import query as selection
from lockstitch.backends.files import reports as search
from lockstitch.backends.files.claim import Moment
from lockstitch.backends.files.coordinator import FolderCoordinator
from lockstitch.backends.files.delete import delete
from lockstitch.backends.files.disk import translate
from lockstitch.backends.files.transaction import Folder, Transaction
from lockstitch.errors import Conflict, LockstitchError, Refused, StoreUnreachable
from lockstitch.extension import Extension
from lockstitch.model import Clock, Limit, Record, Run, Stitch, Thread, Worker
from lockstitch.model.clock import uptime
from lockstitch.model.statistics import LatencyRow, StatsFilter, StitchOutline, UsageRow
from lockstitch.model.worker import ClaimRequest, EndCause, host_clock

R = TypeVar("R", bound=Record)
T = TypeVar("T")


class FilesBackend:
    """A folder of JSON files on one host. Many processes can use it at the same time.

    All file operations run in one thread of this process, so the event loop never waits for a disk or a lock.
    """

    archive_encoding: Literal["gzip", "none"] = "gzip"
    encode = staticmethod(change.encode)

    def __init__(self, root: Path, clock: Clock) -> None:
        self._root = root
        self._clock = clock
        self._guard = FolderCoordinator(root)
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="lockstitch-files")
        self._watchers: set[asyncio.Event] = set()
        self._stale: set[UUID] = set()
        self._closed = False

    async def migrate(self) -> int:
        return await self._run(lambda: schema.migrate(self._root))

    async def append(self, commit: Commit) -> list[Receipt]:
        def work(transaction: Transaction) -> list[Receipt]:
            receipts = change.append(transaction, commit, self._clock.now())
            put.write_records(transaction, commit)
            return receipts

        return await self._write(work)

    async def append_encoded(self, rows: Any, *, new_ids: bool) -> None:
        commit, records = rows
        # The databases have unique indexes on these ids. Here, a search for stitches reads the logs of all threads.
        changes: list[ThreadChange] = commit.steps
        for kind, ids in (
            (Run, [run.id for step in changes for run in step.new_runs]),
            (Stitch, [stitch.id for step in changes for stitch in step.stitches if not new_ids]),
        ):
            if ids and await self.find(Find(kind, (Where("id", "in", ids),), limit=1)):
                raise Conflict("Another writer has stored one of these traces. Nothing was written.")

        def work(transaction: Transaction) -> None:
            change.append(transaction, commit, self._clock.now())
            put.put(transaction, records)

        await self._write(work)

    async def read(self, thread_id: UUID, ranges: Sequence[tuple[int, int | None]]) -> list[Stitch]:
        return await self._read(lambda folder: log.read(folder, thread_id, ranges))

    async def get(self, kind: type[R], key: Sequence[Any]) -> R | None:
        return await self._read(lambda folder: finding.get(folder, kind, selection.typed_key(kind, key)))

    async def find(self, find: Find[R]) -> list[R]:
        return await self._read(lambda folder: finding.find(folder, find))

    async def put(self, records: Sequence[Record], *, new: bool = False) -> None:
        """Write records. Their projections are written when the store is closed, or when projections are rebuilt."""
        await self._write(lambda transaction: put.put(transaction, records, new=new))
        self._stale |= put.shown_in(records)

    async def delete(self, find: Find[Any], *, force: bool = False) -> int:
        return await self._write(lambda transaction: delete(transaction, find, force=force))

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
        claim_request = ClaimRequest(worker_id, agents, project, limit, after, limits, suspects, alone)

        def work(transaction: Transaction) -> list[Thread]:
            now = self._now()
            if thread_id is not None:
                return claim.claim_thread(transaction, claim_request, thread_id, now)
            return claim.claim(transaction, claim_request, now)

        return await self._write(work)

    def _now(self) -> Moment:
        return Moment(self._clock.now(), host_clock(self._clock))

    async def heartbeat(self, worker: Worker) -> bool:
        measured = worker.changed(uptime=uptime(self._clock))
        return await self._write(lambda transaction: claim.heartbeat(transaction, measured, self._clock.now()))

    async def release(self, worker_id: UUID, *, expired_only: bool = False, cause: EndCause = "stopped") -> list[UUID]:
        return await self._write(
            lambda transaction: claim.release(transaction, worker_id, expired_only, cause, self._now())
        )

    async def watch(self, *, work_only: bool = False) -> AsyncGenerator[ChangeHint, None]:
        moved = asyncio.Event()
        self._watchers.add(moved)
        try:
            place = await self._run(lambda: schema.here(self._guard))
            yield WATCHING
            while not self._closed:
                moved.clear()
                hints, place = await self._run(lambda place=place: schema.look(self._guard, place, self._clock.now()))
                for hint in hints:
                    yield hint
                # Not wait_for, which on Python 3.11 can swallow a cancellation.
                with suppress(TimeoutError):
                    async with asyncio.timeout(schema.POLL):
                        await moved.wait()
        finally:
            self._watchers.discard(moved)

    async def extend(self, extension: Extension) -> None:
        await self._write(lambda transaction: extensions.extend(transaction, extension))

    async def extensions(self) -> list[str]:
        return await self._read(extensions.names)

    async def run_query(
        self, extension: Extension, name: str, parameters: Fields, into: type[Record] | None, *, writes: bool
    ) -> list[Any]:
        raise Refused(f"The file backend has no queries, so {extension.name} cannot run {name}.")

    async def close(self) -> None:
        if self._closed:
            return
        # If the journal cannot be emptied, the next process applies it again.
        with suppress(LockstitchError):
            await self._run(self._finish)
        self._closed = True
        self._wake_watchers()
        self._worker.shutdown(wait=False)

    async def count(self, find: Find[Any]) -> int:
        return await self._read(lambda folder: finding.count(folder, find))

    async def seconds_until_ready(self, agents: Sequence[str], project: str | None) -> float | None:
        return await self._read(lambda folder: claim.seconds_until_ready(folder, agents, project, self._clock.now()))

    async def average_tokens(self, project: str, since: datetime) -> list[ThreadUsage]:
        return await self._read(lambda folder: reports.average_tokens(folder, project, since))

    async def usage(self, stats_filter: StatsFilter) -> list[UsageRow]:
        return await self._read(lambda folder: reports.usage(folder, stats_filter))

    async def latencies(self, stats_filter: StatsFilter, kind: Literal["tool", "model"]) -> list[LatencyRow]:
        return await self._read(lambda folder: reports.latencies(folder, stats_filter, kind))

    async def list_runs(self, stats_filter: StatsFilter, order: Literal["newest", "slowest"], limit: int) -> list[Run]:
        return await self._read(lambda folder: reports.runs(folder, stats_filter, order, limit))

    async def mirrored_run(self, project: str, foreign_id: str) -> Run | None:
        return await self._read(lambda folder: reports.mirrored(folder, project, foreign_id))

    async def outline(self, run_id: UUID) -> list[StitchOutline]:
        return await self._read(lambda folder: reports.outlines(folder, run_id))

    async def search(self, project: str, text: str, limit: int, *, complete: bool = True) -> list[SearchHit]:
        return await self._read(lambda folder: search.search(folder, project, text, limit))

    async def unindexed(self) -> int:
        return 0

    async def prepare_reports(self) -> bool:
        return False

    async def size(self, thread_id: UUID | None) -> Sizes:
        return await self._read(lambda folder: reports.size(folder, thread_id))

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
        return None

    def lens(self, name: str, *, blocking: bool = False) -> None:
        return None

    async def version(self) -> bytes:
        """Return the mark of the journal. It changes with each commit of any process."""
        return await self._read(lambda folder: self._guard.journal.raw_mark())

    async def rebuild_projections(self) -> int:
        """Restore files from the journal, rewrite every projection, and return the number of threads that have some."""
        return await self._run(lambda: coordinator.rebuild(self._guard))

    async def _read(self, work: Callable[[Folder], T]) -> T:
        return await self._run(lambda: self._guard.read(work))

    async def _write(self, work: Callable[[Transaction], T]) -> T:
        result = await self._run(lambda: self._guard.write(work))
        self._wake_watchers()
        return result

    async def _run(self, work: Callable[[], T]) -> T:
        if self._closed:
            raise StoreUnreachable(f"The store in {self._root} is closed. Open it again.")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._worker, work)
        except LockstitchError:
            # Some subclasses of LockstitchError are OSErrors too.
            raise
        except OSError as exc:
            raise translate(exc, self._root) from exc

    def _finish(self) -> None:
        coordinator.show(self._guard, self._stale)
        self._guard.checkpoint()

    def _wake_watchers(self) -> None:
        for moved in self._watchers:
            moved.set()
