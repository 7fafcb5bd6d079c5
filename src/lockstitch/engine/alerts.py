"""`AlertChecker`: checks the alerts of a store and reports their changes to webhooks.

Workers and servers have one each. An alert that another process has just checked is skipped. Two processes that check
at the same time write the same result, so a webhook can get a change twice. Its id identifies the change.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Final
from uuid import NAMESPACE_URL, uuid5

from lockstitch.engine.concurrency import run_blocking
from lockstitch.engine.webhooks import FIRST_PAUSE, LONGEST_PAUSE, post_json
from lockstitch.errors import LockstitchError
from lockstitch.model import AlertCheck, Json, format_time
from lockstitch.store import Store
from lockstitch.store.alerts import Alerts, AlertState, measure_runs

INTERVAL: Final = timedelta(seconds=60)
"""Time between two checks of an alert."""

_log = logging.getLogger("lockstitch")


@asynccontextmanager
async def alerts_checked(store: Store) -> AsyncGenerator[None]:
    """Check the alerts of all projects while the context is open."""
    checker = AlertChecker(store)

    async def check() -> None:
        while True:
            try:
                await checker.check_due()
            except Exception as exc:  # the server continues without the check
                _log.warning("Alerts were not checked: %s", exc)
            await asyncio.sleep(INTERVAL.total_seconds())

    task = asyncio.create_task(check(), name="lockstitch-alerts")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class AlertChecker:
    """Checks the alerts of one project, or of all projects, about once a minute.

    Args:
        store: The store.
        all_projects: Check the alerts of all projects.
    """

    def __init__(self, store: Store, *, all_projects: bool = True) -> None:
        self._store = store
        self._all_projects = all_projects
        self._next: datetime | None = None

    async def check_due(self) -> None:
        """Check the alerts that are due and deliver their changes, unless the last call is less than a minute ago."""
        now = self._store.clock.now()
        if self._next is not None and self._next - INTERVAL <= now < self._next:
            return
        self._next = now + INTERVAL
        for state in await Alerts(self._store).list(all_projects=self._all_projects):
            check = state.check
            try:
                if check is None or not check.checked_at <= now < check.checked_at + INTERVAL:
                    check = await self._check(state)
                if not check.reported and (check.due_at is None or check.due_at <= now):
                    await self._report(state, check)
            except LockstitchError as exc:
                _log.warning("Alert %s was not checked: %s", state.alert.name, exc)

    async def _check(self, state: AlertState) -> AlertCheck:
        alert, before, now = state.alert, state.check, self._store.clock.now()
        value, runs = await measure_runs(self._store, alert)
        firing = value is not None and runs >= alert.minimum_runs and value > alert.above
        changed = firing if before is None else firing != before.firing
        check = AlertCheck(
            project=alert.project,
            name=alert.name,
            firing=firing,
            value=value,
            runs=runs,
            checked_at=now,
            changed_at=before.changed_at if before is not None and not changed else now,
            reported=alert.webhook is None or (not changed and (before is None or before.reported)),
            tries=before.tries if before is not None and not changed else 0,
            due_at=before.due_at if before is not None and not changed else None,
        )
        await self._store.table(AlertCheck).put(check)
        if changed:
            _log.warning("Alert %s of project %s is %s", alert.name, alert.project, "firing" if firing else "over")
        return check

    async def _report(self, state: AlertState, check: AlertCheck) -> None:
        webhook = state.alert.webhook
        assert webhook is not None, "A check is unreported only if its alert has a webhook."
        pause = min(FIRST_PAUSE * 2**check.tries, LONGEST_PAUSE)
        later = self._store.clock.now() + timedelta(seconds=pause)
        # Written before the call, so that a receiver that ends this process is not called again at once.
        await self._store.table(AlertCheck).put(check.changed(tries=check.tries + 1, due_at=later))
        try:
            await run_blocking(lambda: post_json(webhook, alert_event(state, check)))
        except Exception as exc:  # server of the application
            _log.warning("Webhook of alert %s failed, next attempt in %.0f s: %s", check.name, pause, exc)
            return
        await self._store.table(AlertCheck).put(check.changed(reported=True, tries=0, due_at=None))


def alert_event(state: AlertState, check: AlertCheck) -> Json:
    """Return the body that reports a change of an alert."""
    alert = state.alert
    changed_at = format_time(check.changed_at)
    change = f"{alert.project}/{alert.name}/{changed_at}/{check.firing}"
    return {
        "id": str(uuid5(NAMESPACE_URL, f"lockstitch:alert:{change}")),
        "event": "alert",
        "at": changed_at,
        "project": alert.project,
        "name": alert.name,
        "firing": check.firing,
        "measure": alert.measure,
        "value": check.value,
        "above": alert.above,
        "window_minutes": alert.window_minutes,
        "agent": alert.agent,
        "runs": check.runs,
    }
