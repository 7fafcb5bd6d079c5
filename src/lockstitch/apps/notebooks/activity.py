"""The chats of a notebook, and the activity of each run of a chat."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, NamedTuple
from uuid import UUID

from lockstitch import Run, Stitch, Store, Thread
from lockstitch.apps.notebooks import notebooks
from lockstitch.apps.notebooks.citations import CitationView, citations_of_runs
from lockstitch.apps.notebooks.records import Notebook, NotebookSession
from lockstitch.ext import TERMINAL_STATUSES, Json, answer_of, format_time, text_of

_SEARCH: Final = "search_sources"


class Chat(NamedTuple):
    """A chat of a notebook."""

    session: NotebookSession
    thread: Thread

    @property
    def title(self) -> str:
        return self.thread.title or "Untitled chat"

    @property
    def messages(self) -> int:
        """Number of messages that the user sent."""
        return self.thread.last_turn

    def as_json(self) -> Json:
        thread = self.thread
        return {
            "id": self.session.id,
            "session_id": self.session.session_id,
            "thread_id": str(thread.id),
            "notebook_id": self.session.notebook_id,
            "title": self.title,
            "summary": thread.summary,
            "user_id": thread.user_id,
            "status": thread.status,
            "messages": self.messages,
            "runs": thread.last_sequence,
            "created_at": format_time(self.session.created_at),
            "last_run_at": format_time(thread.last_run_at) if thread.last_run_at else None,
        }


@dataclass(frozen=True, slots=True)
class RunActivity:
    """The activity of a run, with the runs of the members that it delegated to."""

    run: Run
    input: str
    output: str | None
    searches: int
    members: list["RunActivity"] = field(default_factory=list["RunActivity"])
    citations: list[CitationView] = field(default_factory=list[CitationView])
    """Citations of its output, if the output is the answer to the user."""

    @property
    def who(self) -> str:
        return self.run.agent or "?"

    @property
    def leads(self) -> bool:
        return self.run.role == "team"

    @property
    def act(self) -> str:
        """A short text for people: answers, hands on, compiles, 3 searches, writes."""
        if self.run.status in ("failed", "cancelled"):
            return self.run.status
        if self.leads:
            if self.run.parent_run_id is not None:
                return "compiles"
            return "hands on" if self.members else "answers"
        if self.searches:
            return f"{self.searches} search{'es' if self.searches > 1 else ''}"
        return "writes" if self.run.status in TERMINAL_STATUSES else "at work"

    @property
    def seconds(self) -> float | None:
        if self.run.completed_at is None:
            return None
        return (self.run.completed_at - self.run.started_at).total_seconds()

    def as_json(self) -> Json:
        run = self.run
        return {
            "run_id": str(run.id),
            "parent_run_id": str(run.parent_run_id) if run.parent_run_id else None,
            "agent": run.agent,
            "role": run.role,
            "status": run.status,
            "act": self.act,
            "input": self.input,
            "output": self.output,
            "seconds": self.seconds,
            "usage": run.usage,
            "total_cost": run.total_cost,
            "error": run.error,
            "citations": [citation.as_json() for citation in self.citations],
            "members": [member.as_json() for member in self.members],
        }


@dataclass(frozen=True, slots=True)
class ChatTurn:
    """A message of the user, with the runs that it caused."""

    number: int
    message: str
    activities: list[RunActivity]
    at: datetime

    @property
    def answer(self) -> RunActivity | None:
        """The run that answered the user: the last completed run of the leader with an output. None if the turn did not
        complete."""
        if self.activities[0].run.status != "completed":
            return None
        run_activities = [
            activity for activity in self.activities if activity.output and activity.run.status == "completed"
        ]
        return run_activities[-1] if run_activities else None

    @property
    def cost(self) -> float | None:
        """The sum of the known costs of the runs."""
        known = [run.total_cost for run in self.runs if run.total_cost is not None]
        return sum(known) if known else None

    @property
    def runs(self) -> list[Run]:
        """All runs of the turn, in order of their start."""
        return sorted(_runs(self.activities), key=lambda run: run.sequence)

    def as_json(self) -> Json:
        answer = self.answer
        return {
            "turn": self.number,
            "message": self.message,
            "answer": answer.output if answer else None,
            "answered_by": answer.who if answer else None,
            "citations": [citation.as_json() for citation in answer.citations] if answer else [],
            "cost": self.cost,
            "at": format_time(self.at),
            "deeds": [activity.as_json() for activity in self.activities],
        }


async def chats(store: Store, notebook: Notebook, *, user_id: str | None = None) -> list[Chat]:
    """Return the chats of a notebook or of one of its users, most recently active first."""
    links = {link.thread_id: link for link in await notebooks.sessions(store, notebook.number)}
    threads = [
        thread
        for thread in (await store.threads_by_id(list(links))).values()
        if user_id is None or thread.user_id == user_id
    ]
    threads.sort(key=lambda thread: (thread.recent_at, thread.id), reverse=True)
    return [Chat(links[thread.id], thread) for thread in threads]


async def turns(store: Store, thread: Thread) -> list[ChatTurn]:
    """Return the turns of a chat. Each has a tree of runs with inputs, outputs and citations."""
    runs = await store.runs(thread)
    log = await store.stitches(thread)
    by_position = {stitch.position: stitch for stitch in log}
    cited = await citations_of_runs(store, [run.id for run in runs if run.parent_run_id is None])
    searches: dict[UUID | None, int] = {}
    for stitch in log:
        if stitch.type == "tool_call" and stitch.name == _SEARCH:
            searches[stitch.run_id] = searches.get(stitch.run_id, 0) + 1
    activities = {run.id: _activity(run, by_position, searches.get(run.id, 0)) for run in runs}
    chat_turns: dict[int, ChatTurn] = {}
    for run in runs:
        activity = activities[run.id]
        above = activities.get(run.parent_run_id) if run.parent_run_id is not None else None
        turn = chat_turns.get(run.turn)
        if turn is None:
            turn = chat_turns[run.turn] = ChatTurn(run.turn, activity.input, [], run.started_at)
        if above is None or _compiles(run, above.run):
            turn.activities.append(activity)
        else:
            above.members.append(activity)
    for turn in chat_turns.values():
        # Citations are stored with the first run of a turn, also if a later run answered.
        if (answer := turn.answer) is not None:
            answer.citations.extend(cited.get(turn.activities[0].run.id, ()))
    return list(chat_turns.values())


def total_cost(chat_turns: Sequence[ChatTurn]) -> float | None:
    """Return the sum of the known costs of the turns."""
    known = [turn.cost for turn in chat_turns if turn.cost is not None]
    return sum(known) if known else None


def _activity(run: Run, log: Mapping[int, Stitch], searches: int) -> RunActivity:
    stitch, value = log.get(run.input_position or 0), log.get(run.output_position or 0)
    output = answer_of(value.message) if value is not None else None
    return RunActivity(run, text_of(stitch.message) if stitch is not None else "", output or None, searches)


def _compiles(run: Run, above: Run) -> bool:
    """True if a run is a further run of the leader and not of a member."""
    return run.role == "team" and run.agent == above.agent


def _runs(activities: Sequence[RunActivity]) -> list[Run]:
    return [run for activity in activities for run in (activity.run, *_runs(activity.members))]
