"""Placing orders: what calls want to happen with their results, as far as the limits of a tree of threads allow it."""

from lockstitch.engine.decision.snapshot import Call
from lockstitch.engine.ports.tool import ToolFailed, ToolRequests
from lockstitch.engine.session.run_context import RunContext
from lockstitch.model import Json
from lockstitch.model.delivery import reporting_lane

_GOAL = 500
"""Characters of a child's goal that its parent's log repeats."""


def refusal(context: RunContext, orders: ToolRequests) -> ToolFailed | None:
    """Why these orders cannot be placed. Asked when the result is noted: calls that run side by side count too."""
    if not orders.children:
        return None
    definition, head = context.setup.definition, context.journal.head
    if head.depth + 1 > definition.max_depth:
        return ToolFailed(
            f"Threads may be {definition.max_depth} deep, and this one is at depth {head.depth}. Do it yourself."
        )
    open_children = head.pending_children + context.journal.spawning + len(orders.children)
    if open_children > definition.max_children:
        return ToolFailed(
            f"A thread may have {definition.max_children} open children. Wait for some of them to end first."
        )
    return None


async def resolve_wait(context: RunContext, orders: ToolRequests) -> None:
    """Wait only for those who will still report here: not for who has, nor for who was made in another lane; and
    without names for all that are open."""
    wait = orders.wait
    if wait is None:
        return
    session = context.journal
    new = {str(child.id) for child in orders.children}
    if not wait["ids"] or not new.issuperset(wait["ids"]):
        children = await session.store.children(session.head)
        others = {str(child.id) for child in children if reporting_lane(child) != session.lane}
        names = wait["ids"] or [str(child.id) for child in children if not child.ended]
        wait["ids"] = [name for name in names if name not in others]
    reported = await session.store.execution.reported_children(session.head, wait["ids"])
    left = [name for name in wait["ids"] if name not in reported]
    enough = not left or (wait["mode"] == "any" and len(left) < len(wait["ids"]))
    orders.wait = None if enough else {**wait, "ids": left}


async def check_budget(context: RunContext, orders: ToolRequests) -> None:
    """ToolFailed when a tree has cost what it may cost, and is to grow."""
    limit = context.setup.definition.tree_budget
    if limit is None or not orders.children:
        return
    session = context.journal
    total_cost = session.open_run.total_cost or 0.0
    spent = await session.store.execution.tree_cost(session.head, but=session.open_run.id) + total_cost
    if spent >= limit:
        raise ToolFailed(f"The budget of this tree of threads is {limit} USD, and {spent:.6f} USD are spent.")


def apply_requests(context: RunContext, call: Call, orders: ToolRequests) -> None:
    """Note what a call ordered; it is done by the commit of its result."""
    session = context.journal
    awaited: list[str] = orders.wait["ids"] if orders.wait else []
    for child in orders.children:
        about: Json = {"goal": (child.goal or "")[:_GOAL], "awaited": str(child.id) in awaited}
        spawned = session.entry(
            "thread_spawned", child_id=child.id, name=child.agent, call_id=call.id, call_index=call.index, data=about
        )
        session.spawn(child, spawned)
    if orders.tasks is not None:
        session.record(tasks=orders.tasks)
