"""`verify`: read all threads of a store, report problems, and repair those that the log itself answers.

The head of a thread repeats facts of its log and of its runs: the last position, the last linked stitch, the start of
the context, the fence and the number of runs. If a head is behind them, `repair` writes them again. It never changes a
log. If a head is ahead of its log, stitches may be lost, and only a backup has them.
"""

# The modules of this package share the backend of a store.
# pyright: reportPrivateUsage=false

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from lockstitch.backend import Commit, Fields, Find, RecordChange
from lockstitch.errors import Conflict, LockstitchError
from lockstitch.model import Json, Run, Stitch, Thread, context
from lockstitch.model.context import replaces_context
from lockstitch.store.core import StoreCore

_PAGE = 1000


@dataclass(slots=True)
class DoctorReport:
    """Counts and problems of a store."""

    threads: int = 0
    """Number of threads."""
    runs: int = 0
    """Number of runs."""
    stitches: int = 0
    """Number of stitches."""
    problems: list[Json] = field(default_factory=list[Json])
    """Problems, each as {"thread", "kind", "detail"}."""
    repaired: list[Json] | None = None
    """Problems that were repaired, in the same form. They are not among `problems`. None: no repair was requested."""

    @property
    def ok(self) -> bool:
        """True if there are no problems."""
        return not self.problems

    def as_json(self) -> Json:
        """Return the report as JSON."""
        counts: Json = {"ok": self.ok, "threads": self.threads, "stitches": self.stitches, "problems": self.problems}
        return counts if self.repaired is None else {**counts, "repaired": self.repaired}


async def verify(store: StoreCore, *, repair: bool = False) -> DoctorReport:
    """Check positions, fences, runs, results of calls, links and context of every thread of every project.

    With `repair`, write the heads again that are behind their logs.
    """
    report = DoctorReport(repaired=[] if repair else None)
    last: Thread | None = None
    while True:
        page = await store._backend.find(Find(Thread, order=("id",), after=(last.id,) if last else None, limit=_PAGE))
        for head in page:
            report.threads += 1
            await ThreadCheck(store, head, report).run()
        if len(page) < _PAGE:
            return report
        last = page[-1]


async def count(store: StoreCore) -> DoctorReport:
    """Return the number of threads, runs and stitches, without reading them."""
    count = store._backend.count
    return DoctorReport(await count(Find(Thread)), await count(Find(Run)), await count(Find(Stitch)))


async def rebuild_files(store: StoreCore) -> bool:
    """Rebuild derived files from the log. Only the file backend has any. Return True if it does."""
    rebuild_projections = getattr(store._backend, "rebuild_projections", None)
    if rebuild_projections is None:
        return False
    await rebuild_projections()
    return True


class ThreadCheck:
    """Checks one thread. Reads it once, from its first stitch to its last."""

    def __init__(self, store: StoreCore, head: Thread, report: DoctorReport) -> None:
        self._store = store
        self._head = head
        self._report = report
        self._position = 0
        self._fence = 0
        self._tip: UUID | None = None
        self._calls: dict[int, int] = {}
        self._answers: list[tuple[int, int, int]] = []
        self._reported: set[UUID | None] = set()
        self._context_from = 0
        self._runs: set[UUID] = set()
        self._problems: list[Json] = []
        self._fixes: Fields = {}
        self._repairable = True

    async def run(self) -> None:
        """Read the thread and add its problems to the report. Repair them if the report has `repaired`."""
        await self._read()
        if self._problems and self._report.repaired is not None and await self._repair():
            self._report.repaired += self._problems
        else:
            self._report.problems += self._problems

    async def _repair(self) -> bool:
        """Write the facts of the log into the head. Return False if that is not enough, or the thread changes."""
        head = self._head
        if not self._repairable or head.held:
            return False
        seen: Fields = {name: getattr(head, name) for name in ("worker_id", "updated_at", *self._fixes)}
        try:
            change = RecordChange(Thread, (head.id,), seen, self._fixes)
            await self._store._backend.append(Commit(changed_records=[change]))
        except Conflict:
            return False
        return True

    async def _read(self) -> None:
        runs = await self._store.find_runs(self._head.id)
        self._runs = {run.id for run in runs}
        self._report.runs += len(runs)
        if [run.sequence for run in runs] != list(range(1, len(runs) + 1)) or len(runs) != self._head.last_sequence:
            gapless = [run.sequence for run in runs] == list(range(1, len(runs) + 1))
            fix = {"last_sequence": len(runs)} if gapless and len(runs) > self._head.last_sequence else {}
            self._problem("runs", f"sequences are not 1..{self._head.last_sequence}", **fix)
        try:
            # The last page has no end, so that stitches after the position of the head are also read.
            for first in range(1, max(self._head.position, 1) + 1, _PAGE):
                last = first + _PAGE - 1
                end = last if last < self._head.position else None
                for stitch in await self._store.stitches(self._head, first, end):
                    self._check(stitch)
            context(await self._store.stitches(self._head, max(self._head.context_from, 1)))
        except LockstitchError as exc:
            self._problem("unreadable", str(exc))
            return
        except (KeyError, TypeError, ValueError, AttributeError) as exc:
            self._problem("fold", f"the context cannot be folded: {exc!r}")
        self._finish()

    def _check(self, stitch: Stitch) -> None:
        self._report.stitches += 1
        if stitch.position != self._position + 1:
            self._problem("positions", f"position {stitch.position} follows {self._position}")
        self._position = stitch.position
        if stitch.fence < self._fence:
            self._problem("fence", f"position {stitch.position} has fence {stitch.fence} after {self._fence}")
        self._fence = max(self._fence, stitch.fence)
        if stitch.run_id is not None and stitch.run_id not in self._runs:
            self._problem("runs", f"position {stitch.position} belongs to run {stitch.run_id}, which does not exist")
        if stitch.lane is None and replaces_context(stitch):
            self._context_from = stitch.position
        if stitch.in_chain:
            if stitch.previous_id != self._tip:
                self._problem("list", f"position {stitch.position} follows {stitch.previous_id}, not {self._tip}")
            self._tip = stitch.id
        if stitch.type == "llm_call" and stitch.calls:
            self._calls[stitch.position] = stitch.calls
        if stitch.type == "tool_call" and stitch.reply_to is not None:
            self._answers.append((stitch.position, stitch.reply_to, stitch.call_index or 0))
        if stitch.type == "thread_result":
            if stitch.child_id in self._reported:
                self._problem("children", f"position {stitch.position} is a second report of child {stitch.child_id}")
            self._reported.add(stitch.child_id)

    def _check_answers(self) -> None:
        """Check the results of calls at the end, because an imported trace may have a result before its response."""
        answered: set[tuple[int, int]] = set()
        for position, reply_to, index in self._answers:
            if index >= self._calls.get(reply_to, 0):
                self._problem("answers", f"position {position} answers a call that position {reply_to} does not have")
            elif (reply_to, index) in answered:
                self._problem("answers", f"position {position} is a second answer to call {index} of {reply_to}")
            answered.add((reply_to, index))

    def _finish(self) -> None:
        head = self._head
        self._check_answers()
        if self._position != head.position:
            behind = {"position": self._position} if self._position > head.position else {}
            self._problem("positions", f"the head says {head.position}, the log ends at {self._position}", **behind)
        if self._fence > head.fence:
            self._problem("fence", f"the head says {head.fence}, the log has {self._fence}", fence=self._fence)
        if self._tip != head.tip_id:
            self._problem("list", f"the head says {head.tip_id}, the list ends at {self._tip}", tip_id=self._tip)
        if self._context_from != head.context_from:
            text = f"the head says {head.context_from}, the log says {self._context_from}"
            self._problem("context", text, context_from=self._context_from)

    def _problem(self, kind: str, detail: str, **fixes: Any) -> None:
        """Add a problem. `fixes` are the fields of the head that repair it; none: it cannot be repaired."""
        self._problems.append({"thread": str(self._head.id), "kind": kind, "detail": detail})
        self._repairable = self._repairable and bool(fixes)
        self._fixes |= fixes
