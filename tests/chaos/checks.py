"""The checker: reads only the database and the ledger, and returns the problems.

unfinished   threads without the required end: poison threads fail, all other threads are completed
lost         children without a result in their parent's log, missing runs of members, and effects that a result
             contains and that never happened
doubled      results delivered twice, children created twice, effects of a `once` tool that happened twice, effects
             under a key that no call of the record has
forked       logs that are not one contiguous list
stale        stitches written under a fence that was lost before
"""

import json
from collections import Counter, defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from lockstitch.backend import Find
from lockstitch.model import Run, Stitch, Thread, call_key
from lockstitch.model.delivery import is_at_rest
from lockstitch.model.thread import MAX_CRASHES
from lockstitch.store import Store
from tests.chaos.booth import payments
from tests.chaos.clients import problems_of_clients, read_clients
from tests.chaos.scenario import CHILDREN, ONCE, POISON, RUNS


@dataclass
class Findings:
    threads: int = 0
    crashed: int = 0
    poison: int = 0
    in_doubt: int = 0
    requests: int = 0
    counts: Counter[str] = field(default_factory=Counter[str])
    problems: list[str] = field(default_factory=list[str])

    def __str__(self) -> str:
        kinds = ("unfinished", "lost", "doubled", "forked", "stale")
        return ", ".join(f"{kind} {self.counts[kind]}" for kind in kinds)

    @property
    def sound(self) -> bool:
        return not self.problems

    def add(self, kind: str, thread: Thread | UUID | str, problem: str) -> None:
        self.counts[kind] += 1
        self.problems.append(f"{kind}: {thread.id if isinstance(thread, Thread) else thread}: {problem}")


async def check(store: Store, ledger: Path, killed: Collection[int] = ()) -> Findings:
    """Read everything and return the problems. `killed` are the pids of workers that the test killed."""
    findings = Findings()
    threads = await store._backend.find(Find(Thread, order=("id",)))
    findings.threads = len(threads)
    report = await store.verify()
    for problem in report.problems:
        kind = {"fence": "stale", "answers": "doubled", "children": "doubled"}.get(problem["kind"], "forked")
        findings.add(kind, problem["thread"], problem["detail"])
    children: defaultdict[UUID, list[Thread]] = defaultdict(list)
    for thread in threads:
        if thread.parent_id is not None:
            children[thread.parent_id].append(thread)
    effects, keys, paid = _effects(ledger), set[str](), payments(ledger)
    for thread in threads:
        log = await store.stitches(thread)
        keys |= {call_key(stitch.id, index) for stitch in log for index in range(stitch.calls or 0)}
        _check_end(findings, thread, log, killed)
        if thread.agent == "booth":
            _check_booth(findings, thread, log, paid)
            continue
        _check_effects(findings, thread, log, effects)
        if thread.agent != "clerk":
            _check_runs(findings, thread, await store.runs(thread))
            _check_children(findings, thread, log, children[thread.id])
    findings.requests = sum(client.requests for client in read_clients(ledger.parent))
    for kind, key, text in await problems_of_clients(store, ledger.parent):
        findings.add(kind, key, text)
    for key in sorted(effects.keys() - keys):
        findings.add("doubled", "ledger", f"{effects[key]} effects have the key {key}, which no call has")
    return findings


def _check_end(findings: Findings, thread: Thread, log: list[Stitch], killed: Collection[int]) -> None:
    if thread.agent == POISON:
        findings.poison += 1
        if thread.status != "failed" or "processes in a row ended" not in str((thread.result or {}).get("error")):
            findings.add("unfinished", thread, f"it kills its process and is {thread.status}, {thread.result}")
    elif thread.status == "failed" and _crashed_by_chance(log, killed):
        findings.crashed += 1
    elif thread.status != "completed" and not (thread.agent == "clerk" and is_at_rest(thread)):
        findings.add("unfinished", thread, f"{thread.agent} is {thread.status}, {thread.waiting_for} {thread.result}")
    if thread.worker_id is not None or (thread.ended and thread.kind != "chat" and thread.result is None):
        findings.add("unfinished", thread, "it is held, or has no result")


def _crashed_by_chance(log: list[Stitch], killed: Collection[int]) -> bool:
    """True if the test caused all counted crashes: it killed the process, or blocked its heartbeat. Three in a row for
    one thread are rare. No thread may be held responsible for a process that a poison thread ended."""
    losses = [stitch.data["lost_by"] for stitch in log if stitch.type == "thread_taken_over"][-MAX_CRASHES:]
    return len(losses) == MAX_CRASHES and all(loss.get("cause") != "died" or loss["pid"] in killed for loss in losses)


def _check_runs(findings: Findings, thread: Thread, runs: list[Run]) -> None:
    """Check that a team has as many runs as its leader requested, and no open run after its end."""
    if not thread.ended:
        return
    for run in runs:
        if run.open:
            findings.add("unfinished", thread, f"run {run.sequence} of {run.agent} is {run.status}")
    expected = RUNS.get(thread.agent or "", [thread.agent])
    if thread.status == "completed" and [run.agent for run in runs] != expected:
        more = len(runs) > len(expected)
        findings.add("doubled" if more else "lost", thread, f"its runs are those of {[run.agent for run in runs]}")


def _check_children(findings: Findings, thread: Thread, log: list[Stitch], children: list[Thread]) -> None:
    # If the store was unreachable while a tool read the children, the tool failed.
    failed = Counter(stitch.name for stitch in log if stitch.type == "tool_call" and stitch.status == "error")
    waited = not failed["wait_for_threads"]
    spawned = Counter(stitch.child_id for stitch in log if stitch.type == "thread_spawned")
    results = Counter(stitch.child_id for stitch in log if stitch.type == "thread_result")
    child_ids = {child.id for child in children}
    for child_id in spawned.keys() | results.keys() | child_ids:
        if child_id not in child_ids:
            findings.add("lost", thread, f"child {child_id} is not there")
        if spawned[child_id] != 1:
            findings.add("doubled", thread, f"child {child_id} was made {spawned[child_id]} times")
        if results[child_id] > 1:
            findings.add("doubled", thread, f"child {child_id} reported {results[child_id]} times")
        elif not results[child_id] and thread.status == "completed" and waited:
            findings.add("lost", thread, f"child {child_id} never reported")
    expected = CHILDREN.get(thread.agent or "", 0) - failed["create_thread"]
    if thread.status == "completed" and len(children) != expected:
        findings.add("doubled" if len(children) > expected else "lost", thread, f"it has {len(children)} children")
    if thread.ended and thread.status == "completed" and thread.pending_children and waited:
        findings.add("lost", thread, f"{thread.pending_children} children are still counted as open")


def _check_effects(findings: Findings, thread: Thread, log: list[Stitch], effects: Counter[str]) -> None:
    """Check that a result has one effect, or at least one of a tool that may run again, and a doubt one or none."""
    once = 0
    responses = {stitch.position: stitch.id for stitch in log if stitch.type == "llm_call"}
    for stitch in log:
        if stitch.type != "tool_call" or stitch.name not in ("charge", "put", "look"):
            continue
        happened = effects[call_key(responses[stitch.reply_to or 0], stitch.call_index or 0)]
        once += stitch.name == "charge"
        if stitch.status == "in_doubt":
            findings.in_doubt += 1
        elif stitch.status == "ok" and not happened:
            findings.add("lost", thread, f"{stitch.name} {stitch.call_id} has a result and no effect")
        if stitch.name == "charge" and happened > 1:
            findings.add("doubled", thread, f"charge {stitch.call_id} happened {happened} times")
    expected = ONCE.get(thread.agent or "")
    if thread.status == "completed" and expected not in (None, once):
        findings.add("lost" if once < (expected or 0) else "doubled", thread, f"{once} calls of charge were answered")


def _check_booth(findings: Findings, thread: Thread, log: list[Stitch], paid: Counter[tuple[str, str]]) -> None:
    """Check that a customer pays at most once in all retries, and that a result means a payment."""
    answers = [stitch for stitch in log if stitch.type == "tool_call" and stitch.name == "charge"]
    total = sum(paid[str(thread.id), call] for call in {str(stitch.call_id) for stitch in answers})
    findings.in_doubt += sum(stitch.status == "in_doubt" for stitch in answers)
    if total > 1:
        findings.add("doubled", thread, f"its customer paid {total} times")
    if not total and any(stitch.status == "ok" for stitch in answers):
        findings.add("lost", thread, "charge has a result and no effect")


def repeats(ledger: Path) -> bool:
    """True if an effect happened more than once, also one of a tool that may run again."""
    return any(count > 1 for count in _effects(ledger).values())


def _effects(ledger: Path) -> Counter[str]:
    """Return how often each effect happened. An incomplete line is not an effect."""
    counts: Counter[str] = Counter()
    for line in ledger.read_text().splitlines() if ledger.exists() else []:
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        counts[entry["key"]] += 1
    return counts
