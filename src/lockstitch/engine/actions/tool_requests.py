"""Apply the requests of a tool call (children, waits, tasks, end) within the limits of the thread tree."""

from contextlib import suppress

from lockstitch.engine.decision.snapshot import Call
from lockstitch.engine.ports.tool import ToolFailed, ToolRequests
from lockstitch.engine.session.run_context import RunContext
from lockstitch.errors import NotFound
from lockstitch.model import Json
from lockstitch.model.delivery import reporting_lane

_GOAL = 500
"""Characters of a child's goal that the log of its parent repeats."""


def refusal(context: RunContext, requests: ToolRequests) -> ToolFailed | None:
    """Return the error if a limit forbids the requests, else None.

    It is called when the result is recorded, so children of concurrent calls count too.
    """
    if not requests.children:
        return None
    definition, head = context.config.definition, context.session.head
    if head.kind == "replay":
        return ToolFailed("The child thread was not created: a replay creates no threads.")
    if head.depth + 1 > definition.max_depth:
        return ToolFailed(
            f"The child thread was not created: this thread is at depth {head.depth}, and the maximum depth is "
            f"{definition.max_depth}. Do the work in this thread."
        )
    spawning = context.session.spawning
    open_children = head.pending_children + len(spawning) + len(requests.children)
    if open_children > definition.max_children:
        return ToolFailed(
            f"The child thread was not created: a thread may have at most {definition.max_children} open children. "
            "Wait until some of them have ended, then try again."
        )
    keys = [child.key for child in (*spawning, *requests.children) if child.key is not None]
    return next((_key_taken(key) for key in keys if keys.count(key) > 1), None)


async def check_keys(context: RunContext, requests: ToolRequests) -> None:
    """Raise `ToolFailed` if another thread has the key of a child. Its commit would fail in every attempt."""
    session = context.session
    for key in [child.key for child in requests.children if child.key is not None]:
        with suppress(NotFound):
            await session.store.in_project(session.head.project).thread(key)
            raise _key_taken(key)


def _key_taken(key: str) -> ToolFailed:
    return ToolFailed(f"The child thread was not created: another thread has the key {key}.")


async def resolve_wait(context: RunContext, requests: ToolRequests) -> None:
    """Reduce a wait to children that will still report to this lane. Without ids, wait for all open children."""
    wait = requests.wait
    if wait is None:
        return
    session = context.session
    new = {str(child.id) for child in requests.children}
    if not wait["ids"] or not new.issuperset(wait["ids"]):
        children = await session.store.children(session.head)
        others = {str(child.id) for child in children if reporting_lane(child) != session.lane}
        names = wait["ids"] or [str(child.id) for child in children if not child.ended]
        wait["ids"] = [name for name in names if name not in others]
    reported = await session.store.execution.reported_children(session.head, wait["ids"])
    left = [name for name in wait["ids"] if name not in reported]
    enough = not left or (wait["mode"] == "any" and len(left) < len(wait["ids"]))
    requests.wait = None if enough else {**wait, "ids": left}


async def check_budget(context: RunContext, requests: ToolRequests) -> None:
    """Raise `ToolFailed` if the requests create children and the tree has used its budget."""
    limit = context.config.definition.tree_budget
    if limit is None or not requests.children:
        return
    session = context.session
    total_cost = session.open_run.total_cost or 0.0
    spent = await session.store.execution.tree_cost(session.head, but=session.open_run.id) + total_cost
    if spent >= limit:
        raise ToolFailed(
            f"The child thread was not created: this tree of threads has spent {spent:.6f} USD of its budget of "
            f"{limit} USD. Finish without new child threads."
        )


def apply_requests(context: RunContext, call: Call, requests: ToolRequests) -> None:
    """Buffer the requests of a call. The commit of its result executes them."""
    session = context.session
    awaited: list[str] = requests.wait["ids"] if requests.wait else []
    for child in requests.children:
        about: Json = {"goal": (child.goal or "")[:_GOAL], "awaited": str(child.id) in awaited}
        spawned = session.entry(
            "thread_spawned", child_id=child.id, name=child.agent, call_id=call.id, call_index=call.index, data=about
        )
        session.spawn(child, spawned)
    if requests.tasks is not None:
        session.record(tasks=requests.tasks)
