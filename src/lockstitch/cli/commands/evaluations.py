"""`evals`: list, show and compare evaluations."""

from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.text import Text

from lockstitch.cli.actions import actions_of
from lockstitch.cli.options import Limit, examples
from lockstitch.cli.render.output import TableColumn, cost, duration, one_line, plural, time
from lockstitch.cli.render.progress import diverged
from lockstitch.cli.session import session_of
from lockstitch.model import Json, parse_time

app = typer.Typer()
evals = typer.Typer(name="evals", help="List, show and compare evaluations.", rich_markup_mode=None)
app.add_typer(evals)

_REF = "An evaluation: its id, NAME#NUMBER, or NAME for the last one."


@evals.command("list", epilog=examples("lockstitch evals list", "lockstitch evals list --dataset questions --json"))
def list_(
    context: typer.Context,
    name: Annotated[str | None, typer.Option(metavar="N", help="Only evaluations of this name.")] = None,
    dataset: Annotated[str | None, typer.Option(metavar="NAME", help="Only those of this stored dataset.")] = None,
    agent: Annotated[str | None, typer.Option(metavar="NAME", help="Only those of this agent.")] = None,
    limit: Limit = 20,
) -> None:
    """List evaluations with score, cost and latency, newest first."""
    session = session_of(context)
    with session.open() as store:
        found = actions_of(store).evals()
        page = store.portal.call(found.list(name=name, dataset=dataset, agent=agent, limit=min(limit, 1000)))
    if session.json_output:
        session.out.json(page["evals"])
        return
    columns = [TableColumn("EVAL"), TableColumn("AGENT"), TableColumn("DATASET", from_width=100)]
    columns += [TableColumn(title, right=True) for title in ("PASSED", "SCORE", "95 %", "TIME", "COST")]
    session.out.table([*columns, TableColumn("STARTED", from_width=120)], [_row(row) for row in page["evals"]])
    if page["next"]:
        session.out.note("There are more evaluations. Use a larger --limit.")


@evals.command(epilog=examples("lockstitch evals show facts", "lockstitch evals show 'facts#2' --failed"))
def show(
    context: typer.Context,
    ref: Annotated[str, typer.Argument(metavar="EVAL", help=_REF, show_default=False)],
    failed: Annotated[bool, typer.Option("--failed", help="Only cases with a trial that did not pass.")] = False,
    limit: Limit = 100,
) -> None:
    """Show an evaluation: its cases with their mean scores, its totals with their intervals."""
    session = session_of(context)
    with session.open() as store:
        found = actions_of(store).evals()
        value = store.portal.call(found.get(ref))
        page = store.portal.call(found.cases(value["id"], failed=failed, limit=min(limit, 1000)))
    if session.json_output:
        session.out.json({**value, "results": page["cases"]})
        return
    columns = [TableColumn("CASE", flexible=True)]
    columns += [TableColumn(title, right=True) for title in ("PASSED", "SCORE", "95 %", "TIME", "COST")]
    session.out.table([*columns, TableColumn("REASON", flexible=True)], [_case(case) for case in page["cases"]])
    session.out.line()
    _print_totals(context, value)
    if page["next"] is not None:
        session.out.note("There are more cases. Use a larger --limit.")


@evals.command(epilog=examples("lockstitch evals compare 'facts#1' 'facts#2'", "lockstitch evals compare a b c --json"))
def compare(
    context: typer.Context,
    refs: Annotated[list[str], typer.Argument(metavar="EVAL...", help=_REF, show_default=False)],
    all_: Annotated[bool, typer.Option("--all", help="Also show cases with equal scores.")] = False,
    limit: Limit = 100,
) -> None:
    """Compare two or more evaluations case by case, the worst differences first. The first one is the baseline.

    `*` marks a difference whose 95 % interval does not contain 0.
    """
    session = session_of(context)
    with session.open() as store:
        value = store.portal.call(actions_of(store).evals().compare(refs, changed=not all_, limit=min(limit, 1000)))
    if session.json_output:
        session.out.json(value)
        return
    titles = [f"{one_line(row['name'])}#{row['number']}" for row in value["evals"]]
    if value["cases"]:
        columns = [TableColumn("CASE", flexible=True), *(TableColumn(title, right=True) for title in titles)]
        session.out.table(columns, [_compared(case) for case in value["cases"]])
        session.out.line()
    for title, row in zip(titles, value["evals"], strict=True):
        done = f"{row['trials_done']:,} of {plural(row['trials_total'], 'trial')} done."
        session.out.line(f"{title}: {done if row['score'] is None else _summary(row)}")
    for title, difference in zip(titles[1:], value["differences"], strict=True):
        session.out.line(f"{title} against {titles[0]}: {_difference(difference)}", _style(difference["score"]))
    if value["next"] is not None:
        session.out.note("There are more cases. Use a larger --limit.")


def _row(row: Json) -> list[str | Text]:
    title = f"{one_line(row['name'])}#{row['number']}"
    agent = f"{one_line(row['agent'])} v{row['version']}"
    dataset = one_line(row["dataset"]) + (f"@{row['dataset_version']}" if row["dataset_version"] else "")
    started = time(parse_time(row["created_at"]), seconds=False)
    if row["score"] is None:
        done = f"{row['trials_done']:,}/{row['trials_total']:,}"
        return [title, agent, dataset, done, row["status"], "", "", "", started]
    passed = f"{row['passed']:,}/{row['trials_total']:,}"
    numbers = [_score(row["score"]), _interval(row["score_interval"]), duration(row["latency_ms"]), cost(row["cost"])]
    return [title, agent, dataset, passed, *numbers, started]


def _case(case: Json) -> list[str | Text]:
    passed = Text(f"{case['passed']}/{case['trials']}", style="green" if case["passed"] == case["trials"] else "red")
    replays: list[Json] = [outcome["replay"] for outcome in case["outcomes"] if outcome["replay"] is not None]
    stopped = sum(replay["diverged"] is not None for replay in replays)
    passed.append(f", {stopped} diverged" if stopped else "", style="yellow")
    reason = next((outcome["reason"] for outcome in case["outcomes"] if outcome["reason"]), "")
    numbers = [_score(case["score"]), _interval(case["score_interval"])]
    return [
        one_line(case["case"]),
        passed,
        *numbers,
        duration(case["latency_ms"]),
        cost(case["cost"]),
        one_line(reason),
    ]


def _compared(case: Json) -> list[str | Text]:
    cells: list[str | Text] = [one_line(case["case"])]
    for score, delta in zip(case["scores"], case["deltas"], strict=True):
        if score is None:
            cells.append("")
            continue
        text = _score(score["score"])
        if delta is not None and delta["delta"]:
            text += f" {delta['delta']:+.3f}{'*' if delta['certain'] else ''}"
        cells.append(Text(text, style="" if delta is None else _style(delta["delta"])))
    return cells


def _print_totals(context: typer.Context, value: Json) -> None:
    out = session_of(context).out
    title = f"{one_line(value['name'])}#{value['number']}: {one_line(value['agent'])} version {value['version']}"
    out.line(f"{title} on {one_line(value['dataset'])}, graded by {', '.join(value['graders'])}", style="bold")
    if value["status"] != "completed":
        out.line(f"{value['trials_done']:,} of {plural(value['trials_total'], 'trial')} done.")
    if value["score"] is not None:
        out.line(_summary(value))
    if value["incomplete"]:
        out.line(
            f"The runs of {plural(value['incomplete'], 'trial')} did not complete{diverged(value['diverged'])}.",
            style="red",
        )


def _summary(row: Json) -> str:
    text = f"score {_score(row['score'])}{_range(row['score_interval'])}"
    text += f", {row['pass_rate']:.0%} of {plural(row['trials'], 'trial')} passed"
    if row["pass_interval"] is not None:
        text += " ({:.0%} to {:.0%})".format(*row["pass_interval"])
    if row["latency_ms"] is not None:
        text += f", {duration(row['latency_ms'])} a trial"
    if row["cost"] is not None:
        text += f", {cost(row['cost'])}"
    if row["grading_cost"] is not None:
        text += f" and {cost(row['grading_cost'])} for grading"
    return f"{text}."


def _difference(difference: Json) -> str:
    if difference["score"] is None:
        return "no case in common."
    certain = "" if difference["certain"] else ", within the uncertainty"
    numbers = f"{difference['better']:,} better, {difference['worse']:,} worse"
    mean = f"score {difference['score']:+.3f}{_range(difference['interval'])}{certain}"
    return f"{mean}; of {plural(difference['shared'], 'case')} {numbers}."


def _style(delta: float | None) -> str:
    return "green" if delta and delta > 0 else "red" if delta and delta < 0 else ""


def _score(score: float) -> str:
    return f"{score:.3f}"


def _interval(interval: Sequence[Any] | None) -> str:
    return "" if interval is None else f"{interval[0]:.2f} to {interval[1]:.2f}"


def _range(interval: Sequence[Any] | None) -> str:
    return "" if interval is None else f" ({interval[0]:.3f} to {interval[1]:.3f})"
