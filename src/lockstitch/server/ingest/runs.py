"""Runs and projects as LangSmith's client reads them back: every span of the record as an object of its schema."""

import re
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from lockstitch.bridges.outgoing.langsmith import export_run, given_back
from lockstitch.bridges.rows import Names
from lockstitch.errors import NotFound
from lockstitch.records import Json, Run, Stitch, as_id, foreign_id, format_time
from lockstitch.store import Store

_KINDS: Final = {"llm_call": "llm", "tool_call": "tool"}
_WORDS: Final = frozenset({"chain", "llm", "tool", "retriever", "embedding", "prompt", "parser"})
_ORDER: Final = re.compile(r"(?:^|\.)\d{8}T\d{6,15}Z")


def session_id(project: str, name: str) -> str:
    """The id of what LangSmith calls a project, which here is no more than a name that runs carry."""
    return str(foreign_id(project, "langsmith", f"session:{name}"))


def session_of(store: Store, run: Run) -> str:
    """The name of the LangSmith project that a run is of; runs of our own are of the store's."""
    group = run.state.get("group")
    return str(group) if group else store.project if run.source == "native" else "default"


async def spans_of(store: Store, run: Run) -> list[Json]:
    """All spans of a run, the root first."""
    if run.source == "native":
        return [_ours(store, run, told) for told in await export_run(store, str(run.id))]
    spans = [_mirrored(store, run, one) for one in await store.log(run.id) if one.data.get("id")]
    return sorted(spans, key=lambda span: (span["parent_run_id"] is not None, span["start_time"], span["id"]))


async def roots_of(store: Store, runs: Iterable[Run]) -> list[Json]:
    """The root of each of these runs, in their order; one whose root has not come has none."""
    names = Names(store.project, "langsmith")
    mirrors = {run.id: run for run in runs}
    wanted = {names.span(run.foreign_id): run for run in mirrors.values() if run.foreign_id}
    found = {row.run_id: row for row in (await store.mirrors.stitches(wanted)).values() if row.data.get("id")}
    roots: list[Json] = []
    for run in mirrors.values():
        row = found.get(run.id)
        if row is not None:
            roots.append(_mirrored(store, run, row))
        else:
            roots += [span for span in (await spans_of(store, run))[:1] if span["parent_run_id"] is None]
    return roots


async def read_span(store: Store, ref: str) -> Json:
    """One span by LangSmith's id or by ours; a run by its id is its root."""
    known = await store.mirrors.stitches([Names(store.project, "langsmith").span(ref)])
    for stitch in known.values():
        if stitch.run_id is not None and stitch.data.get("id"):
            return _mirrored(store, await store.run(stitch.run_id), stitch)
    own = as_id(ref)
    if own is not None:
        try:
            stitch = await store.stitch(own)
        except NotFound:
            pass
        else:
            if stitch.run_id is not None:
                spans = await spans_of(store, await store.run(stitch.run_id))
                for span in spans:
                    if span["id"] == ref:
                        return span
    run = await store.run(ref)
    spans = await spans_of(store, run)
    if not spans:
        raise NotFound(f"Run {ref} has no span yet.")
    return spans[0]


def _mirrored(store: Store, run: Run, stitch: Stitch) -> Json:
    """A span as it was told, with what the record has worked out of it."""
    told = given_back(stitch.data)
    began = stitch.at or run.started_at
    if as_id(str(told["id"])) is None or as_id(str(told.get("trace_id"))) is None:
        # The client knows ids of one form only; other systems' have another, so ours stand in for them.
        above = stitch.parent_id if told.get("parent_run_id") else None
        told |= {"id": str(stitch.id), "trace_id": str(run.id), "parent_run_id": str(above) if above else None}
        told.pop("dotted_order", None)
    counted = stitch.input_tokens is not None or stitch.output_tokens is not None
    tokens = (stitch.input_tokens or 0, stitch.output_tokens or 0)
    figures: Json = {"prompt_tokens": None, "completion_tokens": None}
    if counted:
        figures = {"prompt_tokens": tokens[0], "completion_tokens": tokens[1], "total_tokens": sum(tokens)}
    elif told["parent_run_id"] is None:
        figures = {
            "prompt_tokens": run.input_tokens,
            "completion_tokens": run.output_tokens,
            "total_tokens": run.input_tokens + run.output_tokens,
            "total_cost": run.total_cost,
        }
    cost = stitch.data.get("cost")
    if isinstance(cost, int | float):
        figures["total_cost"] = cost
    kind = str(told.get("run_type") or "")
    return _whole(
        store,
        run,
        {
            **told,
            **figures,
            "name": told.get("name") or stitch.name or "run",
            "run_type": kind if kind in _WORDS else _KINDS.get(stitch.type, "chain"),
            "start_time": told.get("start_time") or format_time(began),
        },
    )


def _ours(store: Store, run: Run, told: Json) -> Json:
    return _whole(store, run, told)


def _whole(store: Store, run: Run, told: Json) -> Json:
    """A span with everything that the client's schema wants."""
    order = str(told.get("dotted_order") or "")
    above = [one for one in _ORDER.split(order)[1:-1] if as_id(one)]
    failed = bool(told.get("error"))
    ended = told.get("end_time") is not None
    name = session_of(store, run)
    return {
        "inputs": {},
        "outputs": None,
        "end_time": None,
        "error": None,
        "events": [],
        "tags": [],
        "extra": {},
        "total_tokens": None,
        "total_cost": None,
        **told,
        "status": told.get("status") or ("error" if failed else "success" if ended else "pending"),
        "session_id": session_id(store.project, name),
        "session_name": name,
        "dotted_order": order,
        "parent_run_ids": above or ([told["parent_run_id"]] if told.get("parent_run_id") else []),
        "child_run_ids": None,
        "thread_id": told.get("thread_id"),
        "app_path": f"/run/{run.id}",
        "feedback_stats": None,
        "reference_example_id": None,
    }


async def sessions(store: Store, most: int) -> list[Json]:
    """What LangSmith calls projects: the names that the newest runs carry, the one that was used last first."""
    first: dict[str, datetime] = {}
    for run in await store.statistics.runs(limit=most):
        name = session_of(store, run)
        first[name] = min(run.started_at, first.get(name, run.started_at))
    return [_session(store, name, began) for name, began in first.items()]


def _session(store: Store, name: str, began: datetime) -> Json:
    found: dict[str, Any] = {
        "id": session_id(store.project, name),
        "name": name,
        "start_time": format_time(began),
        "end_time": None,
        "description": None,
        "extra": {},
        "tenant_id": str(UUID(int=0)),
        "reference_dataset_id": None,
    }
    return found
