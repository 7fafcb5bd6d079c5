"""Alerts on the cost, the errors and the latency of runs."""

from typing import Annotated

from fastapi import Path
from pydantic import Field

from lockstitch.model import Alert, Json
from lockstitch.server.api import responses
from lockstitch.server.api.schemas import Body, ExactJSON, Name, TextParam
from lockstitch.server.auth import Caller, Reader, Writer
from lockstitch.server.routing import LazyRouter
from lockstitch.store.alerts import LONGEST_WINDOW, Alerts, Measure, webhook_host

router = LazyRouter(prefix="/api/alerts", tags=["alerts"], default_response_class=ExactJSON)

AlertName = Annotated[TextParam, Path(description="Name of the alert.", min_length=1, max_length=255)]


class NewAlert(Body):
    """A limit for the runs of a window. The alert fires while the measure is above the limit."""

    measure: Measure
    above: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    window_minutes: Annotated[int, Field(ge=1, le=LONGEST_WINDOW)] = 60
    agent: Name | None = None
    minimum_runs: Annotated[int, Field(ge=1, le=2**53)] = 1
    webhook: Annotated[TextParam, Field(max_length=2000)] | None = None


@router.get("", response_model=list[responses.Alert])
async def alerts(caller: Reader) -> ExactJSON:
    """List the alerts of the project with their last checks, those that fire first.

    Without the scope `admin`, webhooks have only their host.
    """
    return ExactJSON([_shown(caller, alert) for alert in await Alerts(caller.store).list()])


@router.put("/{name:path}", response_model=responses.Alert)
async def save(caller: Writer, name: AlertName, body: NewAlert) -> ExactJSON:
    """Create or replace an alert. It is checked again as a new one. A webhook needs the scope `admin`."""
    if body.webhook:
        # The server or a worker calls it, perhaps within a private network.
        caller.require("admin")
    alert = await Alerts(caller.store).set(name, **body.model_dump())
    await caller.store.audits.record(caller.actor, "set alert", name)
    return ExactJSON(_shown(caller, alert))


@router.delete("/{name:path}", response_model=responses.Deleted)
async def delete(caller: Writer, name: AlertName) -> ExactJSON:
    """Delete an alert."""
    await Alerts(caller.store).remove(name)
    await caller.store.audits.record(caller.actor, "delete alert", name)
    return ExactJSON({"deleted": 1})


def _shown(caller: Caller, alert: Alert) -> Json:
    shown = alert.as_json()
    if alert.webhook is not None and not caller.may("admin"):
        shown["webhook"] = webhook_host(alert.webhook)
    return shown
