"""`with_run_sums`: set the tokens, the cost and the steps of runs from their stitches."""

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple
from uuid import UUID

from lockstitch.backend import Fields, FullBackend
from lockstitch.model import Entry, Run
from lockstitch.model.statistics import PARTS, StitchOutline, amount, to_micro_parts
from lockstitch.store.transaction import ThreadUpdate


class _Call(NamedTuple):
    """The usage of one stitch."""

    usage: Fields
    cost: float | None
    is_step: bool


async def with_run_sums(backend: FullBackend, update: ThreadUpdate) -> ThreadUpdate:
    """Return an update that also sets the sums of its new and changed runs.

    They include the stored stitches of a run and the entries of the update. If another writer appends at the same time,
    the commit raises `Conflict`, so the sums are always those of the whole log.
    """
    entries = [*(delivery.as_entry() for delivery in update.consumed), *update.entries]

    async def sums(run: Run, *, new: bool) -> Fields:
        stored = [] if new else [_call_of_outline(stitch) for stitch in await backend.outline(run.id)]
        return _sums([*stored, *(_call_of_entry(entry) for entry in entries if entry.run_id == run.id)])

    changed: dict[UUID, Fields] = {run.id: await sums(run, new=False) for run, _ in update.run_updates}
    return replace(
        update,
        new_runs=[run.changed(**await sums(run, new=True)) for run in update.new_runs],
        run_updates=[(run, {**fields, **changed[run.id]}) for run, fields in update.run_updates],
    )


def _sums(calls: Iterable[_Call]) -> Fields:
    calls = list(calls)
    sums: Fields = {name: sum(call.usage[name] or 0 for call in calls) for name in _TOKENS}
    costs = [part for call in calls if (part := to_micro_parts(call.cost)) is not None]
    return {**sums, "total_cost": sum(costs) / PARTS if costs else None, "steps": sum(call.is_step for call in calls)}


_TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")


def _call_of_outline(stitch: StitchOutline) -> _Call:
    usage = {name: getattr(stitch, name) for name in _TOKENS}
    return _Call(usage, stitch.cost, stitch.type == "llm_call" and stitch.purpose is None)


def _call_of_entry(entry: Entry) -> _Call:
    usage = {name: getattr(entry, name) for name in _TOKENS}
    is_step = entry.type == "llm_call" and entry.data.get("purpose") is None
    return _Call(usage, amount(entry.data.get("cost")), is_step)
