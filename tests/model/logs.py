"""Random logs of a thread, for property tests of contexts and histories.

A log is built in moves, as agents and team members would write it: turns, responses with tool calls, results in any
order, reports of children in between, lanes of parallel members, events without messages, compactions that were not
applied, compactions and forks. Every text is unique, so the origin of every text in a context is known.
"""

from datetime import UTC, datetime
from random import Random
from typing import Any
from uuid import UUID

from hypothesis import strategies as st

from lockstitch.model import STITCH_TYPES, Entry, Stitch, at_position, new_id, tool_result

NOW = datetime(2026, 1, 1, tzinfo=UTC)
THREAD = UUID(int=1)
LANES = (None, UUID(int=2), UUID(int=3))
"""The lane of the thread, and the lanes of two parallel members."""

SILENT = [
    type
    for type in STITCH_TYPES
    if type not in ("input", "llm_call", "tool_call", "thread_result", "compaction", "fork")
]


class Log:
    """A log under construction."""

    def __init__(self) -> None:
        self.stitches: list[Stitch] = []
        self.run = UUID(int=100)
        self.texts = 0

    def __repr__(self) -> str:
        lines = (
            f"{s.position} {s.type} lane={s.lane} reply_to={s.reply_to} {s.message or s.data}" for s in self.stitches
        )
        return "\n".join(["Log:", *lines])

    def add(self, type: str, lane: UUID | None = None, **fields: Any) -> Stitch:
        # The run of a member has the id of its lane. The runs of the thread follow one another.
        run_id = fields.pop("run_id", lane or self.run)
        entry = Entry(type=type, lane=lane, run_id=run_id, **fields)
        stitch = at_position(entry, THREAD, len(self.stitches) + 1, None, 0, NOW)
        self.stitches.append(stitch)
        return stitch

    def text(self) -> str:
        self.texts += 1
        return f"text {self.texts}"

    def turn(self, lane: UUID | None) -> None:
        if lane is None:
            self.run = UUID(int=self.run.int + 1)
        self.add("input", lane, message={"role": "user", "content": self.text()})

    def respond(self, lane: UUID | None, calls: int) -> None:
        content: list[Any] = [{"type": "text", "text": self.text()}]
        here = len(self.stitches) + 1
        content += [{"type": "tool_use", "id": f"c{here}-{n}", "name": "look", "input": {}} for n in range(calls)]
        self.add("llm_call", lane, message={"role": "assistant", "content": content})

    def answer(self, call: tuple[int, int]) -> None:
        response, index = call
        lane = self.stitches[response - 1].lane
        run_id = self.stitches[response - 1].run_id
        call_id = f"c{response}-{index}"
        block = tool_result(call_id, self.text())
        place_of = {"reply_to": response, "call_index": index, "call_id": call_id}
        self.add("tool_call", lane, run_id=run_id, name="look", message=block, **place_of)

    def child(self, lane: UUID | None) -> None:
        self.add("thread_result", lane, child_id=new_id(), message={"role": "user", "content": self.text()})

    def injected(self, lane: UUID | None) -> None:
        self.add("memory_retrieval", lane, message={"role": "user", "content": self.text()})

    def open_calls(self, lane: UUID | None = None, *, any_lane: bool = False) -> list[tuple[int, int]]:
        answered_calls = {(stitch.reply_to, stitch.call_index) for stitch in self.stitches}
        return [
            (stitch.position, index)
            for stitch in self.stitches
            if any_lane or stitch.lane == lane
            for index in range(stitch.calls or 0)
            if (stitch.position, index) not in answered_calls
        ]

    def fork(self) -> None:
        call = {"type": "tool_use", "id": f"f{len(self.stitches)}", "name": "look", "input": {}}
        messages = [
            {"role": "user", "content": self.text()},
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [tool_result(call["id"], self.text())]},
            {"role": "assistant", "content": self.text()},
        ]
        self.add("fork", data={"messages": messages})


class Unit:
    """A contribution to a context, with the results that follow it."""

    def __init__(self, stitch: Stitch, results: list[Stitch]) -> None:
        self.stitch = stitch
        self.results = results


def units(log: Log, lane: UUID | None) -> list[Unit]:
    """Return the groups of this lane that a compactor can keep, drop or replace."""
    stitches = [s for s in log.stitches if s.lane == lane and s.type != "tool_call" and (s.message or s.type == "fork")]
    return [Unit(stitch, [s for s in log.stitches if s.reply_to == stitch.position]) for stitch in stitches]


def orderly_compaction(chance: Random, log: Log, lane: UUID | None) -> dict[str, Any]:
    """Add a compaction that does not split groups: each is retained, dropped, shortened or summarised."""
    keep: list[list[int]] = []
    replace: dict[str, Any] = {}
    still_open = {response for response, _ in log.open_calls(lane)}
    for unit in units(log, lane):
        here = unit.stitch.position
        choice = chance.choice(["keep", "thin", "drop"] if here in still_open else ["keep", "thin", "drop", "sum up"])
        if choice in ("keep", "thin"):
            keep.append([here, here])
        for result in unit.results:
            if choice == "keep":
                keep.append([result.position, result.position])
            elif choice == "thin":
                replace[str(result.position)] = tool_result(result.call_id or "", f"removed: {log.text()}")
        if choice == "sum up":
            summary = {"role": "user", "content": f"summary: {log.text()}"}
            replace[str(here)] = chance.choice([summary, [summary, {"role": "assistant", "content": log.text()}]])
    return {"applied": True, "keep": keep, "replace": replace}


def wild_compaction(chance: Random, log: Log) -> dict[str, Any]:
    """Add a compaction that keeps and replaces random positions."""
    before = range(1, len(log.stitches) + 1)
    keep = [sorted(chance.choices(before, k=2)) for _ in range(chance.randint(0, 3)) if before]
    replace: dict[str, Any] = {}
    for position in chance.sample(before, min(chance.randint(0, 3), len(before))):
        stood = log.stitches[position - 1]
        if stood.type == "tool_call":
            replace[str(position)] = tool_result(stood.call_id or "", f"removed: {log.text()}")
        else:
            replace[str(position)] = {"role": "user", "content": f"summary: {log.text()}"}
    return {"applied": True, "keep": keep, "replace": replace}


WEIGHTS = {
    "turn": 2,
    "step": 4,
    "respond": 2,
    "answer": 2,
    "answer all": 2,
    "child": 1,
    "note": 2,
    "injected": 1,
    "side": 1,
    "checked": 1,
    "compact": 3,
    "fork": 1,
}
"""Relative frequency of each move."""


def built(seed: int, length: int, compacting: bool, orderly: bool, closed: bool) -> Log:
    """Return a log of this number of moves. With the same seed, a shorter log is a prefix of a longer one."""
    chance = Random(seed)
    log = Log()
    moves = [move for move in WEIGHTS if compacting or move not in ("compact", "fork")]
    weights = [WEIGHTS[move] for move in moves]
    for _ in range(length):
        move = chance.choices(moves, weights)[0]
        # Most moves are in the lane of the thread, so that it grows.
        lane = chance.choice((None, None, *LANES))
        if move in ("respond", "step"):
            log.respond(lane, chance.randint(0, 4))
        if move in ("answer all", "step"):
            waiting = log.open_calls(lane)
            for call in chance.sample(waiting, len(waiting)):
                log.answer(call)
        elif move == "answer" and (waiting := log.open_calls(any_lane=True)):
            log.answer(chance.choice(waiting))
        elif move == "note":
            log.add(chance.choice(SILENT), lane, data={"note": log.text()})
        elif move == "side":
            log.add("llm_call", lane, data={"purpose": "title"})
        elif move in ("compact", "checked"):
            data = orderly_compaction(chance, log, lane) if orderly else wild_compaction(chance, log)
            log.add("compaction", lane, data={**data, "applied": move == "compact"})
        elif move == "fork":
            log.fork()
        elif move in ("turn", "child", "injected"):
            {"turn": log.turn, "child": log.child, "injected": log.injected}[move](lane)
    while closed and (waiting := log.open_calls(any_lane=True)):
        log.answer(chance.choice(waiting))
    return log


def logs(*, compacting: bool = True, orderly: bool = True, closed: bool = False) -> st.SearchStrategy[Log]:
    """Strategy for logs.

    With `orderly`, compactions keep groups whole; with `closed`, every call is answered at the end.

    One number determines the whole log: drawing each move would take longer than the test itself.
    """
    switches = (st.just(compacting), st.just(orderly), st.just(closed))
    return st.builds(built, st.integers(0, 2**32), st.integers(0, 40), *switches)
