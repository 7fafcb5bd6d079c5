"""`prioritize`: order a list of tasks towards an outcome."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lockstitch.cli.exit_codes import ExitCode
from lockstitch.cli.options import examples
from lockstitch.cli.render.output import TableColumn, one_line, plural
from lockstitch.cli.session import Session, session_of
from lockstitch.errors import NotFound, Refused

if TYPE_CHECKING:
    from lockstitch.apps.prioritizer import Prioritizer
    from lockstitch.apps.prioritizer.models import AgentSession, Plan
    from lockstitch.apps.prioritizer.sessions import TaskInDocument
    from lockstitch.store import Store

app = typer.Typer()

STDIN = "-"


@app.command(
    epilog=examples(
        'lockstitch prioritize tasks.md --outcome "Open the checkout by 1 April"',
        'lockstitch prioritize backlog.csv --outcome "Ship 2.0" --model anthropic:claude-sonnet-4-5',
        'cat todo.md | lockstitch prioritize - --outcome "A tidy flat" --json',
    )
)
def prioritize(
    context: typer.Context,
    path: Annotated[
        str, typer.Argument(metavar="FILE", help="Tasks in Markdown or CSV; - reads stdin.", show_default=False)
    ],
    outcome: Annotated[str, typer.Option(metavar="TEXT", help="The outcome to reach.", show_default=False)],
    user: Annotated[str, typer.Option(metavar="U", help="The user of the plan.")] = "local",
    model: Annotated[str | None, typer.Option(metavar="M", help="The model. Without one, rules plan offline.")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Cancel a running session of this user.")] = False,
) -> None:
    """Order tasks towards an outcome, in waves of parallel tasks.

    \b
    In Markdown, headings are documents and sections, and tasks look like this:
      - [ ] T4: Choose the provider (3h)
      - [ ] Payment form 8h (after: T4)
    In CSV, a column task or title is required.
    The columns id, estimate, after and document are optional.

    The plan replaces the user's previous plan. If planning was interrupted or killed, the same command continues it.
    Exit code 4: another session of the user has not ended.
    """
    from lockstitch.apps.prioritizer.list_parsers import read_list

    session = session_of(context)
    if not outcome.strip():
        raise Refused("The outcome is empty. Describe what to reach.")
    content, name = _content(path)
    # Report errors of the list before the store is opened.
    read_list(content, name)
    planner = _planner(session, model)
    with session.open(create=True) as store:
        agent_session, tasks = store.portal.call(
            _plan(planner, store.async_store, user, outcome, content, name, replace)
        )
    if session.json_output:
        titles = {id: other_placed.task.title for id, other_placed in tasks.items()}
        session.out.json(
            {"session_id": str(agent_session.id), **agent_session.model_dump(mode="json"), "tasks": titles}
        )
    else:
        _show(session, outcome, agent_session, tasks)
    if agent_session.status != "completed":
        raise typer.Exit(ExitCode.FAILED)


async def _plan(
    planner: "Prioritizer", store: "Store", user: str, outcome: str, content: bytes, name: str, replace: bool
) -> "tuple[AgentSession, dict[str, TaskInDocument]]":
    from lockstitch.apps.prioritizer import SessionRunning
    from lockstitch.apps.prioritizer.sessions import shown, tasks_of

    try:
        await planner.setup(store)
        try:
            session_id = await planner.start_from_list(store, user, outcome, content, name, replace=replace)
        except SessionRunning as exc:
            # After an interruption, the same command continues the session, unless another process executes it.
            session_id = exc.thread_id
            if session_id is None or not await planner.matches_input(store, session_id, outcome, content, name):
                raise SessionRunning(f"{exc} (--replace)", thread_id=session_id) from exc
        session = await planner.run(store, session_id)
        return shown(session), await tasks_of(store, session)
    finally:
        await planner.close()


def _planner(session: Session, model: str | None) -> "Prioritizer":
    """Return the prioritizer of the app if it has one and no model is set. Otherwise create one."""
    from lockstitch.apps.prioritizer import Prioritizer

    if model is None and session.app_name:
        try:
            return session.app().plugin(Prioritizer)
        except NotFound:
            pass
    prioritizer = Prioritizer(model=model)
    prioritizer.check_model()
    return prioritizer


def _content(path: str) -> tuple[bytes, str]:
    from lockstitch.apps.prioritizer.task_lists import MAX_BYTES

    if path == STDIN:
        return sys.stdin.buffer.read(MAX_BYTES + 1), "stdin.md"
    file = Path(path)
    if not file.exists():
        raise NotFound(f"File {path} not found.")
    if not file.is_file():
        raise Refused(f"{path} is not a file.")
    with file.open("rb") as opened:
        return opened.read(MAX_BYTES + 1), file.name


def _show(session: Session, outcome: str, agent_session: "AgentSession", tasks: "dict[str, TaskInDocument]") -> None:
    out, plan, figures = session.out, agent_session.prioritized_plan, agent_session.execution_metadata
    if plan is None:
        out.line(f"No plan: {figures.status_note}")
        return
    out.line(one_line(outcome), style="bold")
    out.line(plan.synthesis_summary)
    out.line()
    out.table(
        [
            TableColumn("WAVE", right=True),
            TableColumn("ID"),
            TableColumn("TASK", flexible=True),
            TableColumn("CONFIDENCE", right=True),
            TableColumn("HOURS", right=True),
            TableColumn("AFTER", flexible=True),
        ],
        [row for wave in plan.execution_waves for row in _rows(plan, wave.wave_number, tasks)],
    )
    out.line()
    waves = plural(len(plan.execution_waves), "wave")
    steps = plural(figures.steps_taken, "step")
    out.line(f"{plural(len(plan.ordered_task_ids), 'task')} in {waves}; {steps}, {figures.total_time_ms} ms.")
    for cycle in figures.broken_cycles:
        dropped = cycle.dropped
        out.line(
            f"{', '.join(cycle.task_ids)} depend on each other. The dependency of {dropped.source_task_id} on "
            f"{dropped.target_task_id} ({dropped.confidence:.2f}) was dropped."
        )
    for text in (figures.status_note, *figures.warnings):
        if text:
            out.line(one_line(text))
    out.note(f"For the reasons, run `lockstitch show {agent_session.id}`.")


def _rows(plan: "Plan", number: int, tasks: "dict[str, TaskInDocument]") -> list[list[str]]:
    wave = plan.execution_waves[number - 1]
    rows: list[list[str]] = []
    for place, id in enumerate(wave.task_ids):
        waits = [
            dependency.target_task_id
            for dependency in plan.dependencies
            if dependency.orders and dependency.source_task_id == id
        ]
        task = tasks[id].task if id in tasks else None
        hours = task.estimate_hours if task is not None else None
        rows.append(
            [
                "" if place else f"{number}",
                one_line(id),
                one_line(task.title if task is not None else id),
                f"{plan.confidence_scores[id]:.2f}",
                "" if hours is None else f"{hours:g}",
                one_line(", ".join(dict.fromkeys(waits))),
            ]
        )
    return rows
