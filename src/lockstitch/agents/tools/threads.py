"""`thread_tools`: tools with which a model creates child threads, waits for them, and ends its thread.

A tool that changes something only adds a request (`ToolRequests`), so all of them can run again after a crash.
"""

from collections.abc import Collection
from dataclasses import replace
from typing import Annotated, Any, Final
from uuid import UUID

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from lockstitch.agents.tools.function import tool
from lockstitch.engine.ports.tool import EndStatus, Mode, Tool, ToolContext, ToolFailed
from lockstitch.errors import NotFound, Refused
from lockstitch.model import Json, Thread, format_time, text_of
from lockstitch.model.delivery import reporting_lane

_MAX_TEXT: Final = 2_000
"""Maximum characters of a text of another thread."""


def _normalized(status: Any) -> Any:
    return "completed" if status == "done" else status


class Task(BaseModel):
    """One item of a task list. Additional keys are stored."""

    model_config = ConfigDict(extra="allow")

    id: str | None = None
    description: str
    status: Annotated[
        str,
        BeforeValidator(_normalized),
        Field(description="pending, in_progress, completed or blocked; another word if none of them fits"),
    ] = "pending"


@tool(effect="safe")
async def create_thread(
    ctx: ToolContext,
    goal: Annotated[str, Field(min_length=1)],
    tasks: list[Task | str] = [],  # noqa: B006 - pydantic copies defaults, and the schema shows them
    agent: str | None = None,
    wait_for_completion: bool = False,
) -> Json:
    """Create a child thread that works on its own goal, in parallel to you.

    The child does not see this conversation, so write everything it needs into the goal. You receive its result as a
    message. With wait_for_completion, you continue after the child has ended. `agent` selects the agent that does the
    work; the default is your own agent.
    """
    if agent is not None:
        await _require_agent(ctx, agent)
    child = ctx.spawn(goal, agent=agent, tasks=_numbered(tasks), wait=wait_for_completion)
    return {"thread_id": str(child), "status": "pending", "waiting": wait_for_completion}


@tool(effect="safe")
async def wait_for_threads(
    ctx: ToolContext,
    thread_ids: list[str] | None = None,
    mode: Mode = "all",
    timeout_seconds: Annotated[float, Field(gt=0)] | None = None,
) -> Json:
    """Wait until child threads have ended: the threads in thread_ids, or all open children if you pass none.

    With mode "all" you wait for every one of them, with mode "any" for the first. You receive their results as
    messages. With timeout_seconds, you continue after that time at the latest.
    """
    children = {
        str(child.id): child for child in await ctx.store.children(ctx.thread) if reporting_lane(child) == ctx.lane
    }
    wanted = list(children) if thread_ids is None else list(dict.fromkeys(thread_ids))
    unknown = [name for name in wanted if name not in children]
    if unknown:
        raise ToolFailed(
            f"These threads are not your children: {', '.join(unknown)}. Use the ids that get_child_threads returns."
        )
    ended = [name for name in wanted if children[name].ended]
    pending = [name for name in wanted if not children[name].ended]
    if pending and not (mode == "any" and ended):
        ctx.wait_for(*(UUID(name) for name in pending), mode=mode, seconds=timeout_seconds)
    return {"waiting_for": pending, "already_ended": ended}


@tool(effect="safe")
async def complete_thread(
    ctx: ToolContext,
    result_summary: str,
    status: EndStatus = "completed",
    result_data: Any = None,
) -> str:
    """End this thread with a result: a status, a short summary, and optional data.

    The parent thread receives the summary as a message and reads the data with get_child_threads. It sees nothing
    else of your work, so put every result that it needs into the summary or the data.
    """
    ctx.complete(result_summary, status=status, data=result_data)
    return f"The thread ends as {status}."


@tool(effect="safe")
async def update_tasks(ctx: ToolContext, tasks: list[Task]) -> Json:
    """Replace the todo list of this thread. Pass all tasks each time, also the unchanged ones."""
    numbered = _numbered(tasks)
    ctx.set_tasks(numbered)
    return {"tasks": numbered}


async def _ask_for_input(
    question: Annotated[str, Field(min_length=1)], options: list[str] | None = None
) -> str:  # pragma: no cover - a person executes it
    """Ask a person a question that you cannot answer with your tools, and wait for the answer."""
    raise AssertionError("never run here")


ask_for_input: Final = replace(tool(frontend=True, name="ask_for_input")(_ask_for_input), is_question=True)


@tool(effect="safe")
async def get_current_thread_info(ctx: ToolContext) -> Json:
    """Return the goal, status and todo list of this thread, and the number of its open children."""
    head = ctx.thread
    return {
        **_summary(head),
        "tasks": head.tasks if ctx.requests.tasks is None else ctx.requests.tasks,
        "depth": head.depth,
        "parent_id": str(head.parent_id) if head.parent_id else None,
        "open_children": head.pending_children,
    }


@tool(effect="safe")
async def get_parent_context(ctx: ToolContext) -> Json:
    """Return the goal, status and todo list of the parent thread, and its message from when it created this thread."""
    head = ctx.thread
    if head.parent_id is None:
        raise ToolFailed("This thread has no parent thread.")
    parent = await ctx.store.thread(head.parent_id)
    value = None
    if head.branching_stitch_id is not None:
        try:
            value = text_of((await ctx.store.stitch(head.branching_stitch_id)).message) or None
        except NotFound:
            # It was archived, or deleted with older turns.
            value = None
    return {**_summary(parent), "tasks": parent.tasks, "said": value[:_MAX_TEXT] if value else None}


@tool(effect="safe")
async def get_child_threads(ctx: ToolContext, include_completed: bool = True) -> Json:
    """Return the child threads of this thread: their goals, their status, and the results of those that have ended."""
    children = await ctx.store.children(ctx.thread)
    threads = [child for child in children if include_completed or not child.ended]
    return {"threads": [{**_summary(child), "result": _short(child.result)} for child in threads]}


def thread_tools(names: Collection[str] | None = None) -> list[Tool]:
    """Return the thread tools, for the `tools` of an agent.

    Args:
        names: Names of the tools to return, such as `create_thread`. None: all.

    Returns:
        The tools.

    Raises:
        Refused: If a name is unknown.
    """
    tools = {tool.name: tool for tool in _TOOLS}
    unknown = sorted(set(names or ()) - tools.keys())
    if unknown:
        raise Refused(f"Unknown thread tools: {', '.join(unknown)}. Choose from: {', '.join(tools)}.")
    return [tool for tool in _TOOLS if names is None or tool.name in names]


_TOOLS: Final = (
    create_thread,
    wait_for_threads,
    complete_thread,
    update_tasks,
    ask_for_input,
    get_current_thread_info,
    get_parent_context,
    get_child_threads,
)


def _numbered(tasks: list[Task | str] | list[Task]) -> list[Json]:
    """Return the tasks as they are stored, each with an id."""
    items = [Task(description=task) if isinstance(task, str) else task for task in tasks]
    return [
        {**task.model_dump(mode="json"), "id": task.id or str(number)} for number, task in enumerate(items, start=1)
    ]


async def _require_agent(ctx: ToolContext, name: str) -> None:
    """Raise `ToolFailed` if no worker can know the agent: its child would wait forever."""
    known = {*ctx.agents, *(agent.name for agent in await ctx.store.agents.list(project=ctx.thread.project))}
    if name not in known:
        raise ToolFailed(f"Agent {name} is unknown. Choose from: {', '.join(sorted(known))}.")


def _summary(head: Thread) -> Json:
    return {
        "thread_id": str(head.id),
        "agent": head.agent,
        "goal": head.goal,
        "status": head.status,
        "created_at": format_time(head.created_at),
    }


def _short(result: Json | None) -> Json | None:
    if result is None:
        return None
    return {name: value[:_MAX_TEXT] if isinstance(value, str) else value for name, value in result.items()}
