"""`sync`: bring a lake to the state of the record.

A stitch of a native thread never changes, so new ones are found by `log_id`. The commit that adds them has the last
`log_id` as the version of its Delta transaction: rows and watermark are written together or not at all. Above the
watermark, stitches of the last sync are replaced, because transactions may have been open then.

Everything else belongs to a thread. Each row of `threads` in the lake has the state in which its thread was written,
and is written last. A thread in another state is written again with its runs. Stitches are written again where they
can have changed: imported traces, and threads that were archived or redacted. Deleted threads are missing in the
record, so their rows are deleted. A sync that was killed does not change these states, and the next one repeats
the work with the same result.

Readers see the versions of the tables that the last complete sync recorded.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from importlib import import_module
from typing import Any, Final

from lockstitch.errors import Refused
from lockstitch.lake.source import TAIL, Head, Source, identity_of, snapshot
from lockstitch.lake.tables import BLOBS, RUNS, SMALL, STITCHES, TABLES, THREADS, Table
from lockstitch.lake.target import Lake
from lockstitch.model import Json

# pyarrow has no types.
pa: Any = import_module("pyarrow")
pc: Any = import_module("pyarrow.compute")

BATCH: Final = 128 << 20
"""Bytes of rows in one commit. Two batches are in memory: one is written while the next one is read."""

THREADS_AT_ONCE: Final = 1000
"""Threads whose rows one commit replaces."""


@dataclass(slots=True)
class SyncReport:
    """The rows that a sync has written."""

    log_id: int = 0
    """The watermark of the lake."""
    stitches: int = 0
    threads: int = 0
    """Threads that were new or had changed."""
    removed: int = 0
    """Threads that the record no longer has."""

    @property
    def changed(self) -> bool:
        """True if the lake has changed."""
        return bool(self.stitches or self.threads or self.removed)


def sync(connection: Any, target: str, progress: Callable[[SyncReport], None] | None = None) -> SyncReport:
    """Bring a lake to the state of a record.

    Args:
        connection: Connection of a lens to SQLite or PostgreSQL, from `SyncStore.lens`.
        target: Folder, or URL of an object store.
        progress: Function that receives the report after each commit.

    Raises:
        Refused: If the target is not a lake, or is the lake of another record.
        Conflict: If another process writes to the lake at the same time.
    """
    lake = Lake(target)
    # Before the snapshot, so that a sync with a newer one is a conflict.
    lake.open_all()
    with snapshot(connection, lake.target) as source:
        return _Sync(source, lake, progress or (lambda report: None)).run()


class _Sync:
    def __init__(self, source: Source, lake: Lake, progress: Callable[[SyncReport], None]) -> None:
        self._source = source
        self._lake = lake
        self._progress = progress
        self._report = SyncReport()
        self._heads = {head.id: head for head in source.heads()}
        heads = self._heads.values()
        self._traces = {head.id for head in heads if head.kind == "trace"}
        self._ids = pa.array([head.id for head in heads], pa.string())
        self._projects = pa.array([head.project for head in heads], pa.string())

    def run(self) -> SyncReport:
        identity = self._source.identity()
        last = self._lake.last_sync()
        mark = self._check(identity.store, last)
        versions = self._versions()
        interrupted = versions != (last["versions"] if last else {})
        self._check_log(last, mark, interrupted)
        self._lake.prepare()
        known = self._known()
        changed = [head for head in self._heads.values() if known.get(head.id, ("", 0))[0] != head.stamp]
        rewritten = {head.id for head in changed if _is_rewritten(head, known.get(head.id), interrupted)}
        removed = [id for id in (known.keys() | self._written() if interrupted else known) if id not in self._heads]
        self._log(mark, rewritten)
        self._replace(STITCHES, sorted(rewritten))
        ids = sorted(head.id for head in changed)
        self._replace(RUNS, ids)
        for part in _parts(removed):
            for table in (STITCHES, RUNS):
                self._lake.delete(table, _is_in("thread_id", part))
        self._blobs()
        digests = self._small(last["digests"] if last else {})
        # Last, because these rows tell what was written.
        self._replace(THREADS, ids)
        for part in _parts(removed):
            self._lake.delete(THREADS, _is_in("id", part))
        self._report.threads, self._report.removed = len(changed), len(removed)
        versions = self._versions()
        if last is None or last["versions"] != versions:
            self._lake.seal(
                {
                    **identity._asdict(),
                    "log_id": self._report.log_id,
                    "at": datetime.now(UTC),
                    "versions": versions,
                    "digests": digests,
                    "tail": self._source.tail(self._report.log_id, self._traces),
                }
            )
        return self._report

    def _versions(self) -> dict[str, int]:
        return {table.name: delta.version() for table in TABLES if (delta := self._lake.open(table.name))}

    def _written(self) -> set[str]:
        """Return the threads with rows in the lake, after a sync that was killed before it wrote the threads."""
        result: set[str] = set()
        for table in (STITCHES, RUNS):
            if delta := self._lake.open(table.name):
                ids = delta.to_pyarrow_dataset().to_table(columns=["thread_id"]).column(0)
                result.update(pc.unique(ids).to_pylist())
        return result

    def _check(self, store: str, last: Json | None) -> int:
        """Return the watermark of the lake. Raises `Refused` if the lake belongs to another record."""
        if last is not None and last["store"] != store:
            raise Refused(f"{self._lake.target} is the lake of another store. Choose another folder.")
        mark = self._lake.watermark(STITCHES.name)
        end = self._source.last_drawn()
        if end is not None and end < mark:
            raise Refused(
                f"{self._lake.target} has stitches up to {mark:,}, but the log of the store ends at {end:,}. The store "
                "was restored from a backup. Choose another folder."
            )
        return mark

    def _check_log(self, last: Json | None, mark: int, interrupted: bool) -> None:
        """Raise `Refused` if the log of the store has other stitches than the lake at the same places."""
        tail: dict[str, str] | None = last.get("tail") if last else None
        if mark and (tail is None or interrupted):
            condition = (pc.field("log_id") > mark - TAIL) & (pc.field("log_id") <= mark)
            rows = self._lake.select(STITCHES.name, condition, ["log_id", "id", "thread_id"]).to_pylist()
            tail = {str(row["log_id"]): identity_of(row["id"], row["thread_id"], self._traces) for row in rows}
        if not tail:
            return
        known = self._source.identities(map(int, tail), self._traces)
        if any(tail[place] != identity for place, identity in known.items()):
            raise Refused(
                f"{self._lake.target} has other stitches than the log of the store up to {mark:,}. The store was "
                "restored from a backup, or the lake belongs to another store. Choose another folder."
            )

    def _known(self) -> dict[str, tuple[str, int]]:
        """Return the threads of the lake: stamp and position."""
        table = self._lake.open(THREADS.name)
        if table is None:
            return {}
        rows = table.to_pyarrow_table(columns=["id", "stamp", "position"])
        values = (rows.column(name).to_pylist() for name in ("id", "stamp", "position"))
        return {id: (stamp, position) for id, stamp, position in zip(*values, strict=True)}

    def _log(self, mark: int, rewritten: set[str]) -> None:
        """Add the stitches above the watermark, and move it."""
        excluded = pa.array(sorted(rewritten), pa.string())
        # The rows of a former sync above the watermark are written again.
        replacing: str | None = f"log_id > {mark}"
        self._report.log_id = mark

        def write(_: int, rows: Any) -> None:
            nonlocal replacing
            last = pc.max(rows.column("log_id")).as_py()
            native = rows.filter(pc.invert(pc.is_in(rows.column("thread_id"), excluded))) if rewritten else rows
            # The rest of the batch may have gaps, which transactions that are still open will fill.
            end = max(mark, min(last, self._source.complete))
            if native.num_rows:
                self._lake.append(STITCHES, self._placed(STITCHES, native), replacing=replacing, watermark=end)
                replacing = None
            self._report.log_id = end
            self._report.stitches += native.num_rows

        self._write_each(_batches(self._source.log(mark)), write)

    def _replace(self, table: Table, ids: Sequence[str]) -> None:
        """Write all rows of some threads again."""
        column = "id" if table is THREADS else "thread_id"
        fresh = self._lake.open(table.name) is None
        parts = list(_parts(ids, 20 * THREADS_AT_ONCE if fresh else THREADS_AT_ONCE))

        def write(number: int, rows: list[Any]) -> None:
            if not rows:
                return
            placed = self._placed(table, pa.concat_tables(rows))
            # Without a complete sync, tables may have rows of one that was killed.
            self._lake.append(table, placed, replacing=None if fresh else _is_in(column, parts[number]))
            if table is STITCHES:
                self._report.stitches += placed.num_rows

        self._write_each((list(self._source.of_threads(table, part)) for part in parts), write)

    def _write_each(self, batches: Generator[Any, None, None], write: Callable[[int, Any], None]) -> None:
        """Write each batch, with its number, in another thread while this one reads the next batch."""
        # After an error, the cursor is closed before its connection.
        with closing(batches), ThreadPoolExecutor(1) as writer:
            writing: Future[None] | None = None
            for number, rows in enumerate(batches):
                if writing is not None:
                    writing.result()
                    self._progress(self._report)
                writing = writer.submit(write, number, rows)
            if writing is not None:
                writing.result()
                self._progress(self._report)

    def _placed(self, table: Table, rows: Any) -> Any:
        """Return rows with their partitions, in an order that compresses well."""
        if table is THREADS:
            stamps = [self._heads[id].stamp for id in rows.column("id").to_pylist()]
            rows = rows.append_column("stamp", pa.array(stamps, pa.string()))
        else:
            place = pc.index_in(rows.column("thread_id"), self._ids)
            rows = rows.append_column("project", self._projects.take(place.combine_chunks()))
        assert table.day is not None
        rows = rows.append_column("day", rows.column(table.day).cast(pa.date32()))
        if table is STITCHES:
            rows = rows.sort_by([("thread_id", "ascending"), ("position", "ascending")])
        return rows

    def _blobs(self) -> None:
        table = self._lake.open(BLOBS.name)
        stored: set[str] = (
            set() if table is None else set(table.to_pyarrow_table(columns=["sha256"]).column(0).to_pylist())
        )
        present = self._source.keys(BLOBS)
        for part in _parts(sorted(present - stored)):
            for rows in self._source.of_keys(BLOBS, part):
                self._lake.append(BLOBS, rows)
        for part in _parts(sorted(stored - present)):
            self._lake.delete(BLOBS, _is_in("sha256", part))

    def _small(self, digests: Json) -> Json:
        """Write the small tables that have changed, and return the digests of all."""
        result: Json = {}
        for table in SMALL:
            rows = self._source.all(table)
            if rows is None:
                rows = table.schema.empty_table()
            digest = sha256()
            for batch in rows.combine_chunks().to_batches():
                for column in batch.to_pylist():
                    digest.update(repr(column).encode(errors="surrogatepass"))
            result[table.name] = digest.hexdigest()
            if digests.get(table.name) != result[table.name] or self._lake.open(table.name) is None:
                self._lake.overwrite(table, rows)
        return result


def _is_rewritten(head: Head, known: tuple[str, int] | None, interrupted: bool) -> bool:
    """True if stitches of a thread in the lake may have changed, or are only in archives of the record."""
    if known is None:
        return head.first_position > 1 or (interrupted and head.kind == "trace")
    stamp, position = known
    return head.kind == "trace" or head.position < position or _packed(head.stamp) != _packed(stamp)


def _packed(stamp: str) -> str:
    """Return the part of a stamp that describes the archives."""
    return stamp.partition("/[")[2]


def _parts(ids: Sequence[str], size: int = THREADS_AT_ONCE) -> Iterator[Sequence[str]]:
    for start in range(0, len(ids), size):
        yield ids[start : start + size]


def _is_in(column: str, ids: Iterable[str]) -> str:
    """Return the condition that a column has one of these values."""
    quoted = ", ".join(f"'{id}'" for id in ids)
    return f"{column} IN ({quoted})"


def _batches(tables: Iterable[Any]) -> Generator[Any, None, None]:
    """Yield tables of about `BATCH` bytes."""
    waiting: list[Any] = []
    size = 0
    for table in tables:
        waiting.append(table)
        size += table.nbytes
        if size >= BATCH:
            yield pa.concat_tables(waiting)
            waiting, size = [], 0
    if waiting:
        yield pa.concat_tables(waiting)
