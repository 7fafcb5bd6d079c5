"""The pages of agents: the list, and one agent with its versions, a definition and its changes."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from statistics import median
from typing import Annotated, Any, Final, NamedTuple, cast
from urllib.parse import urlencode

from fastapi import Query, Request
from starlette.responses import HTMLResponse

from lockstitch.agents.evals.stored_evals import Evals
from lockstitch.model import Agent, AgentVersion, Json
from lockstitch.model.statistics import UsageRow, sum_usage
from lockstitch.server.auth import Caller, Reader
from lockstitch.server.pages.common.render import is_htmx_request, render_page
from lockstitch.server.pages.navbar import page_router
from lockstitch.server.pages.stats.charts import range_of
from lockstitch.store import Where
from lockstitch.store.reports.definitions import tools_of, version_changes
from lockstitch.store.reports.statistics import RunFilter

PAGE: Final = 50
VERSIONS: Final = 20
"""Maximum number of versions on one page. Each has its definition, which may be large."""

_RANGE: Final = "30d"
_TIMED: Final = 200
"""Number of latest runs whose times count for the median of each version."""
_EVALS: Final = 20

_APART: Final = frozenset({"name", "model", "instructions", "tools", "code", "team"})
"""Fields of a definition that are not in the list of settings."""

_NOT_SET: Final[tuple[Any, ...]] = (None, "", [], {})

Number = Annotated[int | None, Query(ge=0, lt=2**63)]

router = page_router("/agents")


class AgentRow(NamedTuple):
    """An agent with its usage. Agents of imported traces have no definition."""

    name: str
    agent: Agent | None
    model: str
    tools: int
    usage: UsageRow
    last_day: datetime | None
    """The day of the last run."""


class VersionRow(NamedTuple):
    """A version with its usage."""

    version: AgentVersion
    usage: UsageRow
    median_ms: float | None
    """Median time of its runs that are among the latest runs of the agent."""


@router.get("", name="agents")
async def agents(request: Request, caller: Reader, after: Annotated[str, Query(max_length=255)] = "") -> HTMLResponse:
    """Render the list of agents; for htmx only the next rows."""
    table, in_project = caller.store.agents, Where("project", "=", caller.project)
    found = await table.find(in_project, order=("name",), after=(after,) if after else None, limit=PAGE + 1)
    stored, has_more = found[:PAGE], len(found) > PAGE
    definitions = {version.name: version.definition for version in await table.current_versions(stored)}
    by_agent = await _by_agent(caller)
    rows = [_agent_row(agent.name, agent, definitions.get(agent.name, {}), by_agent) for agent in stored]
    if not has_more:
        names = list(by_agent)
        known = await table.find(in_project, Where("name", "in", names)) if names else []
        others = sorted({*names} - {agent.name for agent in known})[:PAGE]
        rows += [_agent_row(name, None, {}, by_agent) for name in others]
    template = "agents/rows.html" if is_htmx_request(request) else "agents/list.html"
    next_page = urlencode({"after": stored[-1].name}) if has_more else ""
    return render_page(request, caller, template, rows=rows, next=next_page, range=_RANGE)


@router.get("/{name:path}")
async def agent(
    request: Request, caller: Reader, name: str, version: Number = None, since: Number = None, before: Number = None
) -> HTMLResponse:
    """Render one agent with the definition of a version; for htmx only the next rows of versions."""
    head = await caller.store.agents.get(caller.project, name)
    found = await caller.store.agents.versions(caller.project, name, newest=VERSIONS + 1, before=before)
    versions = found[::-1][:VERSIONS]
    rows, unversioned = await _version_rows(caller, name, versions)
    chosen = head.version if version is None else version
    shown: dict[str, Any] = {
        "agent": head,
        "rows": rows,
        "chosen": chosen,
        "next": versions[-1].version if len(found) > VERSIONS else None,
    }
    if is_htmx_request(request):
        return render_page(request, caller, "agents/version_rows.html", **shown)
    compared = await version_changes(caller.store.agents, caller.project, name, chosen, since)
    definition = compared.version.definition
    settings = {field: value for field, value in definition.items() if field not in _APART}
    others = {each.version for each in versions} | ({compared.since.version} if compared.since else set[int]())
    evals = (await Evals(caller.store).list(agent=name, limit=_EVALS))["evals"]
    return render_page(
        request,
        caller,
        "agents/agent.html",
        compared=compared,
        definition={field: definition.get(field) for field in _APART},
        tools=tools_of(definition),
        settings={field: value for field, value in settings.items() if value not in _NOT_SET},
        not_set=[field for field, value in settings.items() if value in _NOT_SET],
        others=sorted(others - {chosen}, reverse=True),
        evals=evals,
        compare_evals=_comparable(evals, chosen, compared.since.version if compared.since else None),
        unversioned=unversioned,
        timed=_TIMED,
        range=_RANGE,
        **shown,
    )


def _only(caller: Caller) -> RunFilter:
    span = range_of(_RANGE, "", "", caller.store.clock.now())
    return {"since": span.since, "until": span.until}


async def _by_agent(caller: Caller) -> dict[str, list[UsageRow]]:
    """Return the usage of each agent by day."""
    by_agent: defaultdict[str, list[UsageRow]] = defaultdict(list)
    for row in (await caller.store.statistics.usage("agent", "day", **_only(caller))).rows:
        if row.group[0]:
            by_agent[row.group[0]].append(row)
    return by_agent


def _agent_row(name: str, agent: Agent | None, definition: Json, by_agent: dict[str, list[UsageRow]]) -> AgentRow:
    days = by_agent.get(name, [])
    last = max((row.group[1] or "" for row in days if row.runs), default="")
    last_day = datetime.fromisoformat(last).replace(tzinfo=UTC) if last else None
    tools: Any = definition.get("tools")
    return AgentRow(
        name=name,
        agent=agent,
        model=str(definition.get("model") or ""),
        tools=len(cast("list[Any]", tools)) if isinstance(tools, list) else 0,
        usage=sum_usage(days),
        last_day=last_day,
    )


async def _version_rows(
    caller: Caller, name: str, versions: Sequence[AgentVersion]
) -> tuple[list[VersionRow], UsageRow]:
    """Return the versions with their usage, and the usage of runs without a version, such as deleted runs."""
    statistics = caller.store.statistics
    only: RunFilter = {**_only(caller), "agent": name}
    usage: dict[int, UsageRow] = {}
    unversioned = UsageRow()
    for row in (await statistics.usage("version", **only)).rows:
        number = (row.group[0] or "").removeprefix(f"{name} v")
        if number.isdecimal():
            usage[int(number)] = row
        else:
            unversioned = row
    times: defaultdict[int | None, list[float]] = defaultdict(list)
    for run in await statistics.runs(limit=_TIMED, **only):
        if run.completed_at is not None:
            times[run.version].append((run.completed_at - run.started_at).total_seconds() * 1000)
    rows = [
        VersionRow(
            version,
            usage.get(version.version, UsageRow()),
            median(times[version.version]) if version.version in times else None,
        )
        for version in versions
    ]
    return rows, unversioned


def _comparable(evals: Sequence[Json], version: int, since: int | None) -> list[Json]:
    """Return the latest evaluations of two versions with the same dataset, the earlier version first, or none."""
    of_version = {one["dataset"]: one for one in reversed(evals) if one["version"] == version}
    of_since = {one["dataset"]: one for one in reversed(evals) if one["version"] == since}
    return next(([of_since[name], one] for name, one in of_version.items() if name in of_since), list[Json]())
