"""`AlertChecker`: checks the alerts of a store and reports their changes to webhooks.

Workers and servers have one each, and each check and each delivery is written by one of them. A webhook can get a
change twice, if a process is killed after the call. The id of the event identifies the change.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import NAMESPACE_URL, uuid5

from lockstitch.engine.concurrency import run_blocking
from lockstitch.engine.webhooks import FIRST_PAUSE, LONGEST_PAUSE, post_json
from lockstitch.errors import Conflict, LockstitchError
from lockstitch.model import Alert, Json, format_time
from lockstitch.store import Store, Transaction
from lockstitch.store.alerts import Alerts, measure_runs

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
        for alert in await Alerts(self._store).list(all_projects=self._all_projects):
            try:
                if alert.checked_at is None or not alert.checked_at <= now < alert.checked_at + INTERVAL:
                    alert = await self._check(alert)
                if not alert.reported and (alert.due_at is None or alert.due_at <= now):
                    await self._report(alert)
            except Conflict:
                # Another process has checked or reported the alert, or a person has changed it.
                continue
            except LockstitchError as exc:
                _log.warning("Alert %s was not checked: %s", alert.name, exc)

    async def _check(self, alert: Alert) -> Alert:
        """Measure the runs, and store the result. Return the checked alert."""
        now = self._store.clock.now()
        value, runs = await measure_runs(self._store, alert)
        firing = value is not None and runs >= alert.minimum_runs and value > alert.above
        fields: dict[str, Any] = {"firing": firing, "value": value, "runs": runs, "checked_at": now}
        if firing != alert.firing:
            fields |= {"changed_at": now, "reported": alert.webhook is None, "tries": 0, "due_at": None}
        checked = await self._write(alert, fields, "checked_at")
        if firing != alert.firing:
            state = "is firing" if firing else "has stopped firing"
            _log.warning("Alert %s of project %s %s", alert.name, alert.project, state)
        return checked

    async def _report(self, alert: Alert) -> None:
        """Deliver the last change to the webhook, unless another process does."""
        webhook = alert.webhook
        assert webhook is not None, "A change is unreported only if its alert has a webhook."
        pause = min(FIRST_PAUSE * 2**alert.tries, LONGEST_PAUSE)
        later = self._store.clock.now() + timedelta(seconds=pause)
        # Written before the call, so that a receiver that ends this process is not called again at once.
        alert = await self._write(alert, {"tries": alert.tries + 1, "due_at": later}, "changed_at", "tries")
        try:
            await run_blocking(lambda: post_json(webhook, alert_event(alert)))
        except Exception as exc:  # server of the application
            _log.warning("Webhook of alert %s failed, next attempt in %.0f s: %s", alert.name, pause, exc)
            return
        await self._write(alert, {"reported": True, "tries": 0, "due_at": None}, "changed_at")

    async def _write(self, alert: Alert, fields: dict[str, Any], *seen: str) -> Alert:
        """Change fields of an alert. Raises `Conflict` if it was set again, or if a field in `seen` has changed."""
        transaction = Transaction()
        transaction.change(alert, fields, seen=("updated_at", *seen))
        await self._store.commit(transaction)
        return alert.changed(**fields)


def alert_event(alert: Alert) -> Json:
    """Return the body that reports the last change of an alert."""
    assert alert.changed_at is not None, "An alert with a change to report has its time."
    changed_at = format_time(alert.changed_at)
    return {
        "id": str(uuid5(NAMESPACE_URL, f"lockstitch:alert:{alert.project}/{alert.name}/{changed_at}")),
        "event": "alert",
        "at": changed_at,
        "project": alert.project,
        "name": alert.name,
        "firing": alert.firing,
        "measure": alert.measure,
        "value": alert.value,
        "above": alert.above,
        "window_minutes": alert.window_minutes,
        "agent": alert.agent,
        "runs": alert.runs,
    }
