"""`eval`: run a dataset against an agent, grade the answers and compare with the previous evaluation."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from lockstitch.cli.agent_choice import app_or_stored
from lockstitch.cli.exit_codes import ExitCode
from lockstitch.cli.options import examples
from lockstitch.cli.references import find_run, find_thread
from lockstitch.cli.render.progress import CaseProgress, show
from lockstitch.cli.runs import Interrupted, open_for_app, terminable
from lockstitch.cli.session import Session, session_of
from lockstitch.errors import NotFound, Refused
from lockstitch.sync import SyncStore

if TYPE_CHECKING:
    from uuid import UUID

    from lockstitch.agents import Agent, App
    from lockstitch.agents.evals.grader import Grader
    from lockstitch.agents.evals.results import CaseOutcome, Evaluation
    from lockstitch.store.portal import PortalTask

app = typer.Typer()

GRADERS: Final = ("exact", "contains", "json_schema", "judge", "rubric", "MODULE:FUNCTION")
_JUDGES: Final = ("judge", "rubric")


@app.command(
    "eval",
    epilog=examples(
        "lockstitch eval questions.jsonl --agent helper --grader contains --app shop:app",
        "lockstitch eval cases.csv --agent helper --version 2 --grader exact --at-least 0.9",
        "lockstitch eval questions@3 --agent helper --grader rubric --judge anthropic:claude-sonnet-5 --trials 5",
        "lockstitch eval regressions --replay --agent helper --model openai:gpt-5 --grader contains --app shop:app",
        "lockstitch eval --replay --where tag=vip --where since=7d --agent helper --grader exact --app shop:app",
    ),
)
def eval_(
    context: typer.Context,
    agent: Annotated[str, typer.Option(metavar="NAME", help="The agent or team to evaluate.", show_default=False)],
    grader: Annotated[
        list[str], typer.Option(metavar="|".join(GRADERS), help="The grader. Can be repeated.", show_default=False)
    ],
    dataset: Annotated[
        str | None,
        typer.Argument(
            metavar="DATASET", help="A stored dataset, as NAME or NAME@VERSION, or a file.", show_default=False
        ),
    ] = None,
    replay: Annotated[
        bool, typer.Option("--replay", help="Replay the recorded runs of the cases. No tool has an effect.")
    ] = False,
    thread: Annotated[
        list[str] | None,
        typer.Option(metavar="THREAD", help="Instead of DATASET: the last finished run of a thread. Can be repeated."),
    ] = None,
    run: Annotated[
        list[str] | None, typer.Option(metavar="RUN", help="Instead of DATASET: a run. Can be repeated.")
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD=VALUE",
            help="Instead of DATASET: the latest threads that match, such as tag=vip. Can be repeated.",
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, max=1000, metavar="N", help="Maximum number of threads of --where.")
    ] = 100,
    live: Annotated[
        str | None, typer.Option(metavar="safe", help="In replays, run safe tools for calls that are not recorded.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Another model. Default: the model of the agent.")
    ] = None,
    instructions: Annotated[str | None, typer.Option(metavar="TEXT", help="Other instructions.")] = None,
    version: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="A stored version of the agent. Default: the code.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(metavar="N", help="Name for comparison. Default: agent and dataset.")
    ] = None,
    trials: Annotated[int, typer.Option(min=1, metavar="N", help="Number of runs of each case.")] = 1,
    schema: Annotated[str | None, typer.Option(metavar="FILE", help="The JSON schema for cases without one.")] = None,
    judge: Annotated[
        str | None,
        typer.Option(metavar="MODEL|AGENT", help="The judge of judge and rubric. Default: the model of the agent."),
    ] = None,
    criteria: Annotated[str | None, typer.Option(metavar="TEXT", help="The criteria for the judge.")] = None,
    pass_at: Annotated[
        float | None, typer.Option(metavar="SCORE", help="Minimum score of judge and rubric for a pass.")
    ] = None,
    at_least: Annotated[
        float | None, typer.Option(min=0, max=1, metavar="SCORE", help="Exit code 1 if the mean score is below this.")
    ] = None,
    concurrency: Annotated[
        int, typer.Option(min=1, max=1000, metavar="N", help="Maximum number of cases at once.")
    ] = 4,
    all_: Annotated[bool, typer.Option("--all", help="Show every case.")] = False,
) -> None:
    """Run a dataset against an agent and grade its answers.

    Every trial of a case is a run in its own thread. If an evaluation was interrupted or killed, the same command
    continues it. A finished evaluation is compared with the next one. Exit code 6: some runs did not complete. Exit
    code 1: none did. With the URL of a server, the server runs the evaluation of a stored dataset or of recorded runs.

    With --replay, each case is a replay of its recorded run. A replay stops at a call that the record does not have.
    Then the case is marked as diverged.
    """
    from lockstitch.agents.evals.runner import check_name

    session = session_of(context)
    if (dataset is None) != bool(thread or run or where):
        raise Refused("Name either a DATASET, or recorded runs with --thread, --run or --where.")
    if live not in (None, "safe"):
        raise Refused(f"--live {live!r} is unknown. Use --live safe.")
    if name is not None:
        check_name(name)
    judging = {"judge": judge, "criteria": criteria, "pass_at": pass_at}
    _check_options(grader, schema, judging)
    values: dict[str, Any] = {"name": name, "version": version, "trials": trials, "concurrency": concurrency}
    values |= {"model": model, "instructions": instructions, "replay": replay, "live_safe": live is not None}
    cases = _Cases(dataset, thread or [], run or [], where or [], limit)
    if session.is_remote:
        evaluation = _on_server(session, agent, grader, schema, cases, {**values, **judging})
    else:
        evaluation = _here(session, agent, grader, schema, cases, values, judging)
    if session.json_output:
        met = at_least is None or evaluation.score >= at_least
        session.out.json({**evaluation.as_json(), "at_least": at_least, "met": met})
    else:
        show(session.out, evaluation, at_least, everything=all_)
    _exit(evaluation, at_least)


class _Cases(NamedTuple):
    """The cases that the command line names: a dataset, or recorded runs."""

    dataset: str | None
    threads: Sequence[str]
    runs: Sequence[str]
    where: Sequence[str]
    limit: int

    @property
    def has_file(self) -> bool:
        """True if the dataset is a file."""
        from lockstitch.agents.evals.stored_cases import is_file

        return self.dataset is not None and is_file(self.dataset)

    def sources(self, store: SyncStore) -> "list[UUID]":
        """Return the ids of the threads and runs."""
        threads = [find_thread(store, text).id for text in self.threads]
        return threads + [find_run(store, text).id for text in self.runs]


def _here(
    session: Session,
    agent: str,
    names: Sequence[str],
    schema: str | None,
    cases: _Cases,
    values: dict[str, Any],
    judging: dict[str, Any],
) -> "Evaluation":
    """Evaluate an agent of the app in this process."""
    from lockstitch.agents.evals.dataset import read_file
    from lockstitch.agents.evals.recorded_runs import RecordedRuns
    from lockstitch.agents.evals.runner import evaluate

    # The record answers the calls of a replay, so the stored definition of the agent is enough.
    code = app_or_stored(session) if values["replay"] else session.app()
    chosen = code.agent(agent)
    if cases.has_file and cases.dataset is not None:
        # A missing file is an error before a store is created.
        read_file(cases.dataset)
    graders = _graders(names, code, chosen, schema, judging)
    create = cases.dataset is not None
    with open_for_app(session, code, create=create) as store, terminable(), CaseProgress() as progress:
        source = cases.dataset or RecordedRuns(cases.sources(store), cases.where, cases.limit)

        async def work(listener: Any) -> "Evaluation":
            try:
                return await evaluate(
                    chosen,
                    source,
                    store=store.async_store,
                    graders=graders,
                    progress=lambda outcome, done, total: listener((outcome, done, total)),
                    **values,
                )
            finally:
                for grader in graders:
                    await grader.close()

        task: PortalTask[tuple[CaseOutcome, int, int], Evaluation] = store.portal.begin(work)
        return _follow(task, progress.update, "Run the same command to continue.")


def _on_server(
    session: Session, agent: str, graders: Sequence[str], schema: str | None, cases: _Cases, values: dict[str, Any]
) -> "Evaluation":
    """Let the server evaluate one of its agents, and follow the evaluation."""
    from lockstitch.cli.remote import remote_of
    from lockstitch.cli.remote_evals import evaluate_on_server

    if function := next((name for name in graders if ":" in name), None):
        raise Refused(f"--grader {function} is a function of this computer, which the server does not have.")
    if schema is not None:
        raise Refused("--schema is a file of this computer. On a server, the cases of the dataset need a schema.")
    if cases.has_file:
        raise Refused(f"{cases.dataset} is a file of this computer. Store it with `lockstitch dataset create` first.")
    with session.open() as store, terminable(), CaseProgress() as progress:
        request = {"agent": agent, "dataset": cases.dataset, "graders": [*graders], **values}
        request |= {"sources": cases.sources(store), "where": [*cases.where], "limit": cases.limit}

        async def work(listener: Any) -> "Evaluation":
            evals = remote_of(store.async_store).client.evals
            return await evaluate_on_server(evals, request, lambda failed, done, total: listener((failed, done, total)))

        task: PortalTask[tuple[int, int, int], Evaluation] = store.portal.begin(work)
        return _follow(task, progress.show, "The server continues. Run the same command to follow it.")


def _follow(
    task: "PortalTask[tuple[Any, int, int], Evaluation]", show: Callable[[Any, int, int], None], after_interrupt: str
) -> "Evaluation":
    """Show the progress of an evaluation until it ends."""
    try:
        for step in task:
            show(*step)
        return task.result()
    except KeyboardInterrupt as exc:
        raise Interrupted(f"Interrupted. {after_interrupt}") from exc
    finally:
        task.end()


def _exit(evaluation: "Evaluation", at_least: float | None) -> None:
    totals = evaluation.totals
    if (at_least is not None and totals.score < at_least) or totals.incomplete == totals.trials:
        raise typer.Exit(ExitCode.FAILED)
    if totals.incomplete:
        raise typer.Exit(ExitCode.PARTLY)


def _check_options(names: Sequence[str], schema: str | None, judging: dict[str, Any]) -> None:
    """Raise `Refused` for options of a grader that is not named."""
    values = {key: value for key, value in judging.items() if value is not None}
    if values and not set(names) & set(_JUDGES if "criteria" not in values else ("judge",)):
        wanted = "judge" if "criteria" in values else "judge or --grader rubric"
        raise Refused(f"--{next(iter(values)).replace('_', '-')} is for --grader {wanted}.")
    if schema is not None and "json_schema" not in names:
        raise Refused("--schema is for --grader json_schema.")


def _graders(
    names: Sequence[str], code: "App", agent: "Agent", schema: str | None, judging: dict[str, Any]
) -> "list[Grader]":
    """Return the named graders with their options."""
    from lockstitch.agents.evals.functions import FunctionGrader, load_function
    from lockstitch.agents.evals.graders import grader

    values = {key: value for key, value in judging.items() if value is not None}
    graders: list[Grader] = []
    for name in names:
        if ":" in name:
            graders.append(FunctionGrader(load_function(name)))
            continue
        parameters: dict[str, Any] = {}
        if name in _JUDGES:
            judge = values.get("judge") or _model_of(agent, name)
            if isinstance(judge, str) and judge not in code.agents and ":" not in judge:
                known = ", ".join(sorted(code.agents))
                raise Refused(f"--judge {judge!r} is not a model (anthropic:…) and not an agent. Agents: {known}.")
            parameters = {**values, "judge": code.agents.get(judge, judge) if isinstance(judge, str) else judge}
            if name == "rubric":
                parameters.pop("criteria", None)
        elif name == "json_schema" and schema is not None:
            parameters = {"schema": _schema(schema)}
        graders.append(grader(name, **parameters))
    return graders


def _model_of(agent: "Agent", grader: str) -> Any:
    from lockstitch.agents.stored import StoredAgent

    if isinstance(agent, StoredAgent):
        raise Refused(f"--grader {grader} needs --judge if the agent has a stored definition.")
    return agent.model


def _schema(path: str) -> Any:
    try:
        return json.loads(Path(path).read_bytes())
    except FileNotFoundError:
        raise NotFound(f"File {path} not found.") from None
    except OSError as exc:
        raise Refused(f"{path} cannot be read: {exc.strerror or exc}.") from exc
    except (ValueError, RecursionError) as exc:
        raise Refused(f"{path} is not JSON: {exc}.") from exc
