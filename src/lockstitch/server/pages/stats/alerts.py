"""The alerts on the stats page: their states, and the forms that set and remove them."""

from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Form, Request
from starlette.responses import Response

from lockstitch.server.auth import Caller, FormWriter
from lockstitch.server.pages.common.render import is_htmx_request, redirect_to, render_page
from lockstitch.server.pages.navbar import page_router
from lockstitch.store.alerts import Alerts, AlertState, Measure

router = page_router()

_UNIT = {"cost": 1.0, "error_rate": 0.01, "latency": 1.0}
"""The unit of the limit in the form. Error rates are in percent."""


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
    """Create or replace an alert."""
    await Alerts(caller.store).set(
        name.strip(),
        measure,
        above * _UNIT[measure],
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


async def alerts_of(caller: Caller) -> list[tuple[AlertState, str]]:
    """Return the alerts of the project, each with the host of its webhook."""
    states = await Alerts(caller.store).list()
    return [(state, urlsplit(state.alert.webhook or "").hostname or "") for state in states]


async def _answer(request: Request, caller: Caller, text: str) -> Response:
    if not is_htmx_request(request):
        return redirect_to(request, "/stats", text)
    return render_page(request, caller, "stats/alerts.html", alerts=await alerts_of(caller))
