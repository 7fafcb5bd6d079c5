"""The alerts on the stats page: their states, and the forms that set and remove them."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Form, Request
from starlette.responses import Response

from lockstitch.model import Alert
from lockstitch.server.auth import Caller, FormWriter
from lockstitch.server.pages.common.render import is_htmx_request, redirect_to, render_page
from lockstitch.server.pages.navbar import page_router
from lockstitch.store.alerts import Alerts, Measure, condition_text, measure_text, webhook_host

router = page_router()


@router.post("/stats/alerts")
async def set_alert(
    request: Request,
    caller: FormWriter,
    name: Annotated[str, Form(max_length=255)],
    measure: Annotated[Measure, Form()],
    above: Annotated[float, Form()],
    window_minutes: Annotated[int, Form()] = 60,
    agent: Annotated[str, Form(max_length=255)] = "",
    minimum_runs: Annotated[int, Form()] = 1,
    webhook: Annotated[str, Form(max_length=2000)] = "",
) -> Response:
    """Create or replace an alert. A webhook needs the scope `admin`."""
    if webhook.strip():
        caller.require("admin")
    await Alerts(caller.store).set(
        name.strip(),
        measure,
        # The form has error rates in percent.
        above / 100 if measure == "error_rate" else above,
        window_minutes=window_minutes,
        agent=agent.strip() or None,
        minimum_runs=minimum_runs,
        webhook=webhook.strip() or None,
    )
    await caller.store.audits.record(caller.actor, "set alert", name.strip())
    return await _answer(request, caller, "Alert saved")


@router.post("/stats/alerts/remove")
async def remove_alert(request: Request, caller: FormWriter, name: Annotated[str, Form(max_length=255)]) -> Response:
    """Delete an alert."""
    await Alerts(caller.store).remove(name)
    await caller.store.audits.record(caller.actor, "delete alert", name)
    return await _answer(request, caller, "Alert removed")


@dataclass(frozen=True, slots=True)
class AlertRow:
    """An alert as the page shows it."""

    alert: Alert
    condition: str
    value: str
    """The measured value with its unit. Empty without a check."""
    host: str
    """The host of the webhook."""


async def alert_rows(caller: Caller) -> list[AlertRow]:
    """Return the alerts of the project, those that fire first."""
    return [
        AlertRow(
            alert,
            condition_text(alert),
            measure_text(alert.measure, alert.value) if alert.checked_at is not None else "",
            webhook_host(alert.webhook),
        )
        for alert in await Alerts(caller.store).list()
    ]


async def _answer(request: Request, caller: Caller, text: str) -> Response:
    if not is_htmx_request(request):
        return redirect_to(request, "/stats", text)
    return render_page(request, caller, "stats/alerts.html", alerts=await alert_rows(caller))
