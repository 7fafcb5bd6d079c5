"""Alerts: limits for the cost, the errors and the latency of the runs of a project."""

import math
from datetime import timedelta
from typing import Final, Literal
from urllib.parse import urlsplit

from lockstitch.backend import Where
from lockstitch.errors import NotFound, Refused
from lockstitch.model import Alert, codec
from lockstitch.store.reports.statistics import RunFilter
from lockstitch.store.store import Store

Measure = Literal["cost", "error_rate", "latency"]

MEASURES: Final[tuple[Measure, ...]] = ("cost", "error_rate", "latency")

MOST: Final = 100
"""Maximum number of alerts of a project."""

LONGEST_WINDOW: Final = 43_200
"""Maximum number of minutes of a window: 30 days."""

_PERCENT: Final = 95
_ENDED: Final = ("completed", "failed", "cancelled")


def condition_text(alert: Alert) -> str:
    """Return the condition of an alert as text."""
    what = {"cost": "the cost", "error_rate": "the error rate", "latency": "the latency (95 %)"}[alert.measure]
    of_agent = f" of {alert.agent}" if alert.agent else ""
    minimum = f", with at least {alert.minimum_runs} runs" if alert.minimum_runs > 1 else ""
    window, limit = window_text(alert.window_minutes), measure_text(alert.measure, alert.above)
    return f"{what}{of_agent} in {window} is above {limit}{minimum}"


def webhook_host(url: str | None) -> str:
    """Return the host of a webhook, or an empty text if the URL is not valid.

    Readers see the host only, because the path of a webhook is often a secret.
    """
    try:
        return urlsplit(url or "").hostname or ""
    except ValueError:
        return ""


def window_text(minutes: int) -> str:
    """Return the length of a window as text."""
    for unit, size in (("days", 1440), ("hours", 60)):
        if minutes % size == 0 and minutes > size:
            return f"{minutes // size} {unit}"
    return "1 minute" if minutes == 1 else f"{minutes} minutes"


def measure_text(measure: str, value: float | None) -> str:
    """Return the value of a measure with its unit."""
    if value is None:
        return "none"
    match measure:
        case "cost":
            return f"${_number(value, 2)}"
        case "error_rate":
            return f"{_number(100 * value, 1)} %"
        case _:
            return f"{_number(value, 1)} s"


def _number(value: float, places: int) -> str:
    """Return a number with these decimal places. A number below 1 has up to three significant digits."""
    text = f"{value:,.{places}f}"
    if not 0 < value < 1:
        return text
    exact = f"{value:.{min(2 - math.floor(math.log10(value)), 12)}f}".rstrip("0")
    return max(text, exact, key=len)


class Alerts:
    """The alerts of the project of a store.

    Args:
        store: The store.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    async def list(self, *, all_projects: bool = False) -> list[Alert]:
        """Return the alerts with their last checks, those that fire first, then by project and name.

        Args:
            all_projects: Return the alerts of all projects.
        """
        where = [] if all_projects else [Where("project", "=", self._store.project)]
        alerts = await self._store.table(Alert).find(*where, order=Alert.primary_key)
        return sorted(alerts, key=lambda alert: not alert.firing)

    async def set(
        self,
        name: str,
        measure: Measure,
        above: float,
        *,
        window_minutes: int = 60,
        agent: str | None = None,
        minimum_runs: int = 1,
        webhook: str | None = None,
    ) -> Alert:
        """Create an alert, or replace the alert with this name. It is checked again as a new one.

        Args:
            name: Name of the alert.
            measure: `cost` in dollars, `error_rate` from 0 to 1, or `latency` in seconds.
            above: The alert fires while the measure is above this value.
            window_minutes: Length of the window in minutes, at most 30 days.
            agent: Only runs of this agent. None: of all agents.
            minimum_runs: The alert does not fire with fewer runs in the window.
            webhook: URL that receives each change by POST.

        Raises:
            Refused: If a value is not valid, or if the project has 100 other alerts.
        """
        _check(name, measure, above, window_minutes, agent, minimum_runs, webhook)
        store, now = self._store, self._store.clock.now()
        stored = await store.table(Alert).get_or_none(store.project, name)
        if stored is None and len(await store.table(Alert).list(project=store.project, limit=MOST)) == MOST:
            raise Refused(f"Project {store.project} has {MOST} alerts. Remove an alert first.")
        alert = Alert(
            project=store.project,
            name=name,
            measure=measure,
            above=above,
            window_minutes=window_minutes,
            agent=agent or None,
            minimum_runs=minimum_runs,
            webhook=webhook or None,
            created_at=stored.created_at if stored is not None else now,
            updated_at=now,
        )
        await store.table(Alert).put(alert)
        return alert

    async def remove(self, name: str) -> None:
        """Delete an alert.

        Args:
            name: Name of the alert.

        Raises:
            NotFound: If the project has no alert with this name.
        """
        store = self._store
        if not await store.table(Alert).delete(project=store.project, name=codec.check_text(name, "The name")):
            raise NotFound(f"Alert {name} not found.")


def _check(
    name: str,
    measure: str,
    above: float,
    window_minutes: int,
    agent: str | None,
    minimum_runs: int,
    webhook: str | None,
) -> None:
    if measure not in MEASURES:
        raise Refused(f"Measure {measure!r} is not valid. Use one of: {', '.join(MEASURES)}.")
    if not math.isfinite(above) or above < 0 or (measure == "error_rate" and above >= 1):
        limits = "at least 0 and below 1" if measure == "error_rate" else "at least 0"
        raise Refused(f"The limit of an alert on {measure} must be {limits}, not {above}.")
    if not 1 <= window_minutes <= LONGEST_WINDOW:
        raise Refused(f"The window of an alert must be 1 to {LONGEST_WINDOW} minutes, not {window_minutes}.")
    if minimum_runs < 1:
        raise Refused(f"The minimum number of runs must be at least 1, not {minimum_runs}.")
    if not name or len(name) > 255:
        raise Refused("The name of an alert must have 1 to 255 characters.")
    if webhook and not (webhook.startswith(("http://", "https://")) and webhook_host(webhook)):
        raise Refused(f"Webhook {webhook!r} is not an http(s) URL.")
    for value, subject in ((name, "The name"), (agent or "", "The agent"), (webhook or "", "The webhook")):
        codec.check_text(value, subject)


async def measure_runs(store: Store, alert: Alert) -> tuple[float | None, int]:
    """Return the measure of an alert now, and the number of runs in its window.

    The value is None if the window has no run that can be measured.
    """
    statistics = store.in_project(alert.project).statistics
    only: RunFilter = {
        "since": store.clock.now() - timedelta(minutes=alert.window_minutes),
        "agent": alert.agent,
    }
    table = await statistics.usage("status", **only)
    if alert.measure == "cost":
        return table.total.cost or 0.0, table.total.runs
    # The total also has deleted runs.
    rows = [row for row in table.rows if row.group[0] in _ENDED]
    ended = sum(row.runs for row in rows)
    if not ended:
        return None, 0
    if alert.measure == "error_rate":
        return sum(row.failed_runs for row in rows) / ended, ended
    # By nearest rank, counted from the slowest run.
    place = ended - math.ceil(ended * _PERCENT / 100)
    slowest = await statistics.runs(order="slowest", limit=place + 1, **only)
    if not slowest:
        return None, ended
    run = slowest[-1]
    assert run.completed_at is not None, "The slowest runs have ended."
    return (run.completed_at - run.started_at).total_seconds(), ended
