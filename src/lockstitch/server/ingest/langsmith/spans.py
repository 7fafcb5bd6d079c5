"""Spans of the record as LangSmith run objects."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, cast
from uuid import UUID

from lockstitch.errors import NotFound
from lockstitch.integrations.langsmith.export import export_run, exported_span
from lockstitch.integrations.spans.rows import MirrorIds
from lockstitch.integrations.spans.trace import trace_of
from lockstitch.model import Json, Run, Stitch, as_id, format_time
from lockstitch.model.statistics import run_group
from lockstitch.store import Store
from lockstitch.store.datasets import experiment_id

_KINDS: Final = {"llm_call": "llm", "tool_call": "tool"}
_WORDS: Final = frozenset({"chain", "llm", "tool", "retriever", "embedding", "prompt", "parser"})
_ORDER: Final = re.compile(r"(?:^|\.)\d{8}T\d{6,15}Z")
_FIGURES: Final = ("prompt_tokens", "completion_tokens", "total_tokens", "prompt_cost", "completion_cost", "total_cost")
_LIFTED: Final = ("reference_example_id", "reference_dataset_id", "first_token_time", "prompt_cost", "completion_cost")
"""Fields of a run that the record stores in `extra`."""


_NAMES: Final = 10_000
"""Number of LangSmith projects whose names are in memory."""


@dataclass(slots=True)
class Span:
    """A span with the row that it comes from."""

    value: Json
    """The run object of LangSmith."""
    run: Run
    row_id: UUID
    """Id of its stitch, or of the run if it is the root of a native run."""
    own: Json
    """Tokens and costs of the span itself, without those of its descendants. Empty if it has none."""

    @property
    def id(self) -> str:
        return str(self.value["id"])


def session_id(project: str, name: str) -> str:
    """Return the id of a LangSmith project. Here a project is the name of a group of runs."""
    session = str(experiment_id(project, name))
    if len(_known) >= _NAMES:
        _known.clear()
    _known[session] = name
    return session


_known: dict[str, str] = {}


def session_names(sessions: Iterable[str]) -> list[str] | None:
    """Return the names of LangSmith projects by their ids, or None if this process has not seen all of them yet."""
    names = [_known.get(session) for session in sessions]
    return None if None in names else [name for name in names if name is not None]


def session_of(store: Store, run: Run) -> str:
    """Return the LangSmith project of a run. Native runs have the project of the store."""
    return run_group(run, store.project)


async def spans_of(store: Store, run: Run) -> list[Span]:
    """Return all spans of a run, root first. A span without its own tokens has the sums of its descendants."""
    if run.source == "native":
        spans = [_native(store, run, value) for value in await export_run(store, str(run.id))]
        _add_sums(spans)
        return spans
    return _mirror(store, run, await store.log(run.id))


async def traces_of(store: Store, runs: Sequence[Run]) -> list[list[Span]]:
    """Return the spans of several runs, as `spans_of` does, with one query for all imported traces."""
    rows = await store.mirrors.rows_of(run.id for run in runs if run.source != "native")
    # A run without rows may be archived.
    return [_mirror(store, run, rows[run.id]) if run.id in rows else await spans_of(store, run) for run in runs]


def _mirror(store: Store, run: Run, log: Iterable[Stitch]) -> list[Span]:
    spans = [_mirrored(store, run, stitch) for stitch in log if stitch.data.get("id")]
    spans.sort(key=lambda span: (span.value["parent_run_id"] is not None, span.value["start_time"], span.id))
    _add_sums(spans)
    return spans


async def roots_of(store: Store, runs: Iterable[Run]) -> list[Span]:
    """Return the root spans of the runs in order. Runs without a root span are left out."""
    names = MirrorIds(store.project, "langsmith")
    mirrors = {run.id: run for run in runs}
    wanted = {names.span(trace_of(run)): run for run in mirrors.values() if run.foreign_id}
    stitches = {row.run_id: row for row in (await store.mirrors.stitches(wanted)).values() if row.data.get("id")}
    roots: list[Span] = []
    for run in mirrors.values():
        row = stitches.get(run.id)
        if row is not None:
            roots.append(_mirrored(store, run, row))
        else:
            roots += [span for span in (await spans_of(store, run))[:1] if span.value["parent_run_id"] is None]
    return roots


async def read_span(store: Store, ref: str) -> Span:
    """Return a span by its LangSmith id or its own id. The id of a run returns its root span. Raises `NotFound`."""
    stitches = await store.mirrors.stitches([MirrorIds(store.project, "langsmith").span(ref)])
    for stitch in stitches.values():
        if stitch.run_id is not None and stitch.data.get("id"):
            run = await store.run(stitch.run_id)
            span = _mirrored(store, run, stitch)
            if span.own or span.value["parent_run_id"] is None:
                return span
            return next((each for each in await spans_of(store, run) if each.row_id == stitch.id), span)
    own = as_id(ref)
    if own is not None:
        try:
            stitch = await store.stitch(own)
        except NotFound:
            pass
        else:
            if stitch.run_id is not None:
                for span in await spans_of(store, await store.run(stitch.run_id)):
                    if span.id == ref:
                        return span
    run = await store.run(ref)
    spans = await spans_of(store, run)
    if not spans:
        raise NotFound(f"Run {ref} has no span yet.")
    return spans[0]


async def run_of_span(store: Store, ref: str) -> Run:
    """Return the run of the trace that a span belongs to. Raises `NotFound`."""
    return (await read_span(store, ref)).run


def _mirrored(store: Store, run: Run, stitch: Stitch) -> Span:
    """Return a span as it was received, with computed fields."""
    value = exported_span(stitch.data)
    if as_id(str(value["id"])) is None or as_id(str(value.get("trace_id"))) is None:
        # The client accepts only UUIDs, so use the ids of the record for spans of other systems.
        above = stitch.parent_id if value.get("parent_run_id") else None
        value |= {"id": str(stitch.id), "trace_id": str(run.id), "parent_run_id": str(above) if above else None}
        value.pop("dotted_order", None)
    extra = dict(cast("Json", value.get("extra") or {}))
    lifted = {name: each for name in _LIFTED if (each := extra.pop(name, None)) is not None}
    own = _own_figures(stitch, lifted)
    figures: Json = dict.fromkeys(_FIGURES) | {"total_tokens": value.get("total_tokens")}
    if own:
        figures |= own
    elif value["parent_run_id"] is None:
        figures |= {**_tokens(run.input_tokens, run.output_tokens), **_costs(run.cost), "total_cost": run.total_cost}
    began = stitch.at or run.started_at
    kind = str(value.get("run_type") or "")
    fields = {
        **value,
        **lifted,
        "extra": extra,
        **figures,
        **_details(stitch),
        "name": value.get("name") or stitch.name or "run",
        "run_type": kind if kind in _WORDS else _KINDS.get(stitch.type, "chain"),
        "start_time": value.get("start_time") or format_time(began),
    }
    return Span(_complete(store, run, fields), run, stitch.id, own)


def _native(store: Store, run: Run, value: Json) -> Span:
    """Return a span of a native run."""
    cost: Any = value.get("total_cost")
    if isinstance(cost, dict):
        value = {**value, "total_cost": None, **_costs(cast("Json", cost))}
    elif value["parent_run_id"] is None:
        value = {**value, **_costs(run.cost), "total_cost": run.total_cost}
    own = {name: value.get(name) for name in _FIGURES} if value["run_type"] == "llm" else {}
    return Span(_complete(store, run, value), run, UUID(str(value["id"])), own)


def _own_figures(stitch: Stitch, given: Json) -> Json:
    """Return tokens and costs of a model call, or an empty object."""
    cost = stitch.data.get("cost")
    counted = stitch.input_tokens is not None or stitch.output_tokens is not None
    if not counted and not cost:
        return {}
    figures: Json = _tokens(stitch.input_tokens or 0, stitch.output_tokens or 0) if counted else {}
    figures |= _costs(cast("Json", cost)) if isinstance(cost, dict) else {"total_cost": cost}
    # If the source gives the costs, the record has only their sum.
    return figures | {name: given[name] for name in ("prompt_cost", "completion_cost") if name in given}


def _tokens(prompt: int, completion: int) -> Json:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _costs(cost: Json) -> Json:
    """Return the costs of a call or a sum. A cost that the source gave has no parts."""
    if "total_cost" not in cost:
        return {}
    if "given" in str(cost.get("source")):
        return {"total_cost": cost["total_cost"]}
    prompt = _sum(cost.get(name) for name in ("input_cost", "cache_write_cost", "cache_read_cost"))
    return {"prompt_cost": prompt, "completion_cost": cost.get("output_cost"), "total_cost": cost["total_cost"]}


def _details(stitch: Stitch) -> Json:
    """Return the parts of the prompt tokens and of their cost that the provider cached."""
    details: Json = {}
    tokens = {"cache_read": stitch.cache_read_tokens, "cache_creation": stitch.cache_write_tokens}
    if any(tokens.values()):
        details["prompt_token_details"] = {name: count for name, count in tokens.items() if count}
        cost: Any = stitch.data.get("cost")
        if isinstance(cost, dict) and "given" not in str(cast("Json", cost).get("source")):
            costs = {"cache_read": "cache_read_cost", "cache_creation": "cache_write_cost"}
            known = cast("Json", cost)
            details["prompt_cost_details"] = {name: known[key] for name, key in costs.items() if known.get(key)}
    return details


def _add_sums(spans: Sequence[Span]) -> None:
    """Give spans without figures the sums of their descendants. The root has the totals of the run already."""
    parents = {span.id: span.value["parent_run_id"] for span in spans}
    below: dict[str, list[Json]] = {}
    for span in spans:
        above, seen = parents[span.id], {span.id}
        while span.own and above is not None and above not in seen:
            below.setdefault(above, []).append(span.own)
            seen.add(above)
            above = parents.get(above)
    for span in spans:
        if not span.own and span.id in below and span.value["parent_run_id"] is not None:
            for name in _FIGURES:
                known = [figures[name] for figures in below[span.id] if figures.get(name) is not None]
                if known:
                    span.value[name] = sum(known) if name.endswith("tokens") else _sum(known)


def _sum(values: Iterable[Any]) -> float:
    # Add decimals, so that many small costs have no rounding error.
    return float(sum((Decimal(str(value)) for value in values if value is not None), Decimal(0)))


def _complete(store: Store, run: Run, value: Json) -> Json:
    """Return a span with all fields that the client's schema requires."""
    order = str(value.get("dotted_order") or "")
    above = [item for item in _ORDER.split(order)[1:-1] if as_id(item)]
    failed = bool(value.get("error"))
    ended = value.get("end_time") is not None
    name = session_of(store, run)
    return {
        "inputs": {},
        "outputs": None,
        "end_time": None,
        "error": None,
        "events": [],
        "tags": [],
        "extra": {},
        "first_token_time": None,
        "reference_example_id": None,
        **dict.fromkeys(_FIGURES),
        **value,
        **_first_token(value),
        "status": value.get("status") or ("error" if failed else "success" if ended else "pending"),
        "session_id": session_id(store.project, name),
        "session_name": name,
        "dotted_order": order,
        "parent_run_ids": above or ([value["parent_run_id"]] if value.get("parent_run_id") else []),
        "child_run_ids": None,
        "thread_id": value.get("thread_id"),
        "app_path": f"/run/{run.id}",
        "feedback_stats": None,
    }


def _first_token(value: Json) -> Json:
    """Return the time of the first token, from the events of a streamed answer."""
    if value.get("first_token_time"):
        return {}
    events: Any = value.get("events") or []
    for event in cast("list[Any]", events) if isinstance(events, list) else []:
        if isinstance(event, dict) and cast("Json", event).get("name") == "new_token":
            return {"first_token_time": cast("Json", event).get("time")}
    return {}
