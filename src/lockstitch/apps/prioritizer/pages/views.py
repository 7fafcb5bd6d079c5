"""View models of sessions and reasoning steps, and the Markdown of a plan."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from lockstitch import NotFound, Run, Stitch, Store
from lockstitch.apps.prioritizer.conclusion import BUDGET_MS
from lockstitch.apps.prioritizer.models import MAX_STEPS, Plan, ReasoningStep
from lockstitch.apps.prioritizer.pages.diagram import Card, CardPosition, PlanDiagram, build_diagram
from lockstitch.apps.prioritizer.pages.text import cycle, hours, step_summary, took
from lockstitch.apps.prioritizer.reasoning_steps import parsed, thought_of
from lockstitch.apps.prioritizer.records import Outcome, Session
from lockstitch.apps.prioritizer.sessions import metadata_of, outcomes_of, plan_of, session_of, sessions, tasks_of
from lockstitch.ext import Where, format_duration, tool_uses


@dataclass(frozen=True, slots=True)
class SessionView:
    """The head and the notes of the page of a session."""

    id: UUID
    """Id of the session and of its thread."""
    run: UUID | None
    position: int
    outcome: str
    user: str
    agent: str
    version: int | None
    status: str
    at: datetime
    summary: str = ""
    note: str | None = None
    warnings: Sequence[str] = ()
    cycles: Sequence[str] = ()

    @property
    def thread(self) -> UUID:
        return self.id


@dataclass(frozen=True, slots=True)
class Step:
    """A reasoning step as text."""

    number: int
    thought: str
    tool: str
    summary: str
    took: str
    status: str
    open: bool = False
    """True while its tool call has no result."""


@dataclass(frozen=True, slots=True)
class TraceView:
    """The reasoning so far."""

    steps: list[Step]
    summary: str
    why: str = ""
    """Reason if there are no steps."""


def trace_shown(
    steps: Sequence[ReasoningStep], total_ms: int, *, following: Sequence[Step] = (), why: str = ""
) -> TraceView:
    value = f"{len(steps)} of at most {MAX_STEPS} steps"
    spent = f"{format_duration(total_ms)} of {BUDGET_MS // 1000} s" if total_ms else ""
    return TraceView([*(_step(step) for step in steps), *following], " · ".join(filter(None, (value, spent))), why)


def _step(step: ReasoningStep) -> Step:
    return Step(step.step_number, step.thought or "", step.tool_name or "", step_summary(step), took(step), step.status)


async def read_steps(store: Store, run: Run | None) -> tuple[list[ReasoningStep], list[Step]]:
    """Return the completed steps of a run, and the steps with calls in progress."""
    if run is None:
        return [], []
    stitches = await store.log(run.id)
    responses = [
        stitch
        for stitch in stitches
        if stitch.type == "llm_call" and stitch.message is not None and stitch.lane is None
    ]
    last = responses[-1] if responses else None
    answer = run.output_position
    if answer is None and last is not None and not tool_uses(last.message):
        # A response without calls is the answer, also before the run has ended.
        answer = last.position
    steps = parsed(stitches, answer).steps
    return steps, _open(stitches, last, len(steps)) if run.status == "running" and last is not None else []


def _open(stitches: list[Stitch], response: Stitch, value: int) -> list[Step]:
    """Return steps for the calls of the last response that have no result."""
    answered = {
        stitch.call_index for stitch in stitches if stitch.type == "tool_call" and stitch.reply_to == response.position
    }
    calls = list(enumerate(tool_uses(response.message)))
    waiting = [(index, str(call.get("name", ""))) for index, call in calls if index not in answered]
    return [
        Step(
            number=value + place,
            thought=(thought_of(response) or "") if index == 0 else "",
            tool=name,
            summary="",
            took="",
            status="success",
            open=True,
        )
        for place, (index, name) in enumerate(waiting, start=1)
        if value + place <= MAX_STEPS
    ]


PAGE: Final = 30
"""Number of plans on one page."""


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A session in the list."""

    id: UUID
    outcome: str
    user: str
    status: str
    line: str
    tasks: int | None
    waves: int | None
    steps: int
    at: datetime


@dataclass(frozen=True, slots=True)
class PlanPage:
    """A session with the data of its page. Without a plan there is no diagram."""

    session: Session
    run: Run | None
    shown: SessionView
    diagram: PlanDiagram | None


async def listed(store: Store, after: UUID | None = None) -> tuple[list[SessionRow], UUID | None]:
    """Return a page of sessions, newest first, and the id of the last one if there are more."""
    last = await session_of(store, after) if after is not None else None
    matches = await sessions(store, limit=PAGE + 1, after=last)
    shown = matches[:PAGE]
    outcomes = await outcomes_of(store, shown)
    return [_row(session, outcomes) for session in shown], shown[-1].thread_id if len(matches) > PAGE else None


async def session_named(store: Store, ref: str) -> Session:
    """Return a session by its id or the key of its thread. Raises `NotFound` if the thread is not a plan."""
    head = await store.thread(ref)
    try:
        return await session_of(store, head.id)
    except NotFound:
        raise NotFound(f"Thread {ref} is not a plan.") from None


async def load_plan_page(store: Store, ref: str) -> PlanPage:
    session = await session_named(store, ref)
    outcomes = await outcomes_of(store, [session])
    # Read the thread after the session, so that its position is not older than the plan.
    head = await store.thread(session.thread_id)
    run = await _run(store, session.thread_id)
    plan, metadata = plan_of(session), metadata_of(session)
    diagram = build_diagram(plan, await _places(store, session), metadata) if plan is not None else None
    shown = SessionView(
        id=session.thread_id,
        run=run.id if run is not None else None,
        position=head.position,
        outcome=outcomes[session.outcome_id].statement,
        user=session.user_id,
        agent=head.agent or "",
        version=head.version,
        status=session.status,
        at=session.created_at,
        summary=_summary(plan),
        note=metadata.status_note,
        warnings=metadata.warnings,
        cycles=[cycle(broken_cycle, diagram.cards) for broken_cycle in metadata.broken_cycles]
        if diagram is not None
        else [],
    )
    return PlanPage(session, run, shown, diagram)


async def trace(store: Store, result: PlanPage) -> TraceView:
    """Return the reasoning so far, or the reason why it is missing."""
    session = result.session
    now = store.clock.now()
    if session.status != "running" and (session.trace_expires_at <= now or not session.trace_kept):
        return trace_shown((), 0, why="The reasoning has expired and was deleted. The plan stays.")
    steps, following = await read_steps(store, result.run)
    running = session.status == "running"
    began = result.run.started_at if result.run is not None else now
    spent = round((now - began).total_seconds() * 1000) if running else metadata_of(session).total_time_ms
    return trace_shown(steps, spent, following=following, why="No reasoning: the session ended before its first step.")


async def _places(store: Store, session: Session) -> Mapping[str, CardPosition]:
    """Return the existing tasks of a session. Tasks of a plan can have been deleted since."""
    return {
        id: CardPosition(
            entry.task.title,
            entry.document.title,
            entry.task.line,
            entry.task.details,
            entry.task.estimate_hours,
        )
        for id, entry in (await tasks_of(store, session)).items()
    }


async def _run(store: Store, thread_id: UUID) -> Run | None:
    runs = await store.find_runs(thread_id, Where("parent_run_id", "is null"), order=("-sequence",), limit=1)
    return runs[0] if runs else None


def _row(session: Session, outcomes: Mapping[UUID, Outcome]) -> SessionRow:
    plan = plan_of(session)
    return SessionRow(
        id=session.thread_id,
        outcome=outcomes[session.outcome_id].statement,
        user=session.user_id,
        status=session.status,
        line=_summary(plan) or metadata_of(session).status_note or "",
        tasks=len(plan.ordered_task_ids) if plan is not None else None,
        waves=len(plan.execution_waves) if plan is not None else None,
        steps=session.steps_taken,
        at=session.created_at,
    )


def _summary(plan: Plan | None) -> str:
    return plan.synthesis_summary if plan is not None else ""


_MARKS: Final = str.maketrans({mark: f"\\{mark}" for mark in "\\`*_[]<>#|"})


def markdown(shown: SessionView, plan_diagram: PlanDiagram) -> str:
    """Return a plan as Markdown: waves are headings, tasks are items with their dependencies."""
    parts = [f"# {_plain(shown.outcome)}", _plain(shown.summary)]
    for wave in plan_diagram.waves:
        execution_wave = wave.known
        spent = (
            f", {hours(execution_wave.estimated_duration_hours)}"
            if execution_wave.estimated_duration_hours is not None
            else ""
        )
        parts.append(f"## Wave {execution_wave.wave_number} ({wave.manner}{spent})")
        parts.append("\n".join(_item(card) for card in wave.cards))
    notes = [*shown.cycles, *([shown.note] if shown.note else []), *shown.warnings]
    if notes:
        parts.append("## Notes")
        parts.append("\n".join(f"- {_plain(note)}" for note in notes))
    return "\n\n".join(part for part in parts if part) + "\n"


def _item(card: Card) -> str:
    notes = [f"confidence {card.confidence:.2f}"]
    if card.place.estimate_hours is not None:
        notes.insert(0, hours(card.place.estimate_hours))
    if card.waits_for:
        notes.append("after " + ", ".join(_plain(prerequisite.id) for prerequisite in card.waits_for))
    return f"- [ ] **{_plain(card.id)}** {_plain(card.place.title)} ({'; '.join(notes)})"


def _plain(text: str) -> str:
    """Return text on one line, with Markdown characters escaped."""
    return " ".join(text.split()).translate(_MARKS)
