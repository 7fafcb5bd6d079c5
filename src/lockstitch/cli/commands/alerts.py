"""`alert`: set, list and remove limits for the cost, the errors and the latency of runs."""

from collections.abc import Callable, Coroutine
from typing import Annotated, Any, TypeVar

import typer

from lockstitch.cli.actions import actions_of
from lockstitch.cli.options import examples
from lockstitch.cli.render.output import TableColumn, one_line, time
from lockstitch.cli.session import session_of
from lockstitch.errors import Refused
from lockstitch.model import Alert
from lockstitch.store.alerts import Alerts, Measure, condition_text, measure_text

T = TypeVar("T")

app = typer.Typer()
alert = typer.Typer(
    name="alert", help="Set, list and remove limits for cost, errors and latency.", rich_markup_mode=None
)
app.add_typer(alert)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the alert.", show_default=False)]


def _call(context: typer.Context, work: Callable[[Alerts], Coroutine[Any, Any, T]], *, create: bool = False) -> T:
    with session_of(context).open(create=create) as store:
        return store.portal.call(work(actions_of(store).alerts()))


@alert.command(
    "set",
    epilog=examples(
        "lockstitch alert set budget --cost 20 --window 1440 --webhook https://hooks.example.com/agents",
        "lockstitch alert set errors --error-rate 0.1 --window 60 --minimum-runs 10",
        "lockstitch alert set slow --latency 30 --agent helper",
    ),
)
def set_(
    context: typer.Context,
    name: Name,
    cost: Annotated[float | None, typer.Option(min=0, metavar="DOLLARS", help="Fire above this cost.")] = None,
    error_rate: Annotated[
        float | None, typer.Option(min=0, max=1, metavar="SHARE", help="Fire above this share of failed runs.")
    ] = None,
    latency: Annotated[
        float | None,
        typer.Option(min=0, metavar="SECONDS", help="Fire if more than 5 % of the runs take longer than this."),
    ] = None,
    window: Annotated[int, typer.Option(min=1, max=43_200, metavar="MINUTES", help="Length of the window.")] = 60,
    agent: Annotated[str | None, typer.Option(metavar="A", help="Only runs of this agent.")] = None,
    minimum_runs: Annotated[int, typer.Option(min=1, metavar="N", help="Do not fire with fewer runs.")] = 1,
    webhook: Annotated[str | None, typer.Option(metavar="URL", help="Receives each change by POST.")] = None,
) -> None:
    """Create an alert, or replace the alert with this name.

    Workers and servers check alerts about once a minute, for the runs that started in the window.
    """
    limits: list[tuple[Measure, float]] = []
    if cost is not None:
        limits.append(("cost", cost))
    if error_rate is not None:
        limits.append(("error_rate", error_rate))
    if latency is not None:
        limits.append(("latency", latency))
    if len(limits) != 1:
        raise Refused("Set one of --cost, --error-rate and --latency.")
    ((measure, above),) = limits
    options: dict[str, Any] = {"window_minutes": window, "agent": agent, "minimum_runs": minimum_runs}
    result = _call(context, lambda alerts: alerts.set(name, measure, above, **options, webhook=webhook), create=True)
    session = session_of(context)
    if session.json_output:
        session.out.json(result.as_json())
        return
    session.out.line(f"Alert {one_line(name)} fires if {one_line(condition_text(result))}.")


@alert.command("list", epilog=examples("lockstitch alert list", "lockstitch alert list --json | jq '.[].firing'"))
def list_(context: typer.Context) -> None:
    """List the alerts of the project with their last checks. Those that fire come first."""
    session = session_of(context)
    alerts = _call(context, lambda alerts: alerts.list())
    if session.json_output:
        session.out.json([one.as_json() for one in alerts])
        return
    if not alerts:
        session.out.note("The project has no alerts.")
        return
    columns = [TableColumn("ALERT"), TableColumn("STATE"), TableColumn("NOW", right=True)]
    columns += [TableColumn("FIRES IF", flexible=True), TableColumn("SINCE")]
    session.out.table(columns, [_row(one) for one in alerts])


@alert.command(epilog=examples("lockstitch alert remove budget"))
def remove(context: typer.Context, name: Name) -> None:
    """Delete an alert."""
    _call(context, lambda alerts: alerts.remove(name))
    session_of(context).out.line(f"Alert {one_line(name)} removed.")


def _row(alert: Alert) -> list[Any]:
    status = "not checked" if alert.checked_at is None else "firing" if alert.firing else "ok"
    value = measure_text(alert.measure, alert.value) if alert.checked_at is not None else ""
    since = time(alert.changed_at, seconds=False) if alert.changed_at is not None else ""
    return [one_line(alert.name), status, value, one_line(condition_text(alert)), since]
