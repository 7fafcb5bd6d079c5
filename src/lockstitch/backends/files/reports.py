"""Statistics, sizes and search over files."""

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from lockstitch.backend import SearchHit, Sizes, ThreadUsage
from lockstitch.backends.files import disk, log, tables
from lockstitch.backends.files.transaction import Folder
from lockstitch.model import BlobUse, Run, Stitch, Thread, codec
from lockstitch.model.searched_text import searched_text
from lockstitch.model.side_records import day_of, hour_of
from lockstitch.model.statistics import (
    TOOL_ERRORS,
    LatencyRow,
    StatsFilter,
    StitchOutline,
    UsageRow,
    latency,
    outline,
    run_group,
    sum_usage,
)


class _Share(NamedTuple):
    """Usage of one model in a run."""

    model: str | None
    figures: UsageRow


def usage(folder: Folder, stats_filter: StatsFilter) -> list[UsageRow]:
    """Return one usage row per group, in no order."""
    by_model = "model" in stats_filter.by or stats_filter.model is not None
    roots = _roots(folder) if "tree" in stats_filter.by else {}
    groups: defaultdict[tuple[str | None, ...], list[UsageRow]] = defaultdict(list)
    for head, run in _chosen(folder, stats_filter):
        shares = _shares(folder, run) if by_model else [_Share(run.model, _of_run(run))]
        for model, figures in shares:
            if stats_filter.model is None or (model or "") == stats_filter.model:
                keys = _keys(head, run, model, roots.get(head.id, head.id))
                groups[tuple(keys[key] or None for key in stats_filter.by)].append(figures)
    return [sum_usage(rows, group) for group, rows in groups.items()]


def latencies(folder: Folder, stats_filter: StatsFilter, kind: str) -> list[LatencyRow]:
    """Return one row per tool or model, or per day or hour if grouped by that, in no order."""
    durations: defaultdict[str | None, list[int | None]] = defaultdict(list)
    errors: defaultdict[str | None, int] = defaultdict(int)
    types = ("tool_call",) if kind == "tool" else ("llm_call", "api_error")
    for head, run in _chosen(folder, stats_filter):
        if kind == "tool" and stats_filter.model is not None and run.model != stats_filter.model:
            continue
        for stitch in tables.stitches_of_run(folder, run):
            if stitch.type not in types:
                continue
            name = (stitch.name if kind == "tool" else stitch.name or run.model) or None
            if kind == "model" and stats_filter.model is not None and name != stats_filter.model:
                continue
            if stats_filter.by:
                name = _keys(head, run, run.model, head.id)[stats_filter.by[0]]
            durations[name].append(stitch.duration_ms)
            failed = stitch.status in TOOL_ERRORS if kind == "tool" else stitch.status == "error"
            errors[name] += failed or stitch.type == "api_error"
    return [latency(name, times, errors[name]) for name, times in durations.items()]


def runs(folder: Folder, stats_filter: StatsFilter, order: str, limit: int) -> list[Run]:
    """Return the newest or the slowest of the selected runs."""
    matches = [
        run for _, run in _chosen(folder, stats_filter) if stats_filter.model is None or run.model == stats_filter.model
    ]
    if order == "newest":
        return sorted(matches, key=lambda run: (run.started_at, run.id), reverse=True)[:limit]
    timed = [(run.completed_at - run.started_at, run) for run in matches if run.completed_at is not None]
    return [run for _, run in sorted(timed, key=lambda item: (-item[0], item[1].id))[:limit]]


def mirrored(folder: Folder, project: str, foreign_id: str) -> Run | None:
    """Return the run of an imported trace by its id in the other system."""
    runs = [run for _, run in _chosen(folder, StatsFilter(project=project)) if run.foreign_id == foreign_id]
    return min(runs, key=lambda run: (run.started_at, run.id), default=None)


def outlines(folder: Folder, run_id: UUID) -> list[StitchOutline]:
    """Return the outline of a run's stitches. Reads line by line, so their content is not held in memory."""
    thread_id = tables.thread_of_run(folder, run_id)
    if thread_id is None:
        return []
    stitch_outlines = [
        outline(stitch) for stitch in log.each(folder, disk.log(thread_id, run_id)) if stitch.run_id == run_id
    ]
    return sorted(stitch_outlines, key=lambda stitch_outline: stitch_outline.position)


def _chosen(folder: Folder, stats_filter: StatsFilter) -> Iterator[tuple[Thread, Run]]:
    only = None if stats_filter.threads is None else set(stats_filter.threads)
    for head in tables.all_in(folder, Thread, disk.HEADS):
        if stats_filter.project not in (None, head.project) or stats_filter.user not in (None, head.user_id):
            continue
        if only is not None and head.id not in only:
            continue
        for run in tables.runs(folder, head.id):
            early = stats_filter.since is not None and run.started_at < stats_filter.since
            late = stats_filter.until is not None and run.started_at >= stats_filter.until
            if (
                not early
                and not late
                and stats_filter.agent in (None, run.agent)
                and stats_filter.status in (None, run.status)
                and (stats_filter.groups is None or run_group(run, head.project) in stats_filter.groups)
            ):
                yield head, run


def _keys(head: Thread, run: Run, model: str | None, root: UUID) -> dict[str, str | None]:
    return {
        "model": model,
        "day": day_of(run.started_at),
        "hour": hour_of(run.started_at),
        "agent": run.agent,
        "project": head.project,
        "user": head.user_id,
        "tree": str(root),
        "status": run.status,
        "version": f"{run.agent} v{run.version}" if run.agent is not None and run.version is not None else None,
        "tag": codec.dumps(run.tags).decode() if run.tags else None,
    }


def _roots(folder: Folder) -> dict[UUID, UUID]:
    """Return the root of every thread."""
    parents = {head.id: head.parent_id for head in tables.all_in(folder, Thread, disk.HEADS)}
    roots: dict[UUID, UUID] = {}
    for thread_id in parents:
        path, here = [thread_id], thread_id
        while here not in roots and (above := parents[here]) is not None and above in parents:
            path.append(here := above)
        roots |= dict.fromkeys(path, roots.get(here, here))
    return roots


def _of_run(run: Run) -> UsageRow:
    tokens = (run.input_tokens, run.output_tokens, run.cache_read_tokens, run.cache_write_tokens)
    value: Any = run.cost.get("unpriced")
    unpriced = value if isinstance(value, int) else run.steps if run.total_cost is None else 0
    return UsageRow((), 1, int(run.status == "failed"), *tokens, cost=run.total_cost, unpriced=unpriced)


def _shares(folder: Folder, run: Run) -> list[_Share]:
    """Return the usage of each model in a run.

    If the run counts more than its calls in the log, the difference belongs to the run's own model.
    """
    usage_row = _of_run(run)
    calls: defaultdict[str | None, list[UsageRow]] = defaultdict(list)
    for stitch in tables.stitches_of_run(folder, run):
        if stitch.type == "llm_call" or (stitch.type == "span" and stitch.input_tokens is not None):
            calls[stitch.name or run.model].append(_of_call(stitch))
    sums = {model: sum_usage(rows) for model, rows in calls.items()}
    value = sum_usage(sums.values())
    remaining = [of_run - of_calls for of_run, of_calls in zip(usage_row.tokens, value.tokens, strict=True)]
    if not calls or min(remaining) < 0:
        return [_Share(run.model, usage_row)]
    if len(sums) == 1:
        (model,) = sums
        sums = {model: value._replace(cost=usage_row.cost, unpriced=usage_row.unpriced)}
        value = sums[model]
    elif usage_row.cost is None:
        sums = {model: figures._replace(cost=None) for model, figures in sums.items()}
        value = value._replace(cost=None)
    left = usage_row.cost if value.cost is None else sum_usage([usage_row, value._replace(cost=-value.cost)]).cost
    unpriced = usage_row.unpriced - value.unpriced
    own = UsageRow((), 1, usage_row.failed_runs, *remaining, cost=left or None, unpriced=unpriced)
    return [_Share(run.model, own), *(_Share(model, figures) for model, figures in sums.items())]


def _of_call(stitch: Stitch) -> UsageRow:
    tokens = (stitch.input_tokens, stitch.output_tokens, stitch.cache_read_tokens, stitch.cache_write_tokens)
    cost: Any = stitch.data.get("cost")
    if isinstance(cost, dict):
        cost = cost.get("total_cost")  # type: ignore[union-attr]
    known = float(cost) if isinstance(cost, int | float) and not isinstance(cost, bool) else None
    return UsageRow((), 0, 0, *(count or 0 for count in tokens), cost=known, unpriced=int(known is None))


def average_tokens(folder: Folder, project: str, since: datetime) -> list[ThreadUsage]:
    """Return, per thread, the average tokens of its top-level runs started since then."""
    usages: list[ThreadUsage] = []
    for head in tables.all_in(folder, Thread, disk.HEADS):
        if head.project != project:
            continue
        tokens = [
            run.input_tokens + run.output_tokens
            for run in tables.runs(folder, head.id)
            if run.parent_run_id is None and run.started_at > since
        ]
        if tokens:
            usages.append(ThreadUsage(head.id, len(tokens), sum(tokens) / len(tokens)))
    return sorted(usages, key=lambda usage: usage.thread_id)


def size(folder: Folder, thread_id: UUID | None) -> Sizes:
    """Return the size in bytes of the files of one thread or of all. For all also the size of the folder on disk."""
    root = folder.root
    if thread_id is None:
        heads, runs, logs, blobs = disk.HEADS, disk.RUNS, disk.LOGS, [disk.BLOBS]
    else:
        heads, runs, logs = disk.head(thread_id), disk.runs(thread_id), disk.logs(thread_id)
        uses = tables.records(folder, BlobUse, (thread_id,))
        blobs = [disk.blob(use.sha256) for use in uses if use.thread_id == thread_id]
    sizes = {
        "heads": _bytes(root / heads, ".json"),
        "runs": _bytes(root / runs, ".json"),
        "stitches": _bytes(root / logs, ".jsonl"),
        "blobs": sum(_bytes(root / path, "") for path in blobs),
        "archives": _bytes(root / logs, ".gz"),
    }
    if thread_id is None:
        sizes["disk"] = sum(max(status.st_size, status.st_blocks * 512) for _, status in _files(root))
    return sizes


def _bytes(path: Path, suffix: str) -> int:
    return sum(status.st_size for file, status in _files(path) if file.suffix == suffix)


def _files(path: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield a file, or all files in a folder."""
    if path.is_file():
        yield path, path.stat()
    for folder, _, names in os.walk(path):
        for name in names:
            file = Path(folder, name)
            yield file, file.stat()


_WORD = re.compile(r"[^\W_]+")

LONGEST = 262_144
"""Maximum number of characters of one message that are searched."""


def search(folder: Folder, project: str, text: str, limit: int) -> list[SearchHit]:
    """Return titles and stitches that contain every word in any case, those with most occurrences first."""
    words = set(_words(text))
    if not words:
        return []
    hits: list[SearchHit] = []
    for head in tables.all_in(folder, Thread, disk.HEADS):
        if head.project != project:
            continue
        if score := _score(words, head.title or ""):
            hits.append(SearchHit(head.id, None, score))
        texts = (
            (stitch.position, searched_text(stitch.type, stitch.message, stitch.data)[:LONGEST])
            for stitch in log.read(folder, head.id, [(1, None)])
        )
        scores = ((position, _score(words, text)) for position, text in texts if text)
        hits.extend(SearchHit(head.id, position, score) for position, score in scores if score)
    hits.sort(key=lambda hit: (-hit.score, hit.thread_id, hit.position or 0))
    return hits[:limit]


def _score(words: set[str], text: str) -> float:
    counter = Counter(_words(text))
    return float(sum(counter[word] for word in words)) if all(word in counter for word in words) else 0.0


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())
