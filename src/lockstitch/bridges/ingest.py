"""Ingest: from what other systems send to threads, runs and stitches of the record.

One way for every source. What arrives is merged with what is there, span by span and field by field; its meaning is
worked out anew where anything changed; and all of it is written in one commit, which fails cleanly if somebody else
wrote the same traces meanwhile, and is then made again. Whatever arrives twice changes nothing.

The project comes from the caller, never from content: ids are made of it, so a client that knows or guesses another
project's ids reaches nothing of it.
"""

import asyncio
import random
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final
from uuid import UUID

from lockstitch.bridges.belongings import amended, attached, feedback, moved
from lockstitch.bridges.joining import Joined, Joining
from lockstitch.bridges.looking import Looking, further
from lockstitch.bridges.parcels import Batch, Outcome, Parcel, leave_out, sort
from lockstitch.bridges.placing import put_into
from lockstitch.bridges.pricing import price
from lockstitch.bridges.removing import Removing
from lockstitch.bridges.rows import Names, begun, part, piece_of
from lockstitch.bridges.span import Attachment, Bridge, Item, Remark, merge
from lockstitch.bridges.trace import Arrived, Known, Trace, needs_all_calls
from lockstitch.bridges.witnesses import Witnesses
from lockstitch.errors import Conflict, OutcomeUnknown, Refused
from lockstitch.records import Feedback, Record, Run, Stitch, Thread
from lockstitch.store import Store
from lockstitch.store.mirrors import Mirrored

_ATTEMPTS: Final = 20
_UNCHANGED: Final = 3
"""Conflicts in a row, without a change of the record in between, after which a conflict is taken for permanent."""
_PASSES: Final = 20
"""Passes over a batch that look for traces that it joins."""


class Ingest:
    """Writes what comes through one bridge into one project of a store."""

    def __init__(self, store: Store, bridge: Bridge, *, keep_secrets: bool = False, hide: Collection[str] = ()) -> None:
        self._store = store
        self._bridge = bridge
        self._names = Names(store.project, bridge.source)
        self._keep_secrets = keep_secrets
        self._hide = frozenset(name.lower() for name in hide)
        self._joining = Joining(store.mirrors, bridge, self._names)
        self._looking = Looking(store.mirrors, bridge, self._names)
        self._removing = Removing(store, bridge, self._names)

    async def take(self, items: Iterable[Item], *, large: bool = False) -> Outcome:
        """Write a batch, and say what it was. Durable when this returns.

        Secrets of a `large` batch are looked for in a thread, since that takes about a microsecond for a character.
        """
        outcome = Outcome()
        sorting = partial(sort, items, outcome, keep_secrets=self._keep_secrets, hide=self._hide)
        batch, others = await asyncio.to_thread(sorting) if large else sorting()
        for _ in range(_PASSES):
            joined = await self._settle(batch, outcome)
            batch = await self._joining.loose(joined)
            if not batch.again:
                break
        await self._keep(others, outcome)
        return outcome

    async def _settle(self, batch: Batch, outcome: Outcome) -> Joined:
        """Write a batch, again from the start whenever another writer was faster.

        If nothing has changed since the last attempt, there is no other writer: after a few such attempts the conflict
        is permanent and is raised.
        """
        same = 0
        for attempt in range(_ATTEMPTS):
            before = batch.seen
            try:
                return await self._write(batch, outcome)
            except (Conflict, OutcomeUnknown) as exc:
                # Somebody else wrote one of these traces. Made anew from what is there now, it is the same in the end.
                same = same + 1 if before == batch.seen and not isinstance(exc, OutcomeUnknown) else 0
                if attempt == _ATTEMPTS - 1 or same == _UNCHANGED:
                    raise
                await asyncio.sleep(random.uniform(0.001, 0.01) * 2 ** min(attempt, 7))
            except (Refused, RecursionError):
                # Looked for only now: nearly everything that arrives can be stored.
                if not leave_out(batch, outcome):
                    raise
        raise Conflict("These traces were changed by other writers all the time. Nothing was written.")

    async def drop_others(self, trace_id: str, keep: Callable[[str], bool]) -> int:
        """Take out of a trace, which was given whole, what is no part of it any more; how many spans."""
        return await self._removing.drop_others(trace_id, keep)

    async def _write(self, batch: Batch, outcome: Outcome) -> Joined:
        now = self._store.clock.now()
        joined = await self._joining.join(batch)
        batch.seen = joined.fences(), frozenset(batch.again)
        parcels, homes, threads = joined.parcels, joined.homes, joined.threads
        written = Outcome(traces={parcel.trace_id for parcel in parcels}, dissolved=set(joined.dissolved))
        written.gone = {name for name, _ in joined.merged.values()} - written.traces
        new = [parcel for parcel in parcels if homes[parcel.trace_id] not in threads]
        keys = await self._store.mirrors.keys(self._store.project, sorted({self._key(parcel) for parcel in new}))
        arrived = {parcel.trace_id: self._arrived(parcel, joined.stored, written) for parcel in parcels}
        at_home = {span_id: homes[parcel.trace_id] for parcel in parcels for span_id in parcel.pieces}
        witnesses = Witnesses(self._store.project, self._bridge, self._names, at_home, now)
        told = await self._store.mirrors.witnesses(self._store.project, witnesses.told(arrived.values()))
        told = [(response_id, row) for response_id, row in told if row.thread_id not in joined.dissolved]
        claims, others = witnesses.settle(arrived.values(), told)
        if others:
            batch.again |= {str(row.data["id"]) for row in others}
            raise Conflict("Spans of the record tell of model calls for which others stand now.")
        mirrored: dict[UUID, Mirrored] = {}
        for parcel in parcels:
            changed = arrived[parcel.trace_id]
            if not changed:
                continue
            home = homes[parcel.trace_id]
            if home not in mirrored:
                head = threads.get(home) or self._new_thread(parcel, home, keys, now, joined.dissolved.get(home))
                mirrored[home] = Mirrored(head, is_new=home not in threads)
            await self._assemble(parcel, changed, joined.runs, joined.stored, mirrored[home], now, written)
        if joined.dissolved:
            records = await self._moved(joined)
            await self._store.mirrors.write(
                list(mirrored.values()), now, joined.dissolved.values(), [*records, *claims]
            )
        else:
            if mirrored:
                await self._store.mirrors.write(list(mirrored.values()), now)
            # Behind the commit, since they refer to its threads.
            await self._store.mirrors.keep(claims)
        written.rows += (await self._store.mirrors.stitches(written.further)).values()
        outcome.add(written)
        return joined

    async def _moved(self, joined: Joined) -> list[Record]:
        """Return the side records of dissolved threads, as they belong to the threads of the commit."""
        traces = {self._names.span(span_id): parcel.trace_id for parcel in joined.parcels for span_id in parcel.pieces}
        return moved(await self._store.mirrors.belongings(joined.dissolved), joined, traces, self._names)

    def _key(self, parcel: Parcel) -> str:
        return part(f"{self._bridge.source}:{parcel.name}") or self._bridge.source

    def _new_thread(
        self, parcel: Parcel, thread_id: UUID, keys: dict[str, UUID], now: datetime, before: Thread | None
    ) -> Thread:
        """Return a thread for a trace. `before` is one with the same id that the commit deletes."""
        key = self._key(parcel)
        foreign = parcel.name
        kept: dict[str, Any] = {}
        if before is not None:
            # The fence rises, so that a writer that has seen the earlier thread cannot write to this one.
            names = ("title", "extras", "priority", "expires_at", "created_at")
            kept = {"fence": before.fence + 1, **{name: getattr(before, name) for name in names}}
        thread = Thread(
            id=thread_id,
            # A native thread may have taken the name; the mirror is then found by its id alone.
            key=key if keys.get(key, thread_id) == thread_id else None,
            project=self._store.project,
            kind="trace",
            status="running",
            state={"source": self._bridge.source, "foreign_id": foreign},
            created_at=now,
            updated_at=now,
        )
        return thread.changed(**kept) if kept else thread

    def _arrived(self, parcel: Parcel, stored: dict[UUID, Stitch], outcome: Outcome) -> list[Arrived]:
        """The spans of which something new arrived, merged with what is there."""
        changed: list[Arrived] = []
        for span_id, piece in parcel.pieces.items():
            old = stored.get(self._names.span(span_id))
            if old is None and span_id in parcel.again:
                continue
            if old is not None and old.type != "removed":
                was = piece_of(old.data)
                merged = merge(was, piece)
                if merged == was and span_id not in parcel.again:
                    outcome.rows.append(old)
                    meaning = self._bridge.meaning(was)
                    outcome.missing[span_id] = meaning.missing
                    outcome.further += further(self._names, span_id, meaning)
                    continue
                piece = merged
            meaning = self._bridge.meaning(piece)
            outcome.missing[span_id] = meaning.missing
            changed.append(Arrived(piece, meaning))
        return changed

    async def _assemble(
        self,
        parcel: Parcel,
        changed: Sequence[Arrived],
        runs: dict[UUID, Run],
        stored: dict[UUID, Stitch],
        into: Mirrored,
        now: datetime,
        outcome: Outcome,
    ) -> None:
        run_id = self._names.run(parcel.trace_id)
        run = runs.get(run_id)
        known = Known(run or self._new_run(parcel, run_id, into, now), run is None, stored)
        if run is not None:
            await self._looking.up(known, changed, now)
        trace = Trace(self._bridge, self._names, known, price, now)
        after, rows = trace.assemble(changed)
        if needs_all_calls(known, rows):
            known.calls = await self._store.mirrors.model_calls(run_id)
            trace = Trace(self._bridge, self._names, known, price, now)
            after, rows = trace.assemble(changed)
        put_into(into, known, after, rows, trace.root_id)
        outcome.rows += [row.stitch() for row in rows]

    def _new_run(self, parcel: Parcel, run_id: UUID, into: Mirrored, now: datetime) -> Run:
        number = len(into.new_runs) + 1
        started = min(begun(piece, now) for piece in parcel.pieces.values())
        return Run(
            id=run_id,
            thread_id=into.head.id,
            sequence=into.head.last_sequence + number,
            turn=into.head.last_turn + number,
            role="trace",
            status="running",
            first_position=0,
            source=self._bridge.source,
            foreign_id=parcel.trace_id,
            started_at=started,
        )

    # What hangs off spans

    async def _keep(self, others: Sequence[Attachment | Remark], outcome: Outcome) -> None:
        if not others:
            return
        wanted = {span_id for other in others if (span_id := other.span_id)}
        rows = await self._store.mirrors.stitches(self._names.span(span_id) for span_id in wanted)
        now = self._store.clock.now()
        earlier = await self._earlier(others)
        records: list[Record] = []
        for other in others:
            row = rows.get(self._names.span(other.span_id)) if other.span_id else None
            if isinstance(other, Remark) and other.amends:
                known = earlier.get(self._names.remark(other.id))
                if known is None:
                    outcome.refused.append(("", f"feedback {other.id} is to be changed, and is not known"))
                else:
                    records.append(amended(other, known, now))
            elif isinstance(other, Remark):
                records.append(feedback(other, self._names, self._store.project, self._bridge.source, row, now))
            elif row is None:
                why = f"attachment {other.name}: its span {other.span_id} is not known"
                outcome.refused.append((other.span_id, why))
            else:
                records += attached(other, row, now)
        await self._store.mirrors.keep(records)

    async def _earlier(self, others: Sequence[Attachment | Remark]) -> dict[UUID, Feedback]:
        """Feedback that is to be changed, as the record has it."""
        ids = [self._names.remark(one.id) for one in others if isinstance(one, Remark) and one.amends]
        return await self._store.mirrors.remarks(ids) if ids else {}
