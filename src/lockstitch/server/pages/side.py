"""What stands beside a conversation: goal, tasks, children, context, cost, facts."""

import math
from dataclasses import dataclass
from typing import Any, Final, cast

from lockstitch.backend import Find, Where
from lockstitch.errors import NotFound
from lockstitch.records import Json, Stitch, Thread
from lockstitch.server.pages import waiting
from lockstitch.server.pages.figures import span
from lockstitch.server.pages.rows import Row, rows
from lockstitch.store import Store
from lockstitch.store.overview import overviews

_CHILDREN: Final = 50
"""Children that are shown beside; all are in the tree."""


@dataclass(frozen=True, slots=True)
class Context:
    """How large the context is, as the provider counted it with the last call."""

    tokens: int
    cached: int
    written: int
    limit: int | None
    """Where it is compacted."""

    def share(self, tokens: int) -> float:
        return round(100 * tokens / max(self.limit or 0, self.tokens, 1), 2)


@dataclass(frozen=True, slots=True)
class Side:
    """Everything beside a conversation."""

    tasks: list[Json]
    done: int
    children: list[Row]
    more_children: int
    context: Context | None
    runs: int
    run_cost: float | None
    cost: float | None
    cached: float | None
    """Of what was sent, the share that came from a cache."""
    holder: str


async def side_of(store: Store, head: Thread) -> Side:
    children = await store.children(head)
    runs = (await overviews(store.backend, [head]))[0]
    below = await rows(store, children[:_CHILDREN])
    last = await store.desk.last_run(head)
    costs = [cost for cost in (runs.total_cost, *(row.cost for row in below)) if cost is not None]
    sent = runs.usage["input_tokens"]
    tasks = head.tasks
    return Side(
        tasks=tasks,
        done=sum(str(task.get("status")) in ("completed", "done") for task in tasks),
        children=below,
        more_children=max(0, len(children) - _CHILDREN),
        context=await _context(store, head),
        runs=runs.runs,
        run_cost=last.total_cost if last else None,
        cost=math.fsum(costs) if costs else None,
        cached=runs.usage["cache_read_input_tokens"] / sent if sent else None,
        holder=str(head.worker_id)[:13] if head.worker_id else "nobody",
    )


async def _context(store: Store, head: Thread) -> Context | None:
    """Read off the newest response that tells it, a little before the end of the log."""
    first = max(head.first_position, head.position - 60)
    where = (
        Where("thread_id", "=", head.id),
        Where("position", ">=", first),
        Where("type", "=", "llm_call"),
    )
    found = await store.backend.find(Find(Stitch, where, order=("-position",), limit=5))
    for stitch in found:
        if stitch.input_tokens is not None and stitch.lane is None and "purpose" not in stitch.data:
            limit = await _limit(store, head)
            tokens = stitch.input_tokens + (stitch.output_tokens or 0)
            return Context(tokens, stitch.cache_read_tokens or 0, stitch.cache_write_tokens or 0, limit)
    return None


async def _limit(store: Store, head: Thread) -> int | None:
    """Where the agent's compactor begins, if it has one that says so."""
    if head.agent is None or head.version is None:
        return None
    try:
        stored = await store.agents.version(head.project, head.agent, head.version)
    except NotFound:
        return None
    compactor: Any = stored.definition.get("compactor")
    told: Any = cast("Json", compactor).get("parameters") if isinstance(compactor, dict) else None
    threshold: Any = cast("Json", told).get("threshold") if isinstance(told, dict) else None
    return threshold if isinstance(threshold, int) else None


def state_of(store: Store, head: Thread) -> tuple[str, bool, str]:
    """How a thread stands: its status, whether a person is needed, and the words for it."""
    now = store.clock.now()
    personal = waiting.person_waits_of(head)
    if personal:
        since = waiting.since_of(personal[0])
        return "waiting", True, "waits for a person" + (f", {span((now - since).total_seconds())}" if since else "")
    if head.status == "waiting":
        kinds = [str(one.get("kind")) for one in head.waiting_for if one.get("kind") != "input" or one.get("id")]
        words = {"children": "its children", "timer": "its time", "retry": "another try"}
        if kinds:
            return "waiting", False, "waits for " + words.get(kinds[0], kinds[0].replace("_", " "))
        return "waiting", False, "waits for the next message"
    if head.cancel_requested and not head.ended:
        return head.status, False, "is being cancelled"
    return head.status, False, head.status
