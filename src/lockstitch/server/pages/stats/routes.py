"""The stats page: usage, cost, latency and failures. Each panel loads when it becomes visible."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final
from urllib.parse import parse_qsl, urlencode
from uuid import UUID

from fastapi import Query, Request
from starlette.responses import HTMLResponse

from lockstitch.errors import LockstitchError, Refused
from lockstitch.model import Thread, as_id
from lockstitch.model.statistics import Group, UsageRow
from lockstitch.server.auth import Caller, Reader
from lockstitch.server.pages.common.render import is_htmx_request, render_page
from lockstitch.server.pages.navbar import page_router
from lockstitch.server.pages.stats import charts
from lockstitch.server.pages.stats.alerts import alert_rows
from lockstitch.server.pages.stats.charts import PRESETS, Range, moments, range_of
from lockstitch.server.problems import Problem, problem_of
from lockstitch.store import Where
from lockstitch.store.reports.statistics import RunFilter, UsageTable

router = page_router()

_GROUPS: Final[tuple[Group, ...]] = ("model", "agent", "version", "user", "tag", "project")
_FEW: Final = 8
_DEAREST: Final = 50
_MOST_AGENTS: Final = 200
"""Maximum number of agents that the filter suggests."""

RangeName = Annotated[str, Query(alias="range", max_length=10)]
Day = Annotated[str, Query(max_length=10)]
By = Annotated[str, Query(max_length=10)]
AgentName = Annotated[str, Query(max_length=255)]


@dataclass(frozen=True, slots=True)
class StatsView:
    """The caller, range, grouping and agent of a request."""

    caller: Caller
    range: Range
    by: Group
    agent: str = ""
    """Only the runs of this agent. Empty: all runs."""

    @property
    def only(self) -> RunFilter:
        return {"since": self.range.since, "until": self.range.until, "agent": self.agent or None}

    @property
    def everywhere(self) -> bool:
        """True if the figures cover all projects, which is the case when they are split by project."""
        return self.by == "project"

    @property
    def groups(self) -> Sequence[Group]:
        return _GROUPS if sees_all(self.caller) else _GROUPS[:-1]

    @property
    def query(self) -> str:
        return self.address()

    def address(self, *, range_: str = "", by: str = "") -> str:
        """Return the query string of the page, with another range or grouping."""
        range_query = urlencode({"range": range_}) if range_ else self.range.query
        return "&".join(filter(None, (range_query, urlencode({"by": by or self.by}), self.agent_query)))

    @property
    def fields(self) -> list[tuple[str, str]]:
        """The range and the grouping as fields of a form."""
        return parse_qsl(f"{self.range.query}&{urlencode({'by': self.by})}")

    @property
    def agent_query(self) -> str:
        """The filter of the agent as a part of a query string."""
        return urlencode({"agent": self.agent}) if self.agent else ""

    async def usage(self, *by: Group) -> UsageTable:
        return await self.caller.store.statistics.usage(*by, all_projects=self.everywhere, **self.only)


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel: title, width, template, and the function that loads its data."""

    title: str
    width: str
    template: str
    fill: Callable[[StatsView], Awaitable[dict[str, Any]]]


def sees_all(caller: Caller) -> bool:
    """True if the caller can see all projects: only on a server without tokens."""
    return not caller.state.settings.tokens_needed


@router.get("/stats", name="stats")
async def stats(
    request: Request,
    caller: Reader,
    range_: RangeName = "30d",
    since: Day = "",
    until: Day = "",
    by: By = "model",
    agent: AgentName = "",
    whole: bool = False,
) -> HTMLResponse:
    look = _look(caller, range_, since, until, by, agent)
    in_project = Where("project", "=", caller.project)
    agents = await caller.store.agents.find(in_project, order=("name",), limit=_MOST_AGENTS)
    shown = {name: await _filled(look, name) for name in PANELS} if whole else {}
    return render_page(
        request,
        caller,
        "stats/stats.html",
        look=look,
        presets=PRESETS,
        panels=PANELS,
        shown=shown,
        whole=whole,
        compact=charts.compact,
        alerts=await alert_rows(caller),
        agents=agents,
        **await _strip(look),
    )


@router.get("/stats/panel/{name}")
async def panel(
    request: Request,
    caller: Reader,
    name: str,
    range_: RangeName = "30d",
    since: Day = "",
    until: Day = "",
    by: By = "model",
    agent: AgentName = "",
) -> HTMLResponse:
    if name not in PANELS:
        raise Problem(404, "NotFound", f"Panel {name} not found.")
    look = _look(caller, range_, since, until, by, agent)
    filled = await _filled(look, name)
    return render_page(request, caller, "stats/panel.html", look=look, name=name, panel=PANELS[name], found=filled)


@router.get("/stats/threads/{span}", name="stats_threads")
async def span_threads(request: Request, caller: Reader, span: str, agent: AgentName = "") -> HTMLResponse:
    """Render the threads of a day or an hour, most expensive first."""
    since, until = moments(span)
    table = await caller.store.statistics.usage("tree", since=since, until=until, agent=agent.strip() or None)
    return render_page(
        request,
        caller,
        "stats/threads_part.html" if is_htmx_request(request) else "stats/threads.html",
        span=span,
        since=since,
        hourly=len(span) > 10,
        table=table,
        omitted=max(0, len(table.rows) - _DEAREST),
        rows=await _trees(caller, table.rows[:_DEAREST]),
    )


async def _cost(look: StatsView) -> dict[str, Any]:
    statistics = look.caller.store.statistics
    usage = await statistics.largest(look.range.per, look.by, charts.RAMP, all_projects=look.everywhere, **look.only)
    return {"chart": charts.costs(look.range, look.by, usage), "unpriced": usage.total.unpriced}


async def _tokens(look: StatsView) -> dict[str, Any]:
    return {"chart": charts.tokens(look.range, (await look.usage(look.range.per)).rows)}


async def _latency(look: StatsView) -> dict[str, Any]:
    statistics = look.caller.store.statistics
    latency_rows = await statistics.latency("model", look.range.per, all_projects=look.everywhere, **look.only)
    return {"chart": charts.latencies(look.range, latency_rows)}


async def _failed(look: StatsView) -> dict[str, Any]:
    table = await look.usage(look.range.per)
    worst = max(table.rows, key=lambda row: row.failed_runs, default=None)
    return {
        "chart": charts.failures(look.range, table.rows),
        "worst": worst if worst is not None and worst.failed_runs and worst.group[0] else None,
        "moments": moments,
    }


async def _tools(look: StatsView) -> dict[str, Any]:
    latency_rows = await look.caller.store.statistics.tools(all_projects=look.everywhere, **look.only)
    latency_rows.sort(key=lambda latency_row: (-(latency_row.p95_ms or 0), latency_row.name or ""))
    return {
        "latencies": latency_rows,
        "kind": "tool",
        "longest": max((latency_row.p95_ms or 0 for latency_row in latency_rows), default=0),
    }


async def _models(look: StatsView) -> dict[str, Any]:
    latency_rows = await look.caller.store.statistics.models(all_projects=look.everywhere, **look.only)
    latency_rows.sort(key=lambda latency_row: (-(latency_row.p95_ms or 0), latency_row.name or ""))
    return {
        "latencies": latency_rows,
        "kind": "model",
        "longest": max((latency_row.p95_ms or 0 for latency_row in latency_rows), default=0),
    }


async def _shares(look: StatsView) -> dict[str, Any]:
    """Return the cost by agent, or by model if the page is split by agent."""
    by: Group = "model" if look.by == "agent" else "agent"
    rows = (await look.usage(by)).rows
    few, others = (rows, []) if len(rows) <= _FEW else (rows[: _FEW - 1], rows[_FEW - 1 :])
    shown = [(row.group[0] or charts.NO_GROUP, row) for row in few]
    if others:
        shown.append((charts.OTHERS, charts.sum_usage(others)))
    return {"rows": shown, "title": f"Cost by {by}", "most": max((row.cost or 0.0 for _, row in shown), default=0.0)}


async def _dearest(look: StatsView) -> dict[str, Any]:
    # Only the caller's project: the page cannot open threads of other projects.
    rows = await look.caller.store.statistics.dearest("tree", _FEW, **look.only)
    return {"rows": await _trees(look.caller, [row for row in rows if row.cost])}


PANELS: Final = {
    "cost": Panel("Cost", "w12", "stats/chart.html", _cost),
    "tokens": Panel("Tokens", "w4", "stats/chart.html", _tokens),
    "latency": Panel("Model latency", "w4", "stats/chart.html", _latency),
    "failed": Panel("Failed runs", "w4", "stats/chart.html", _failed),
    "tools": Panel("Slowest tools", "w8", "stats/latencies.html", _tools),
    "shares": Panel("Cost by agent", "w4", "stats/shares.html", _shares),
    "models": Panel("Slowest models", "w8", "stats/latencies.html", _models),
    "dearest": Panel("Most expensive", "w4", "stats/most_expensive.html", _dearest),
}


async def _filled(look: StatsView, name: str) -> dict[str, Any]:
    """Return the data of a panel, or its problem."""
    try:
        return {"problem": None, "worst": None, "unpriced": 0, **await PANELS[name].fill(look)}
    except LockstitchError as exc:
        return {"problem": problem_of(exc)}


async def _strip(look: StatsView) -> dict[str, Any]:
    before = look.range.before
    try:
        table = await look.usage("status")
        earlier = await look.caller.store.statistics.usage(
            all_projects=look.everywhere, since=before.since, until=before.until, agent=look.agent or None
        )
    except LockstitchError as exc:
        return {"problem": problem_of(exc)}
    completed = sum(row.runs for row in table.rows if row.group[0] == "completed")
    return {"total": table.total, "earlier": earlier.total, "completed": completed, "problem": None, "change": _change}


def _change(now: float | None, before: float | None) -> str:
    """Return the change in percent as text."""
    if not now or not before:
        return ""
    change = round((now / before - 1) * 100)
    if change == 0:
        return "unchanged"
    return f"{change:,} % more" if change > 0 else f"{-change:,} % less"


async def _trees(caller: Caller, rows: Sequence[UsageRow]) -> list[tuple[Thread | None, UsageRow]]:
    """Return the usage rows with their root threads; None for deleted threads."""
    ids = [match_id for row in rows if (match_id := as_id(row.group[0] or "")) is not None]
    heads = await caller.store.threads_by_id(ids)
    return [(heads.get(as_id(row.group[0] or "") or UUID(int=0)), row) for row in rows]


def _look(caller: Caller, name: str, since: str, until: str, by: str, agent: str) -> StatsView:
    look = StatsView(caller, range_of(name, since, until, caller.store.clock.now()), "model", agent.strip())
    for group in look.groups:
        if group == by:
            return replace(look, by=group)
    raise Refused(f"Cannot split by {by!r}. Use one of: {', '.join(look.groups)}.")
