"""Removing: spans that are no part of their trace any more. Their places in the log stay, with nothing in them."""

from collections.abc import Callable, Sequence
from typing import Final

from lockstitch.bridges.placing import put_into
from lockstitch.bridges.pricing import price
from lockstitch.bridges.rows import Names
from lockstitch.bridges.span import Bridge
from lockstitch.bridges.trace import Known, Trace
from lockstitch.errors import Conflict, OutcomeUnknown
from lockstitch.records import Run, Stitch, Thread
from lockstitch.store import Store
from lockstitch.store.mirrors import Mirrored

_ATTEMPTS: Final = 20


class Removing:
    """Takes spans out of the traces of one source and project."""

    def __init__(self, store: Store, bridge: Bridge, names: Names) -> None:
        self._store = store
        self._bridge = bridge
        self._names = names

    async def drop_others(self, trace_id: str, keep: Callable[[str], bool]) -> int:
        """Take out of a trace, which was given whole, what is no part of it any more; how many spans."""
        run_id = self._names.run(trace_id)
        for _ in range(_ATTEMPTS):
            run = (await self._store.mirrors.runs([run_id])).get(run_id)
            head = (await self._store.mirrors.threads([run.thread_id])).get(run.thread_id) if run else None
            if run is None or head is None:
                return 0
            # Again, behind the head: what is read now is what the head's fence stands for.
            run = (await self._store.mirrors.runs([run_id])).get(run_id, run)
            rows = await self._store.mirrors.rows(run_id)
            gone = _gone(rows, keep)
            if not gone:
                return 0
            try:
                await self._write(head, run, gone, rows)
                return len(gone)
            except (Conflict, OutcomeUnknown):
                continue
        raise Conflict(f"Trace {trace_id} is being written all the time; what vanished from it was not removed.")

    async def _write(self, head: Thread, run: Run, gone: Sequence[Stitch], rows: Sequence[Stitch]) -> None:
        """A trace without the rows that have gone."""
        now = self._store.clock.now()
        into = Mirrored(head, is_new=False)
        places = {row.position for row in gone}
        known = Known(
            run,
            is_new=False,
            tools=[row for row in rows if row.type == "tool_call" and row.position not in places],
            calls=[row for row in rows if row.type == "llm_call"],
        )
        after, changed = Trace(self._bridge, self._names, known, price, now).assemble([], gone)
        put_into(into, known, after, changed, None)
        await self._store.mirrors.write([into], now)


def _gone(rows: Sequence[Stitch], keep: Callable[[str], bool]) -> list[Stitch]:
    """The rows of spans that are not kept, and of calls that only such a span asked for."""
    gone = [row for row in rows if row.type != "removed" and _span(row) and not keep(_span(row))]
    places = {row.position for row in gone}
    orphans = [row for row in rows if row.type == "tool_call" and not _span(row) and row.reply_to in places]
    return [*gone, *orphans]


def _span(row: Stitch) -> str:
    """The span that a row stands for, or is a further answer of."""
    return str(row.data.get("id") or row.data.get("of") or "")
