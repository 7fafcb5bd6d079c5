"""The pages, filters, orders and searches of the benchmark `opening`, as paths by name."""

from typing import Final
from urllib.parse import urlencode

from benchmarks.varied import Varied

Paths = dict[str, str]

_COLUMNS: Final = "agent,user,wait,input,output,model,tags,score,steps,latency,tokens,cost,at"
_STATUSES: Final = ("person", "running", "waiting", "pending", "failed", "completed", "cancelled")
_PANELS: Final = ("cost", "tokens", "latency", "failed", "tools", "shares", "models", "dearest")
_GROUPS: Final = ("model", "agent", "version", "user", "tag", "project")

_FILTERS: Final[dict[str, dict[str, str]]] = {
    "agent of most threads": {"agent": "support"},
    "agent of few threads": {"agent": "archivist"},
    "agent of no thread": {"agent": "missing"},
    **{f"kind {kind}": {"kind": kind} for kind in ("chat", "goal", "task", "trace", "replay")},
    **{f"last activity {span}": {"since": span} for span in ("1h", "24h", "7d", "30d")},
    "user": {"user_id": "user-1"},
    "user of few threads": {"user_id": "user-rare"},
    "model of most threads": {"model": "claude-sonnet-4-5"},
    "model of few threads": {"model": "legacy-model"},
    "tag of most threads": {"tag": "production"},
    "tag of few threads": {"tag": "incident"},
    "two tags": {"tag": "production,incident"},
    "tag of no thread": {"tag": "missing"},
    "metadata of most threads": {"metadata": "tenant=acme"},
    "metadata of few threads": {"metadata": "tenant=umbrella"},
    "metadata of one thread": {"metadata": "order=77"},
    "lowest cost": {"min_cost": "0.001"},
    "highest cost": {"min_cost": "3"},
    "any error": {"error": "true"},
    "text of most errors": {"error": "timeout"},
    "text of few errors": {"error": "zebra"},
    "text of no error": {"error": "missing"},
    "version": {"version": "3"},
    "version of no thread": {"version": "77"},
    "agent, status, tag and version": {"agent": "billing", "status": "failed", "tag": "beta", "version": "2"},
    "model, cost and error": {"model": "gpt-5", "min_cost": "1", "error": "ratelimited"},
    "user, kind and metadata": {"user_id": "user-1", "kind": "goal", "metadata": "tenant=acme"},
}
"""Filters of the list, also of the API."""


def of_list(varied: Varied) -> Paths:
    """Return the paths of the list of threads."""
    thread = varied.typical.thread.id
    run = varied.typical.runs[0].id
    filters = {"no filter": {"status": ""}, **{f"status {name}": {"status": name} for name in _STATUSES}, **_FILTERS}
    queries: dict[str, dict[str, str]] = {f"list, {name}": values for name, values in filters.items()}
    for name in ("no filter", "agent of few threads", "tag of most threads", "status waiting", "any error"):
        queries[f"list, {name}, page in the middle"] = {**filters[name], "after": str(thread)}
    for order in ("status", "latency", "tokens", "cost", "model"):
        queries[f"list by {order}"] = {"sort": order}
        queries[f"list by {order}, page in the middle"] = {"sort": order, "after": str(thread)}
        for name in ("agent of few threads", "tag of few threads", "tag of most threads", "any error", "status failed"):
            queries[f"list by {order}, {name}"] = {**filters[name], "sort": order, "ascending": "true"}
    queries["list by time, ascending"] = {"ascending": "true"}
    queries["list, all columns"] = {"columns": _COLUMNS}
    searches = {
        "word of few stitches": "zebra",
        "word of many stitches": "the",
        "two words": "the question",
        "word of no stitch": "unheardof",
        "key": "order-77",
        "start of an id of a thread": str(thread)[:13],
        "id of a run": str(run),
        "start of an id of no record": "01234567",
    }
    queries |= {f"search, {name}": {"q": text} for name, text in searches.items()}
    queries["search, word of many stitches by cost"] = {"q": "the", "sort": "cost"}
    queries["search, word of many stitches, agent of few threads"] = {"q": "the", "agent": "archivist"}
    queries["search, word of few stitches, all columns"] = {"q": "zebra", "columns": _COLUMNS}
    paths = {name: f"/?{urlencode(values)}" for name, values in queries.items()}
    paths["counts of the tabs"] = "/counts"
    paths["row"] = f"/threads/{thread}/row"
    return paths


def of_pages(varied: Varied) -> Paths:
    """Return the paths of all other pages."""
    thread, run, other = varied.typical.thread, varied.typical.runs[0].id, varied.typical.runs[1].id
    paths = {
        "thread": f"/threads/{thread.id}",
        "tree of a thread": f"/threads/{thread.id}/tree",
        "context of a thread": f"/threads/{thread.id}/context",
        "deletion of a thread": f"/threads/{thread.id}/delete",
        "run": f"/run/{run}",
        "rows of a run": f"/run/{run}/rows",
        "comparison of two runs": f"/run/{run}/difference/{other}",
        "agents": "/agents",
        "agent": "/agents/support",
        "workers": "/workers",
        "annotation": "/annotate",
        "evals": "/evals",
        "datasets": "/evals/datasets",
        "schedules": "/schedules",
        "SQL": "/sql",
        "threads of a day": f"/stats/threads/{thread.recent_at:%Y-%m-%d}",
    }
    for span in ("24h", "7d", "30d"):
        paths[f"statistics, {span}"] = f"/stats?range={span}"
        for panel in _PANELS:
            paths[f"statistics, {span}, {panel}"] = f"/stats/panel/{panel}?range={span}"
    for group in _GROUPS:
        paths[f"statistics by {group}"] = f"/stats/panel/cost?range=30d&by={group}"
    return paths


def of_api(varied: Varied) -> Paths:
    """Return the paths of lists, searches and statistics of the API."""
    paths = {f"API, threads, {name}": f"/api/threads?{urlencode(values)}" for name, values in _api_filters().items()}
    paths["API, search"] = "/api/search?q=the"
    paths["API, errors"] = "/api/errors"
    paths["API, runs to annotate"] = "/api/annotate"
    paths["API, statistics"] = "/api/stats"
    for group in ("day", "status", "model", "user", "tag", "version", "agent"):
        paths[f"API, usage by {group}"] = f"/api/stats?by={group}"
    return paths


def _api_filters() -> dict[str, dict[str, str]]:
    return {name: values for name, values in _FILTERS.items() if "since" not in values and "," not in str(values)}
