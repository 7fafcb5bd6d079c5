"""The checker: reads only the database and the ledger, and says what is wrong.

unfinished   threads that have not ended, or that failed without having crashed
lost         children without a result in their parent's log, runs of members that were asked for, and effects that a
             result tells of and that never happened
doubled      results delivered twice, children made twice, effects of a `once` tool that happened twice
forked       logs that are not one contiguous list
stale        stitches written under a fence that was lost before
"""

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from lockstitch.backend import Find
from lockstitch.records import Run, Stitch, Thread
from lockstitch.store import Store
from tests.chaos.house import CHILDREN, ONCE, RUNS


@dataclass
class Findings:
    threads: int = 0
    crashed: int = 0
    in_doubt: int = 0
    counts: Counter[str] = field(default_factory=Counter[str])
    problems: list[str] = field(default_factory=list[str])

    def __str__(self) -> str:
        kinds = ("unfinished", "lost", "doubled", "forked", "stale")
        return ", ".join(f"{kind} {self.counts[kind]}" for kind in kinds)

    @property
    def sound(self) -> bool:
        return not self.problems

    def add(self, kind: str, thread: Thread | UUID | str, what: str) -> None:
        self.counts[kind] += 1
        self.problems.append(f"{kind}: {thread.id if isinstance(thread, Thread) else thread}: {what}")


async def check(store: Store, ledger: Path) -> Findings:
    found = Findings()
    threads = await store.backend.find(Find(Thread, order=("id",)))
    found.threads = len(threads)
    report = await store.verify()
    for problem in report.problems:
        kind = {"fence": "stale", "answers": "doubled", "children": "doubled"}.get(problem["kind"], "forked")
        found.add(kind, problem["thread"], problem["detail"])
    children: defaultdict[UUID, list[Thread]] = defaultdict(list)
    for thread in threads:
        if thread.parent_id is not None:
            children[thread.parent_id].append(thread)
    effects = _effects(ledger)
    for thread in threads:
        log = await store.stitches(thread)
        _check_end(found, thread)
        _check_runs(found, thread, await store.runs(thread))
        _check_children(found, thread, log, children[thread.id])
        _check_effects(found, thread, log, effects)
    return found


def _check_end(found: Findings, thread: Thread) -> None:
    if thread.status == "failed" and "processes in a row" in str((thread.result or {}).get("error")):
        found.crashed += 1
    elif thread.status != "completed":
        found.add("unfinished", thread, f"{thread.agent} is {thread.status}, {thread.waiting_for} {thread.result}")
    if thread.worker_id is not None or (thread.ended and thread.kind != "chat" and thread.result is None):
        found.add("unfinished", thread, "it is held, or has no result")


def _check_runs(found: Findings, thread: Thread, runs: list[Run]) -> None:
    """A team has as many runs as its leader asked for, and none is open when it has ended."""
    if not thread.ended:
        return
    for run in runs:
        if run.open:
            found.add("unfinished", thread, f"run {run.sequence} of {run.agent} is {run.status}")
    expected = RUNS.get(thread.agent or "", [thread.agent])
    if thread.status == "completed" and [run.agent for run in runs] != expected:
        more = len(runs) > len(expected)
        found.add("doubled" if more else "lost", thread, f"its runs are those of {[run.agent for run in runs]}")


def _check_children(found: Findings, thread: Thread, log: list[Stitch], children: list[Thread]) -> None:
    spawned = Counter(stitch.child_id for stitch in log if stitch.type == "thread_spawned")
    results = Counter(stitch.child_id for stitch in log if stitch.type == "thread_result")
    known = {child.id for child in children}
    for child_id in spawned.keys() | results.keys() | known:
        if child_id not in known:
            found.add("lost", thread, f"child {child_id} is not there")
        if spawned[child_id] != 1:
            found.add("doubled", thread, f"child {child_id} was made {spawned[child_id]} times")
        if results[child_id] > 1:
            found.add("doubled", thread, f"child {child_id} reported {results[child_id]} times")
        elif not results[child_id] and thread.status == "completed":
            found.add("lost", thread, f"child {child_id} never reported")
    expected = CHILDREN.get(thread.agent or "", 0)
    if thread.status == "completed" and len(children) != expected:
        found.add("doubled" if len(children) > expected else "lost", thread, f"it has {len(children)} children")
    if thread.ended and thread.status == "completed" and thread.pending_children:
        found.add("lost", thread, f"{thread.pending_children} children are still counted as open")


def _check_effects(found: Findings, thread: Thread, log: list[Stitch], effects: Counter[str]) -> None:
    """A result stands for one effect, or at least one of a tool that may run again; a doubt for one or none."""
    once = 0
    for stitch in log:
        if stitch.type != "tool_call" or stitch.name not in ("charge", "put", "look"):
            continue
        # In a member's lane the id of a call is not the only one of its kind.
        whose = f":{stitch.run_id}" if stitch.lane is not None else ""
        happened = effects[f"{thread.id}{whose}:{stitch.call_id}"]
        once += stitch.name == "charge"
        if stitch.status == "in_doubt":
            found.in_doubt += 1
        elif stitch.status == "ok" and not happened:
            found.add("lost", thread, f"{stitch.name} {stitch.call_id} has a result and no effect")
        if stitch.name == "charge" and happened > 1:
            found.add("doubled", thread, f"charge {stitch.call_id} happened {happened} times")
    expected = ONCE.get(thread.agent or "", 0)
    if thread.status == "completed" and once != expected:
        found.add("lost" if once < expected else "doubled", thread, f"{once} calls of charge were answered")


def _effects(ledger: Path) -> Counter[str]:
    """How often each effect happened. A line that was cut off by a kill was no whole effect."""
    found: Counter[str] = Counter()
    for line in ledger.read_text().splitlines() if ledger.exists() else []:
        try:
            told = json.loads(line)
        except ValueError:
            continue
        found[told["key"]] += 1
    return found
