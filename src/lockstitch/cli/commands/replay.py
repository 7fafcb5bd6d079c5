"""`replay`: run a recorded thread or run again, with tool results from the record, and compare both."""

import time
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

import typer
from rich.text import Text

from lockstitch.cli.agent_choice import app_or_stored
from lockstitch.cli.exit_codes import ExitCode
from lockstitch.cli.options import examples
from lockstitch.cli.render.output import TableColumn, one_line
from lockstitch.cli.runs import Interrupted, open_for_app, terminable
from lockstitch.cli.session import Session, session_of
from lockstitch.errors import Refused
from lockstitch.model import Json
from lockstitch.model.format import duration
from lockstitch.sync import SyncStore

if TYPE_CHECKING:
    from lockstitch.client.remote_store import RemoteStore

app = typer.Typer()

_PAUSE: Final = 0.2
_FIGURES: Final = (
    *(("model calls", "steps"), ("input tokens", "input_tokens"), ("output tokens", "output_tokens")),
    *(("cost in USD", "total_cost"), ("model time", "model_ms")),
)


@app.command(
    epilog=examples(
        "lockstitch replay customer-42 --model openai:gpt-5",
        "lockstitch replay 018f3c2a --agent helper@3 --app shop:app",
        "lockstitch replay customer-42 --at 17 --live safe --app shop:app",
    )
)
def replay(
    context: typer.Context,
    source: Annotated[
        str, typer.Argument(metavar="THREAD|RUN", help="A recorded thread by key or id, or a run by id.")
    ],
    model: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Another model. Default: the model of the agent.")
    ] = None,
    agent: Annotated[
        str | None, typer.Option(metavar="NAME[@N]", help="Another agent, or a stored version of the agent.")
    ] = None,
    instructions: Annotated[str | None, typer.Option(metavar="TEXT", help="Other instructions.")] = None,
    at: Annotated[
        int | None, typer.Option(metavar="POS", help="Take the responses up to this position from the record.")
    ] = None,
    live: Annotated[
        str | None, typer.Option(metavar="safe", help="Run safe tools for calls that the record does not have.")
    ] = None,
    key: Annotated[str | None, typer.Option(metavar="K", help="The replay's key. Repeat it to continue.")] = None,
) -> None:
    """Run a recorded thread or run again, and compare both.

    Calls of tools get the recorded results, and no tool has an effect. A call that the record does not have stops the
    replay. Without --app, the agent runs with its stored definition. Exit code 1: the replay stopped or failed.
    """
    if live not in (None, "safe"):
        raise Refused(f"--live {live!r} is unknown. Use --live safe.")
    session = session_of(context)
    name, version = _named(agent)
    options: dict[str, Any] = {"model": model, "instructions": instructions, "at": at, "key": key}
    options |= {"version": version, "live_safe": live is not None}
    report = _remote(session, source, name, options) if session.is_remote else _local(session, source, name, options)
    if session.json_output:
        session.out.json(report)
    else:
        _show(session, report)
    if report["status"] != "completed":
        raise typer.Exit(ExitCode.WAITING if report["status"] == "waiting" else ExitCode.FAILED)


def _named(agent: str | None) -> tuple[str | None, int | None]:
    """Return the name and the version of `name@version`."""
    if agent is None or "@" not in agent:
        return agent, None
    name, _, number = agent.rpartition("@")
    if not number.isdecimal() or not int(number):
        raise Refused(f"{agent!r} is not an agent with a version. Use name@3.")
    return name, int(number)


def _local(session: Session, source: str, name: str | None, options: dict[str, Any]) -> Json:
    from lockstitch.sync import replay as run_again

    code = app_or_stored(session)
    with open_for_app(session, code) as store, terminable():
        recorded = store.portal.call(_recorded(store, source))
        # Without an app, the agent has its stored definition. By default, that of the record.
        chosen = code.agent(name or recorded.agent) if session.has_app or name is not None else None
        try:
            return run_again(recorded, chosen, store=store, **options).as_json()
        except KeyboardInterrupt as exc:
            raise Interrupted("Interrupted. A worker continues the replay.") from exc


async def _recorded(store: SyncStore, source: str) -> Any:
    from lockstitch.store.replays import recorded_source

    return await recorded_source(store.async_store, source)


def _remote(session: Session, source: str, name: str | None, options: dict[str, Any]) -> Json:
    """Let the server run the replay, and wait for its end."""
    with session.open() as store:
        client = cast("RemoteStore", store.async_store).client
        head = store.portal.call(client.start_replay(source, agent=name, **options))
        while True:
            report = store.portal.call(client.replay_report(head))
            if report["status"] not in ("pending", "running"):
                return report
            time.sleep(_PAUSE)


def _show(session: Session, report: Json) -> None:
    out = session.out
    out.line(f"Replay {report['thread_id']} of thread {report['source_thread_id']}: {report['status']}.")
    if report["diverged"] is not None:
        out.line(report["diverged"]["message"], style="red")
    elif report["error"]:
        out.line(report["error"], style="red")
    for number, turn in enumerate(report["turns"], 1):
        difference: Json | None = turn["difference"]
        if difference is None:
            out.line(f"Turn {number}: the recorded run was deleted.")
            continue
        for step in difference["steps"]:
            _show_step(out, number, step)
    if report["status"] == "completed" or report["diverged"] is not None:
        calls = "The calls are the same" if report["same_calls"] else "The calls differ"
        answers = "the answers too." if report["same"] else "the answers differ." if report["same_calls"] else ""
        out.line(f"{calls}{', ' + answers if answers else '.'}")
    totals = report["totals"]
    rows = [[label, _figure(field, totals["source"]), _figure(field, totals["replay"])] for label, field in _FIGURES]
    out.table([TableColumn(""), TableColumn("record"), TableColumn("replay")], rows)


def _show_step(out: Any, number: int, step: Json) -> None:
    changes = [change for change in step["changes"] if change["name"] in ("answer", "calls", "args", "name", "status")]
    for side, sign, style in (("a", "-", "red"), ("b", "+", "green")):
        alone = step[side] is not None and (step["a"] is None or step["b"] is None)
        if alone:
            out.cropped(Text(f"{sign} turn {number}: {step[side]['kind']} {step[side]['name']}", style=style))
        for change in changes:
            out.cropped(Text(f"{sign} turn {number} {change['name']}: {one_line(str(change[side]))}", style=style))


def _figure(name: str, sums: Json) -> str:
    value = sums[name]
    if value is None:
        return "unknown"
    return duration(value) if name == "model_ms" else f"{value:.6f}" if name == "total_cost" else f"{value:,}"
