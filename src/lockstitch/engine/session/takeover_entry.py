"""`record_takeover`: the log names every worker that lost a thread and the worker that executes it now."""

from typing import Final
from uuid import UUID

from lockstitch.engine.session.run_session import RunSession
from lockstitch.model import Entry, Json, Thread, Worker
from lockstitch.model.stitch import TAKEN_OVER

_RECENT: Final = 20
"""Number of stitches at the end of the log that are searched for the entry of a takeover."""

_ENDED: Final = {"died": "ended", "expired": "lost its lease", "taken_over": "was replaced on request"}


async def record_takeover(session: RunSession) -> None:
    """Commit a `thread_taken_over` stitch if a worker lost this thread and the log does not say so yet.

    The stitch is not progress: the thread stays a suspect. It is committed before anything is executed, so that the log
    also names this process if the thread ends it.
    """
    head = session.head
    if head.lost_by is None or await _is_recorded(session, head):
        return
    data: Json = {
        "lost_by": await _described(session, head.lost_by, lost=True),
        "taken_by": await _described(session, head.worker_id) if head.worker_id is not None else None,
        "alone": head.alone,
        "losses": head.losses,
        "crashes": head.crashes,
    }
    run = session.run
    about: Json = {} if run is None else {"run_id": run.id, "step_number": run.steps}
    session.record(Entry(type=TAKEN_OVER, name=_summary(data)[:255], data=data, **about))
    await session.commit()


def _summary(data: Json) -> str:
    """Return the takeover on one line, for people."""
    ended = _ENDED.get(data["lost_by"].get("cause"), "lost it")
    alone = " alone" if data["alone"] else ""
    return f"{_process(data['lost_by'])} {ended}, {_process(data['taken_by'])} continues the thread{alone}"


def _process(worker: Json | None) -> str:
    if worker is None or "pid" not in worker:
        return f"worker {worker['worker']}" if worker else "a worker"
    return f"process {worker['pid']} on {worker['host']}"


async def _is_recorded(session: RunSession, head: Thread) -> bool:
    """True if the log names the present takeover: a worker claimed the thread since then and released it without
    progress.

    Only deliveries can follow such an entry.
    """
    recent = await session.store.stitches(head, max(1, head.position - _RECENT + 1)) if head.position else []
    last = next((stitch for stitch in reversed(recent) if stitch.type == TAKEN_OVER), None)
    if last is None:
        return False
    lost_by: Json = last.data.get("lost_by") or {}
    return (lost_by.get("worker"), last.data.get("losses")) == (str(head.lost_by), head.losses)


async def _described(session: RunSession, worker_id: UUID, *, lost: bool = False) -> Json:
    worker: Worker | None = await session.store.execution.worker(worker_id)
    described: Json = {"worker": str(worker_id)}
    if worker is not None:
        described |= {"host": worker.host, "pid": worker.pid}
        if lost:
            # A lease that has expired is enough to claim one thread; the worker itself is declared dead later.
            described["cause"] = worker.end_cause or "expired"
    return described
