"""`stats`, `size`."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any, cast

import typer
from rich.text import Text

from lockstitch.cli.options import Limit, Since, examples
from lockstitch.cli.references import find_thread
from lockstitch.cli.render.output import Output, TableColumn, cost, duration, one_line, plural, size, time
from lockstitch.cli.render.threads import name_of, shown_id, status_word
from lockstitch.cli.session import Session, now, session_of
from lockstitch.errors import Refused
from lockstitch.model import Json, Run, format_time
from lockstitch.model.moment import moment_or_none
from lockstitch.model.statistics import GROUPS, Group, LatencyRow, UsageRow
from lockstitch.store.reports.statistics import RunFilter, UsageTable
from lockstitch.sync import SyncStore

app = typer.Typer()
stats = typer.Typer(
    help="Show usage, cost, latency and failures of the agents.",
    rich_markup_mode=None,
    invoke_without_command=True,
)
app.add_typer(stats, name="stats")

_ORDERS = ("newest", "slowest", "failed")
_BAR = 40
_DAYS = 30
"""Number of days in the chart."""


@stats.callback(
    epilog=examples(
        "lockstitch stats --since 7d",
        "lockstitch stats --by model --by day --json",
        "lockstitch stats --tools --latency --since 24h",
        "lockstitch stats tokens --days 7",
    )
)
def show(
    context: typer.Context,
    by: Annotated[
        list[str] | None,
        typer.Option(metavar="GROUP", help=f"Group by {', '.join(GROUPS)}. Can be repeated."),
    ] = None,
    tools: Annotated[bool, typer.Option("--tools", help="Show latency and failures of tools.")] = False,
    latency: Annotated[bool, typer.Option("--latency", help="Show latency percentiles of models.")] = False,
    runs: Annotated[
        str | None, typer.Option(metavar="ORDER", help=f"List runs: {', '.join(_ORDERS)}.", show_default=False)
    ] = None,
    since: Since = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Only before this time.")] = None,
    agent: Annotated[str | None, typer.Option(metavar="A", help="Only runs of this agent.")] = None,
    model: Annotated[str | None, typer.Option(metavar="M", help="Only runs with this model.")] = None,
    user: Annotated[str | None, typer.Option(metavar="U", help="Only runs of this user.")] = None,
    all_projects: Annotated[bool, typer.Option("--all-projects", help="Include all projects.")] = False,
    limit: Limit = 20,
) -> None:
    """Show usage, cost, latency and failures of the agents.

    The start time of a run, in UTC, decides its day. Purged runs are included where their totals are stored.
    """
    if context.invoked_subcommand is not None:
        return
    session = session_of(context)
    wrong = [word for word in by or () if word not in GROUPS]
    if wrong:
        raise Refused(f"--by {wrong[0]!r} is not valid. Use one of: {', '.join(GROUPS)}.")
    if runs is not None and runs not in _ORDERS:
        raise Refused(f"--runs {runs!r} is not valid. Use one of: {', '.join(_ORDERS)}.")
    only: RunFilter = {"agent": agent, "model": model, "user": user}
    only["since"] = moment_or_none(since, now(), "--since")
    only["until"] = moment_or_none(until, now(), "--until")
    with session.open() as store:
        page = _Page(store, session, only, all_projects)
        if by:
            page.usage(cast("list[Group]", by))
        if tools:
            page.tools(limit)
        if latency:
            page.latency(limit)
        if runs:
            page.runs(runs, limit)
        if not (by or tools or latency or runs):
            page.overview(limit)
        page.end()


class _Page:
    """The output, part by part. Tables are printed at once, JSON as one object at the end."""

    def __init__(self, store: SyncStore, session: Session, only: RunFilter, all_projects: bool) -> None:
        self._figures = store.statistics
        self._out = session.out
        self._only = only
        self._all = all_projects
        self._json: Json = {
            "project": None if all_projects else store.project,
            "since": _moment(only.get("since")),
            "until": _moment(only.get("until")),
        }
        self._first = True

    def overview(self, limit: int) -> None:
        models, statuses, days = self._figures.breakdown("model", "status", "day", all_projects=self._all, **self._only)
        self._json["total"] = models.total.as_json()
        if not self._out.as_json:
            self._out.line(_totals(models.total))
            self._first = False
        if not models.rows and not self._out.as_json:
            return
        self._table("by_model", models, limit)
        self.tools(limit)
        self._table("by_status", statuses, limit)
        self._json["by_day"] = _rows(days)
        if not self._out.as_json:
            _chart(self._out, days)

    def usage(self, by: Sequence[Group]) -> None:
        table = self._usage(*by)
        self._json["usage"] = table.as_json()
        self._part()
        if not self._out.as_json:
            _show_table(self._out, table, total=True)

    def tools(self, limit: int) -> None:
        latency_rows = self._figures.tools(all_projects=self._all, **self._only)
        self._latencies("tools", "TOOL", latency_rows, limit)

    def latency(self, limit: int) -> None:
        latency_rows = self._figures.models(all_projects=self._all, **self._only)
        self._latencies("latency", "MODEL", latency_rows, limit)

    def runs(self, order: str, limit: int) -> None:
        matches = self._figures.runs(
            order="slowest" if order == "slowest" else "newest",
            limit=limit,
            all_projects=self._all,
            **(self._only if order != "failed" else {**self._only, "status": "failed"}),
        )
        self._json["runs"] = [{**run.as_json(), "usage": run.usage, "duration_ms": _took(run)} for run in matches]
        self._part()
        if not self._out.as_json:
            self._out.table(_RUN_COLUMNS, [_run_row(self._out, run) for run in matches])

    def end(self) -> None:
        if self._out.as_json:
            self._out.json(self._json)

    def _usage(self, *by: Group) -> UsageTable:
        return self._figures.usage(*by, all_projects=self._all, **self._only)

    def _table(self, name: str, table: UsageTable, limit: int) -> None:
        self._json[name] = _rows(table)
        self._part()
        if not self._out.as_json:
            _show_table(self._out, UsageTable(table.by, table.rows[:limit], table.total))

    def _latencies(self, name: str, title: str, latency_rows: Sequence[LatencyRow], limit: int) -> None:
        self._json[name] = [latency_row.as_json() for latency_row in latency_rows]
        if self._out.as_json or not latency_rows:
            return
        self._part()
        self._out.table(
            [TableColumn(title, flexible=True), *_LATENCIES],
            [_latency_row(latency_row) for latency_row in latency_rows[:limit]],
        )

    def _part(self) -> None:
        if not self._first and not self._out.as_json:
            self._out.line()
        self._first = False


_FIGURES = [
    TableColumn("RUNS", right=True),
    TableColumn("FAILED", right=True),
    TableColumn("INPUT", right=True),
    TableColumn("OUTPUT", right=True),
    TableColumn("CACHE READ", right=True, from_width=100),
    TableColumn("CACHE WRITE", right=True, from_width=110),
    TableColumn("COST", right=True),
    TableColumn("UNPRICED", right=True, from_width=90),
]

_LATENCIES = [
    TableColumn("CALLS", right=True),
    TableColumn("ERRORS", right=True),
    TableColumn("AVERAGE", right=True),
    TableColumn("P50", right=True),
    TableColumn("P95", right=True),
    TableColumn("P99", right=True, from_width=90),
    TableColumn("MAX", right=True),
]

_RUN_COLUMNS = [
    TableColumn("RUN"),
    TableColumn("STATUS"),
    TableColumn("STARTED", from_width=100),
    TableColumn("DURATION", right=True),
    TableColumn("STEPS", right=True, from_width=90),
    TableColumn("TOKENS", right=True, from_width=110),
    TableColumn("COST", right=True),
    TableColumn("AGENT", flexible=True),
    TableColumn("ERROR", flexible=True),
]


def _show_table(out: Output, table: UsageTable, *, total: bool = False) -> None:
    columns = [TableColumn(name.upper(), flexible=name not in ("day", "tree", "status")) for name in table.by]
    rows = [[*_group(table.by, row), *_cells(row)] for row in table.rows]
    if total and table.by:
        rows.append([Text("total", style="bold"), *[""] * (len(table.by) - 1), *_cells(table.total)])
    out.table([*columns, *_FIGURES], rows)


def _group(by: Sequence[Group], row: UsageRow) -> list[str | Text]:
    return [
        status_word(value) if name == "status" and value else Text(one_line(value)) if value else Text("-", style="dim")
        for name, value in zip(by, row.group, strict=True)
    ]


def _cells(row: UsageRow) -> list[str | Text]:
    counts = [row.runs, row.failed_runs, *row.tokens]
    return [*(f"{count:,}" for count in counts), cost(row.cost), f"{row.unpriced:,}" if row.unpriced else ""]


def _latency_row(latency_row: LatencyRow) -> list[str | Text]:
    errors = (
        Text(f"{latency_row.errors:,} ({latency_row.error_rate:.0%})", style="red") if latency_row.errors else Text("")
    )
    numbers = (latency_row.average_ms, latency_row.p50_ms, latency_row.p95_ms, latency_row.p99_ms, latency_row.max_ms)
    return [Text(one_line(latency_row.name) or "-"), f"{latency_row.calls:,}", errors, *map(duration, numbers)]


def _run_row(out: Output, run: Run) -> list[str | Text]:
    return [
        shown_id(out, run.id),
        status_word(run.status),
        time(run.started_at),
        duration(_took(run)),
        str(run.steps),
        f"{run.input_tokens + run.output_tokens:,}",
        cost(run.total_cost),
        one_line(run.agent),
        Text(one_line(run.error), style="red"),
    ]


def _totals(total: UsageRow) -> str:
    failed = f" ({total.failed_runs:,} failed)" if total.failed_runs else ""
    parts = [f"{plural(total.runs, 'run')}{failed}", f"{total.input_tokens:,} tokens in, {total.output_tokens:,} out"]
    if total.cost is not None:
        parts.append(cost(total.cost))
    if total.unpriced:
        parts.append(f"{plural(total.unpriced, 'model call')} without a known price")
    return " · ".join(parts)


def _chart(out: Output, days: UsageTable) -> None:
    """Print the cost of each day as a bar. Without prices, print the tokens."""
    priced = any(row.cost for row in days.rows)
    last = days.rows[-_DAYS:]
    amounts = [(row.cost or 0.0) if priced else float(row.input_tokens + row.output_tokens) for row in last]
    most = max(amounts, default=0.0)
    if not most:
        return
    out.line()
    columns = [TableColumn("DAY"), TableColumn("COST" if priced else "TOKENS", right=True), TableColumn("")]
    rows: list[list[str | Text]] = []
    for row, amount in zip(last, amounts, strict=True):
        bar = "█" * max(1, round(amount / most * _BAR)) if amount else ""
        rows.append([row.group[0] or "", cost(row.cost) if priced else f"{amount:,.0f}", Text(bar, style="green")])
    out.table(columns, rows)


def _rows(table: UsageTable) -> list[Json]:
    return table.as_json()["rows"]


def _took(run: Run) -> int | None:
    return None if run.completed_at is None else round((run.completed_at - run.started_at).total_seconds() * 1000)


def _moment(value: Any) -> str | None:
    return format_time(value) if isinstance(value, datetime) else None


@stats.command(epilog=examples("lockstitch stats tokens --days 7"))
def tokens(
    context: typer.Context,
    days: Annotated[int, typer.Option(min=1, max=36_500, metavar="N", help="Number of days to include.")] = 7,
) -> None:
    """Show the average input and output tokens per run for each thread."""
    session = session_of(context)
    with session.open() as store:
        thread_usages = store.average_tokens(now() - timedelta(days=days))
        if session.json_output:
            session.out.json([{**usage._asdict(), "thread_id": str(usage.thread_id)} for usage in thread_usages])
            return
        threads = store.threads_by_id({usage.thread_id for usage in thread_usages})
        rows = [
            [
                shown_id(session.out, usage.thread_id),
                f"{usage.runs:,}",
                f"{usage.average_tokens:,.1f}",
                name_of(threads[usage.thread_id]) if usage.thread_id in threads else "",
            ]
            for usage in thread_usages
        ]
    columns = [TableColumn("THREAD"), TableColumn("RUNS", right=True), TableColumn("AVERAGE TOKENS", right=True)]
    session.out.table([*columns, TableColumn("NAME", flexible=True)], rows)
    if not rows:
        session.out.note(f"No runs in the last {plural(days, 'day')}.")


# Bytes, from the document: one config per agent, conversation and log per run.
_ESTIMATES = {
    "config": (10_000, 50_000),
    "conversation": (50_000, 200_000),
    "log": (500_000, 2_000_000),
}
# The parts of this store that hold the content of the document's three stores. Content is stored once, in stitches.
_PARTS = {"config": ("heads",), "conversation": ("runs",), "log": ("stitches", "blobs", "archives")}


@app.command("size", epilog=examples("lockstitch size", "lockstitch size customer-42 --json"))
def size_of(
    context: typer.Context,
    thread: Annotated[str | None, typer.Argument(metavar="THREAD", help="Only this thread.")] = None,
) -> None:
    """Show the stored bytes and the estimates of the three-table document.

    The document estimates the size of a schema that repeats content. Lockstitch stores content once.
    """
    session = session_of(context)
    with session.open() as store:
        report = _report(store, thread)
    if session.json_output:
        session.out.json(report)
        return
    rows = [
        [name, " + ".join(_PARTS[name]), size(part["bytes"]), _range(part["estimate"])]
        for name, part in report["stores"].items()
    ]
    rows.append(["total", "", size(report["total"]), _range(report["estimate"])])
    columns = [TableColumn("STORE"), TableColumn("HOLDS"), TableColumn("BYTES", right=True)]
    session.out.table([*columns, TableColumn("DOCUMENT ESTIMATE", right=True)], rows)
    scope = f"{plural(report['threads'], 'thread')}, {plural(report['runs'], 'run')}"
    disk = f", {size(report['disk'])} on disk" if report["disk"] is not None else ""
    session.out.line()
    session.out.line(f"{scope}{disk}.", style="dim")


def _range(ends: Sequence[int]) -> str:
    return " to ".join(map(size, ends))


def _report(store: SyncStore, name: str | None) -> Json:
    """Return the bytes per store of the document, and the document's estimate for the same threads and runs."""
    thread = find_thread(store, name) if name else None
    sizes = store.size(thread)
    if thread is not None:
        threads, runs = 1, thread.last_sequence
    else:
        counts = store.counts()
        threads, runs = counts.threads, counts.runs
    stores: Json = {}
    for part, (low, high) in _ESTIMATES.items():
        number = threads if part == "config" else runs
        stores[part] = {
            "bytes": sum(sizes.get(piece, 0) for piece in _PARTS[part]),
            "estimate": [number * low, number * high],
        }
    return {
        "thread": str(thread.id) if thread else None,
        "threads": threads,
        "runs": runs,
        "stores": stores,
        "total": sum(part["bytes"] for part in stores.values()),
        "estimate": [sum(part["estimate"][end] for part in stores.values()) for end in (0, 1)],
        "parts": {part: number for part, number in sizes.items() if part != "disk"},
        "disk": sizes.get("disk"),
    }
