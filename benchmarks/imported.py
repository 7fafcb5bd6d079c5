"""Imported traces for the benchmarks of lenses: a few traces that the importer wrote, copied under new ids."""

import io
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import UUID

from benchmarks.foreign import langsmith, otel
from benchmarks.sessions import SPREAD, Session, put
from lockstitch.backend import Find, Where
from lockstitch.integrations.importer import TraceImport, open_source
from lockstitch.model import Run, Stitch, Thread, new_id
from lockstitch.store import Store, open_store

TEMPLATES = 20
"""Traces of each source that are imported. All further traces are copies of them."""


async def fill(store: Store, number: int) -> None:
    """Write about this number of stitches as imported traces, over the period of the other threads."""
    samples = await templates()
    per_trace = sum(len(trace.stitches) for trace in samples) / len(samples)
    traces = max(round(number / per_trace), len(samples))
    now = store.clock.now()
    await put(
        store,
        (copied(samples[place % len(samples)], place, now - SPREAD * (place / traces)) for place in range(traces)),
    )


async def templates() -> list[Session]:
    """Import a few traces of LangSmith and OpenTelemetry into another store and return their records."""
    with TemporaryDirectory(prefix="lockstitch-imported-") as folder:
        lines, requests = (Path(folder) / name for name in ("runs.jsonl", "traces.pb"))
        langsmith.write(lines, langsmith.agents(TEMPLATES))
        otel.write_protobuf(requests, otel.agents(TEMPLATES))
        async with open_store(f"sqlite:///{folder}/store.db") as store:
            for source, path in (("langsmith", lines), ("otel", requests)):
                opened = open_source(source, str(path), io.BytesIO())
                await TraceImport(store, opened.source).run(opened.sources)
            threads = await store._backend.find(Find(Thread, [Where("kind", "=", "trace")], ("id",)))
            return [await _records(store, thread) for thread in threads]


async def _records(store: Store, thread: Thread) -> Session:
    where = [Where("thread_id", "=", thread.id)]
    return Session(
        thread,
        await store._backend.find(Find(Run, where, ("sequence",))),
        await store._backend.find(Find(Stitch, where, ("position",))),
    )


def copied(template: Session, number: int, ended_at: datetime) -> Session:
    """Return a copy with new ids that ends at this time. Ids of other systems get a number."""
    shift = ended_at - template.thread.updated_at
    ids: dict[UUID, UUID] = {}

    def renamed(old: UUID | None) -> UUID | None:
        return None if old is None else ids.setdefault(old, new_id())

    def numbered(text: str | None) -> str | None:
        return None if text is None else f"{text}-{number}"

    thread = template.thread.changed(
        id=renamed(template.thread.id),
        key=numbered(template.thread.key),
        tip_id=renamed(template.thread.tip_id),
        created_at=template.thread.created_at + shift,
        updated_at=ended_at,
        last_run_at=ended_at,
    )
    runs = [
        run.changed(
            id=renamed(run.id),
            thread_id=thread.id,
            foreign_id=numbered(run.foreign_id),
            started_at=ended_at,
            completed_at=run.completed_at and ended_at + (run.completed_at - run.started_at),
        )
        for run in template.runs
    ]
    stitches = [
        stitch.changed(
            id=renamed(stitch.id),
            thread_id=thread.id,
            run_id=renamed(stitch.run_id),
            parent_id=renamed(stitch.parent_id),
            call_id=numbered(stitch.call_id),
            at=stitch.at and stitch.at - template.runs[0].started_at + ended_at,
            log_id=None,
        )
        for stitch in template.stitches
    ]
    return Session(thread, runs, stitches)
