"""Ingest: from what other systems send to threads, runs and stitches of the record.

One way for every source. What arrives is merged with what is there, span by span and field by field; its meaning is
worked out anew where anything changed; and all of it is written in one commit, which fails cleanly if somebody else
wrote the same traces meanwhile, and is then made again. Whatever arrives twice changes nothing.

The project comes from the caller, never from content: ids are made of it, so a client that knows or guesses another
project's ids reaches nothing of it.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime
from typing import Final, cast
from uuid import UUID

from lockstitch.bridges.belongings import amended, attached, feedback
from lockstitch.bridges.looking import Looking, further
from lockstitch.bridges.parcels import Outcome, Parcel, leave_out, sort
from lockstitch.bridges.placing import put_into
from lockstitch.bridges.pricing import price
from lockstitch.bridges.removing import Removing
from lockstitch.bridges.rows import Names, begun, part, piece_of
from lockstitch.bridges.span import Attachment, Bridge, Item, Piece, Remark, merge, unsaid_trace
from lockstitch.bridges.trace import Arrived, Known, Trace, needs_all_calls
from lockstitch.bridges.witnesses import Witnesses
from lockstitch.errors import Conflict, OutcomeUnknown, Refused
from lockstitch.records import Feedback, Record, Run, Stitch, Thread
from lockstitch.store import Store
from lockstitch.store.mirrors import Mirrored

_ATTEMPTS: Final = 20


class Ingest:
    """Writes what comes through one bridge into one project of a store."""

    def __init__(self, store: Store, bridge: Bridge, *, keep_secrets: bool = False, hide: Collection[str] = ()) -> None:
        self._store = store
        self._bridge = bridge
        self._names = Names(store.project, bridge.source)
        self._keep_secrets = keep_secrets
        self._hide = frozenset(name.lower() for name in hide)
        self._looking = Looking(store.mirrors, bridge, self._names)
        self._removing = Removing(store, bridge, self._names)

    async def take(self, items: Iterable[Item]) -> Outcome:
        """Write a batch, and say what it was. Durable when this returns."""
        outcome = Outcome()
        parcels, others = sort(items, outcome, keep_secrets=self._keep_secrets, hide=self._hide)
        for attempt in range(_ATTEMPTS):
            try:
                await self._write(parcels, outcome)
                break
            except (Conflict, OutcomeUnknown):
                # Somebody else wrote one of these traces. Made anew from what is there now, it is the same in the end.
                if attempt == _ATTEMPTS - 1:
                    raise
                await asyncio.sleep(random.uniform(0.001, 0.01) * 2 ** min(attempt, 7))
            except (Refused, RecursionError):
                # Looked for only now: nearly everything that arrives can be stored.
                if not leave_out(parcels, outcome):
                    raise
        await self._keep(others, outcome)
        return outcome

    async def drop_others(self, trace_id: str, keep: Callable[[str], bool]) -> int:
        """Take out of a trace, which was given whole, what is no part of it any more; how many spans."""
        return await self._removing.drop_others(trace_id, keep)

    async def _write(self, parcels: list[Parcel], outcome: Outcome) -> None:
        now = self._store.clock.now()
        outcome.rows, outcome.further, outcome.missing = [], [], Counter()
        run_ids = [self._names.run(parcel.trace_id) for parcel in parcels]
        runs = await self._store.mirrors.runs(run_ids)
        homes = {parcel.trace_id: self._home(parcel, runs) for parcel in parcels}
        # Heads before everything else of theirs: whoever writes after this raises a fence that is compared.
        threads = await self._store.mirrors.threads(homes.values())
        runs = await self._store.mirrors.runs(run_ids)
        if homes != {parcel.trace_id: self._home(parcel, runs) for parcel in parcels}:
            raise Conflict("A trace has got its thread meanwhile.")
        stored = await self._store.mirrors.stitches(
            self._names.span(span_id) for parcel in parcels for span_id in parcel.pieces
        )
        if await self._strays(parcels, stored):
            raise Conflict("Spans have been brought into their own trace.")
        new = [parcel for parcel in parcels if homes[parcel.trace_id] not in threads]
        keys = await self._store.mirrors.keys(self._store.project, sorted({self._key(parcel) for parcel in new}))
        arrived = {parcel.trace_id: self._arrived(parcel, stored, outcome) for parcel in parcels}
        witnesses = Witnesses(self._store.project, self._bridge, self._names, homes, now)
        told = await self._store.mirrors.witnesses(self._store.project, witnesses.told(arrived.values()))
        claims, others = witnesses.settle(arrived.values(), told)
        if others:
            self._recall(parcels, others)
            raise Conflict("Spans of the record tell of model calls for which others stand now.")
        mirrored: dict[UUID, Mirrored] = {}
        for parcel in parcels:
            changed = arrived[parcel.trace_id]
            if not changed:
                continue
            home = homes[parcel.trace_id]
            if home not in mirrored:
                head = threads.get(home) or self._new_thread(parcel, home, keys, now)
                mirrored[home] = Mirrored(head, is_new=home not in threads)
            await self._assemble(parcel, changed, runs, stored, mirrored[home], now, outcome)
        if mirrored:
            await self._store.mirrors.write(list(mirrored.values()), now)
        outcome.rows += (await self._store.mirrors.stitches(outcome.further)).values()
        # Behind the commit, since they refer to its threads.
        await self._store.mirrors.keep(claims)

    async def _strays(self, parcels: list[Parcel], stored: dict[UUID, Stitch]) -> bool:
        """Whether spans of these parcels stand in another trace; if so, the two are brought together.

        A piece that does not say which trace it is part of is sent to the one that its span is in. Where it came
        before anything that says so, it stands in a trace of its own; its span leaves that as soon as more is known.
        """
        by_trace = {parcel.trace_id: parcel for parcel in parcels}
        found = False
        for parcel in list(parcels):
            for span_id, piece in list(parcel.pieces.items()):
                row = stored.get(self._names.span(span_id))
                if row is None or row.run_id == self._names.run(parcel.trace_id):
                    continue
                found = True
                known = piece_of(row.data)
                if unsaid_trace(piece):
                    del parcel.pieces[span_id]
                    home = by_trace.setdefault(known["trace_id"], Parcel(known["trace_id"]))
                    piece = cast("Piece", {**piece, "trace_id": known["trace_id"]})
                    home.add(piece)
                else:
                    await self._removing.evict(row)
                    parcel.pieces[span_id] = merge({**known, "trace_id": parcel.trace_id}, piece)
        parcels[:] = [parcel for parcel in by_trace.values() if parcel.pieces]
        return found

    def _recall(self, parcels: list[Parcel], rows: Iterable[Stitch]) -> None:
        """Have these rows worked out anew with the rest: their traces are read and written as those that arrived."""
        by_trace = {parcel.trace_id: parcel for parcel in parcels}
        for row in rows:
            piece = piece_of(row.data)
            by_trace.setdefault(piece["trace_id"], Parcel(piece["trace_id"])).recall(piece["id"])
        parcels[:] = by_trace.values()

    def _home(self, parcel: Parcel, runs: dict[UUID, Run]) -> UUID:
        """The thread of a trace: where it is already, else that of its conversation, else one of its own."""
        run = runs.get(self._names.run(parcel.trace_id))
        if run is not None:
            return run.thread_id
        return self._names.thread(parcel.name)

    def _key(self, parcel: Parcel) -> str:
        return part(f"{self._bridge.source}:{parcel.name}") or self._bridge.source

    def _new_thread(self, parcel: Parcel, thread_id: UUID, keys: dict[str, UUID], now: datetime) -> Thread:
        key = self._key(parcel)
        foreign = parcel.name
        return Thread(
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
                    outcome.missing.update(meaning.missing)
                    outcome.further += further(self._names, span_id, meaning)
                    continue
                piece = merged
            meaning = self._bridge.meaning(piece)
            outcome.missing.update(meaning.missing)
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
