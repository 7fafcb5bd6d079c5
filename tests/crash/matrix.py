"""The crash matrix: a play is killed at every named point, continues in a new process, and must reach the same end.

There are four plays: the errand of one agent; the work of teams, where each lane is compared separately; a chat with
repeated requests, a regenerated answer and a fork; and a payment with a run that is cancelled and retried. The record
of the last one depends on the moment of the kill, so only its end and its effects are checked.

Processes are forked from one that has imported everything. Each opens its own store and is killed with SIGKILL.
"""

import asyncio
import json
import os
import signal
import sys
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from lockstitch.engine.decision.in_doubt import shown
from lockstitch.model import Record, Run, Stitch
from lockstitch.model.stitch import TAKEN_OVER
from lockstitch.store import open_store
from lockstitch.testing import KillPoints
from tests.crash import cancelling, chat, errand, teamwork

R = TypeVar("R", bound=Record)


@dataclass(frozen=True)
class Play:
    """A scenario that is killed."""

    run: Callable[[str, Path, KillPoints], Coroutine[Any, Any, Any]]
    important: Sequence[str]
    """Points around tools that may run once, and around pauses."""
    least: int = 60
    """Minimum number of named points. With fewer, the play is too small."""
    lanes: bool = False
    """True if several runs execute concurrently, so that the order between them varies."""
    effects: Mapping[str, int] = field(default_factory=dict[str, int])
    """How often each of these tools must have taken effect at the end. Then the record is not compared."""


PLAYS = {
    "errand": Play(
        errand.run, ("tool.before:2", "tool.after:2", "append.after:6", "append.before:15", "tool.after:10")
    ),
    "teamwork": Play(
        teamwork.run,
        ("tool.before:3", "tool.after:3", "append.after:8", "append.before:12", "tool.after:9"),
        lanes=True,
    ),
    "chat": Play(
        chat.run,
        ("tool.before:1", "tool.after:2", "append.after:1", "append.before:7", "append.after:7", "tool.after:3"),
        least=40,
    ),
    "cancelling": Play(
        cancelling.run,
        ("tool.before:2", "append.after:4", "append.before:5", "append.after:6"),
        least=20,
        effects={"charge": 1},
    ),
}

UNREACHED = 0.05
"""Share of the points that a play with lanes may miss, because the number of its commits varies a little."""

_POSITIONS = {
    *("position", "reply_to", "first_position", "input_position", "output_position", "context_from"),
    "keep",
}
"""Fields, also inside of data, whose values are positions in the log."""

_UNSTEADY = {"since", "first_token_ms", "key", "forked_from"}
_PLACES = {"position", "reply_to", "lane", "first_position", "input_position", "output_position", "parent_run_id"}
_NAMES = {"run", "position"}
_LEFT_OUT = {"id", "thread_id", "run_id", "previous_id", "fence", "log_id", "at", "duration_ms"}
_LEFT_OUT_OF_RUNS = {"id", "thread_id", "started_at", "completed_at"}
_LEFT_OUT_IN_DOUBT = {
    "input_tokens",
    "output_tokens",
    "estimated_tokens",
    "data",
    "message",
    "status",
    "messages_count",
}


@dataclass
class Verdict:
    """The outcome of the play after a kill at one point."""

    point: str
    problems: list[str] = field(default_factory=list[str])
    lost: int = 0
    repeated: int = 0
    in_doubt: int = 0
    reached: bool = True
    """False if the play ended before it reached the point: members of a team may share a commit or not."""


@dataclass
class MatrixReport:
    """The outcome of all kills on one backend."""

    verdicts: list[Verdict] = field(default_factory=list[Verdict])

    @property
    def lost(self) -> int:
        return sum(verdict.lost for verdict in self.verdicts)

    @property
    def repeated(self) -> int:
        return sum(verdict.repeated for verdict in self.verdicts)

    @property
    def in_doubt(self) -> int:
        return sum(verdict.in_doubt for verdict in self.verdicts)

    @property
    def problems(self) -> list[str]:
        unreached = [verdict.point for verdict in self.verdicts if not verdict.reached]
        return [
            *(f"{verdict.point}: {problem}" for verdict in self.verdicts for problem in verdict.problems),
            *([f"not reached: {', '.join(unreached)}"] if len(unreached) > UNREACHED * len(self.verdicts) else []),
        ]

    def __str__(self) -> str:
        summary = f"lost {self.lost}, repeated {self.repeated}, in doubt {self.in_doubt}"
        return "\n  ".join([f"{len(self.verdicts)} points: {summary}", *self.problems])


@dataclass(frozen=True)
class PlayRecord:
    """The record of a play that ended."""

    stitches: list[Stitch]
    runs: list[Run]
    problems: list[Any]
    lanes: bool = False

    def strict(self) -> list[dict[str, Any]]:
        return [self._comparable(stitch, _LEFT_OUT) for stitch in self._in_order()]

    def _in_order(self) -> list[Stitch]:
        """Return the stitches, grouped by run if several runs execute concurrently."""
        if not self.lanes:
            return self.stitches
        places = {run.id: place for place, run in enumerate(self.runs)}
        return sorted(self.stitches, key=lambda stitch: (places[stitch.run_id or stitch.id], stitch.position))

    def _comparable(self, record: Any, left_out: set[str]) -> dict[str, Any]:
        if not self.lanes:
            return _without(record, left_out)
        return _without(record, left_out | _PLACES, _UNSTEADY | _NAMES)

    def loose(self) -> list[dict[str, Any]]:
        """Return the record without the parts that change when a call is in doubt."""
        places = {run.id: place for place, run in enumerate(self.runs)}
        stitches = [stitch for stitch in self.stitches if stitch.type not in _ABOUT_DOUBT]
        # A call in doubt is answered before the other calls of its response run.
        stitches.sort(
            key=lambda stitch: (
                # A fork stitch belongs to no run. It is the first of its thread.
                places.get(stitch.run_id, -1) if stitch.run_id else -1,
                stitch.step_number or 0,
                stitch.type,
                stitch.call_index or 0,
            )
        )
        return [
            self._comparable(stitch, _LEFT_OUT | _LEFT_OUT_IN_DOUBT | {"position", "reply_to"}) for stitch in stitches
        ]

    def totals(self) -> list[dict[str, Any]]:
        return [self._comparable(run, _LEFT_OUT_OF_RUNS) for run in self.runs]

    def calls(self) -> dict[tuple[str, int], Stitch]:
        """Return the results by the id of their response and the index of the call."""
        ids = {(stitch.thread_id, stitch.position): str(stitch.id) for stitch in self.stitches}
        results = [stitch for stitch in self.stitches if stitch.type == "tool_call"]
        return {(ids[stitch.thread_id, stitch.reply_to or 0], stitch.call_index or 0): stitch for stitch in results}

    def doubts(self) -> set[tuple[str, int]]:
        """Return the calls that the record reports as in doubt, or as settled by a person."""
        return {call for call, stitch in self.calls().items() if stitch.status in ("in_doubt", "settled")}


# Effects of a doubt: the started entry, pauses to ask, and compactions because of other sizes.
_ABOUT_DOUBT = {
    *("tool_started", "run_paused", "run_resumed", "compaction", "context_transformation"),
    *("memory_before_compact", "memory_after_compact"),
}


def kill_at_points(
    fresh_url: Callable[[], str],
    folder: Path,
    count: int | None = None,
    name: str = "errand",
    only: Sequence[str] = (),
) -> MatrixReport:
    """Kill a play at every point, at `count` of them, or only at the given ones, each in a separate store."""
    play = PLAYS[name]
    points, undisturbed = named_points(play, fresh_url(), _folder(folder, "whole"))
    if len(points) < play.least:
        raise AssertionError(f"the {name} has {len(points)} points, and {play.least} are the least")
    chosen = only or (points if count is None else spread(points, count, play.important))
    return MatrixReport([kill_at(play, point, fresh_url(), _folder(folder, point), undisturbed) for point in chosen])


def spread(points: Sequence[str], count: int, important: Sequence[str]) -> list[str]:
    """Return some of the points in their order: the important ones, and more at equal distances."""
    other_points = [point for point in points if point not in important]
    missing = [point for point in important if point not in points]
    if missing:
        raise AssertionError(f"the play does not reach {', '.join(missing)}")
    more = max(0, count - len(important))
    chosen = {*important, *(other_points[(place * len(other_points)) // more] for place in range(more))}
    return [point for point in points if point in chosen]


def named_points(play: Play, url: str, folder: Path) -> tuple[list[str], PlayRecord]:
    """Return every point of an uninterrupted play, and its record.

    The play runs in this process, so that the processes that are forked from it have loaded all that they need.
    """
    trace = folder / "points"
    _live(play, url, folder / "ledger.jsonl", trace=trace)
    return trace.read_text().split(), asyncio.run(_read_record(play, url))


def kill_at(play: Play, point: str, url: str, folder: Path, undisturbed: PlayRecord) -> Verdict:
    """Kill the play at one point, finish it in another process, and compare."""
    verdict = Verdict(point)
    ledger = folder / "ledger.jsonl"
    code = in_process(lambda: _live(play, url, ledger, kill_at=point))
    if code == 0 and play.lanes:
        verdict.reached = False
    elif code != -signal.SIGKILL:
        verdict.problems.append(f"was not killed, but ended with {code}")
        return verdict
    else:
        code = in_process(lambda: _live(play, url, ledger))
    if code != 0:
        verdict.problems.append(f"could not be finished: {code}")
        verdict.lost += 1
        return verdict
    outcome = asyncio.run(_read_record(play, url))
    if play.effects:
        _check_effects(verdict, play, ledger, outcome)
    else:
        _compare(verdict, outcome, undisturbed)
    _check_ledger(verdict, ledger, outcome)
    return verdict


def _check_effects(verdict: Verdict, play: Play, ledger: Path, outcome: PlayRecord) -> None:
    """Check that the last run completed, each tool took effect as often as required, and results name their calls in
    doubt."""
    verdict.problems += [str(problem) for problem in outcome.problems]
    verdict.in_doubt = len(outcome.doubts())
    if outcome.runs[-1].status != "completed":
        verdict.lost += 1
        verdict.problems.append(f"the last run is {outcome.runs[-1].status}")
    counts = Counter(line["tool"] for line in _lines(ledger))
    for name, expected in play.effects.items():
        if counts[name] != expected:
            verdict.repeated += counts[name] > expected
            verdict.lost += counts[name] < expected
            verdict.problems.append(f"{name} happened {counts[name]} times")
    for run in outcome.runs:
        doubts = {
            stitch.call_id for stitch in outcome.stitches if stitch.run_id == run.id and stitch.status == "in_doubt"
        }
        if run.status == "cancelled" and not doubts <= {doubt["call_id"] for doubt in shown(run)}:
            verdict.problems.append(f"run {run.sequence} does not name its calls in doubt")


def _compare(verdict: Verdict, outcome: PlayRecord, undisturbed: PlayRecord) -> None:
    verdict.problems += [str(problem) for problem in outcome.problems]
    doubts = outcome.doubts()
    verdict.in_doubt = len(doubts)
    actual, expected = (outcome.loose(), undisturbed.loose()) if doubts else (outcome.strict(), undisturbed.strict())
    if actual != expected:
        verdict.problems.append(_difference(actual, expected))
        verdict.lost += len(actual) < len(expected)
        verdict.repeated += len(actual) > len(expected)
    if len(outcome.runs) != len(undisturbed.runs) or {
        stitch.run_id for stitch in outcome.stitches if stitch.type != "fork"
    } != {run.id for run in outcome.runs}:
        verdict.problems.append("it did not stay one run" if not outcome.lanes else "there are other runs")
    elif outcome.runs[0].started_at > outcome.stitches[1].at:  # type: ignore[operator]
        verdict.problems.append("the run was started again")
    if not doubts and outcome.totals() != undisturbed.totals():
        verdict.problems.append(_difference(outcome.totals(), undisturbed.totals()))


def _check_ledger(verdict: Verdict, ledger: Path, outcome: PlayRecord) -> None:
    """Check the effects outside of the record: every effect of a `once` tool happened once, or is reported as in doubt.
    Each call has one key in all attempts, and no two calls have the same key."""
    lines = _lines(ledger)
    counts = Counter((line["response"], line["index"]) for line in lines)
    keys: defaultdict[tuple[str, int], set[str]] = defaultdict(set)
    users: defaultdict[str, set[tuple[str, int]]] = defaultdict(set)
    for line in lines:
        keys[line["response"], line["index"]].add(line["key"])
        users[line["key"]].add((line["response"], line["index"]))
    calls, doubts = outcome.calls(), outcome.doubts()
    for call, stitch in calls.items():
        if stitch.name in ("look", "confirm", "delegate"):
            continue
        place = f"{stitch.name} at position {stitch.position}"
        if stitch.name in ("charge", "pay") and counts[call] > 1:
            verdict.repeated += 1
            verdict.problems.append(f"{place} happened {counts[call]} times")
        if counts[call] == 0 and call not in doubts and stitch.status != "cancelled":
            verdict.lost += 1
            verdict.problems.append(f"{place} is recorded and never happened")
    for call in counts.keys() - calls.keys():
        verdict.lost += 1
        verdict.problems.append(f"call {call[1]} of response {call[0]} happened and is not recorded")
    for call in (reference for reference, call_keys in keys.items() if len(call_keys) > 1):
        verdict.repeated += 1
        verdict.problems.append(f"call {call[1]} of response {call[0]} had several keys")
    for key in (used_key for used_key, references in users.items() if len(references) > 1):
        verdict.lost += 1
        verdict.problems.append(f"several calls had the key {key}")


def _lines(ledger: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ledger.read_text().splitlines()] if ledger.exists() else []


def _folder(parent: Path, name: str) -> Path:
    folder = parent / name.replace(":", "-")
    folder.mkdir(parents=True)
    return folder


def _live(play: Play, url: str, ledger: Path, *, kill_at: str | None = None, trace: Path | None = None) -> None:
    asyncio.run(play.run(url, ledger, KillPoints(kill_at, trace=trace)))


async def _read_record(play: Play, url: str) -> PlayRecord:
    async with open_store(url) as store:
        report = await store.verify()
        threads = sorted(await store.threads(), key=lambda thread: thread.created_at)
        stitches: list[Stitch] = []
        runs: list[Run] = []
        problems = list(report.problems)
        for thread in threads:
            log = await store.stitches(thread)
            problems += _problems_of_takeovers(log)
            places = _places_without_takeovers(log)
            stitches += [_moved(stitch, places) for stitch in log if stitch.type != TAKEN_OVER]
            runs += [_moved(run, places) for run in await store.runs(thread)]
        return PlayRecord(stitches, runs, problems, play.lanes)


def _problems_of_takeovers(log: Sequence[Stitch]) -> list[str]:
    """Check that a thread is taken over at most once, by another process than the one that lost it."""
    takeovers = [stitch.data for stitch in log if stitch.type == TAKEN_OVER]
    problems = [] if len(takeovers) <= 1 else [f"it was taken over {len(takeovers)} times"]
    return problems + [
        f"{takeover} is no takeover"
        for takeover in takeovers
        if takeover["lost_by"]["pid"] == takeover["taken_by"]["pid"]
    ]


def _places_without_takeovers(log: Sequence[Stitch]) -> dict[int, int]:
    """Return the position that each stitch would have if no process had been killed."""
    positions = [stitch.position for stitch in log if stitch.type != TAKEN_OVER]
    return {position: place for place, position in enumerate(positions, start=1)}


def _moved(record: R, places: Mapping[int, int]) -> R:
    """Return a stitch or a run with the positions that it would have if no process had been killed."""
    after = max(places.values(), default=0) + 1

    def move(name: str, value: Any) -> Any:
        if name == "replace":
            return {str(move("position", int(key))): item for key, item in value.items()}
        if isinstance(value, dict):
            return {key: move(key, item) for key, item in value.items()}
        if isinstance(value, list):
            return [move(name, item) for item in value]
        if name not in _POSITIONS or not isinstance(value, int) or value <= 0:
            return value
        # A position may be referred to before its stitch exists.
        return places.get(value) or next((places[place] for place in sorted(places) if place > value), after)

    return record.changed(**{name: move(name, value) for name, value in record.__dict__.items()})


def in_process(work: Callable[[], None]) -> int:
    """Return the exit code of `work` in a separate process; the negative signal if one ended it."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def _without(record: Any, left_out: Iterable[str], within: Iterable[str] = _UNSTEADY) -> dict[str, Any]:
    return {name: _steady(value, within) for name, value in record.as_json().items() if name not in left_out}


def _steady(value: Any, left_out: Iterable[str]) -> Any:
    """Return a value without times and other parts that differ between two plays."""
    if isinstance(value, dict):
        return {name: _steady(item, left_out) for name, item in value.items() if name not in left_out}
    return [_steady(item, left_out) for item in value] if isinstance(value, list) else value


def _difference(actual: list[dict[str, Any]], expected: list[dict[str, Any]]) -> str:
    for place, (actual_entry, expected_entry) in enumerate(zip(actual, expected, strict=False)):
        if actual_entry != expected_entry:
            names = [name for name in actual_entry if actual_entry[name] != expected_entry.get(name)]
            return f"entry {place + 1} differs: " + "; ".join(
                f"{name}: {actual_entry[name]!r} instead of {expected_entry.get(name)!r}" for name in names
            )
    return f"{len(actual)} entries instead of {len(expected)}"


def killed(name: str, folder: str, urls: Sequence[str], only: Sequence[str] = ()) -> str:
    """Return the report on a play that runs once in the first store and is killed in each of the other stores."""
    remaining_urls = iter(urls)
    return str(kill_at_points(lambda: next(remaining_urls), Path(folder), len(urls) - 1, name, only))
