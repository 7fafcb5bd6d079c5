"""Agents, teams and apps, and the functions with which callers run and control them.

Names are loaded when they are first used, so that an agent does not import evaluations, teams and MCP.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lockstitch.agents.agent import Agent
    from lockstitch.agents.app import App, Plugin
    from lockstitch.agents.evals.recorded_runs import RecordedRuns
    from lockstitch.agents.evals.runner import evaluate
    from lockstitch.agents.replays import replay, resume_replay, start_replay
    from lockstitch.agents.stored import StoredAgent
    from lockstitch.agents.team import Team
    from lockstitch.agents.tools.function import tool
    from lockstitch.agents.tools.mcp import McpServer
    from lockstitch.agents.tools.threads import thread_tools
    from lockstitch.engine.cancel import cancel
    from lockstitch.engine.events import Event, EventStream
    from lockstitch.engine.ports.tool import Tool, ToolContext, ToolFailed
    from lockstitch.engine.replies import answer, approve, deny, settle, submit_results
    from lockstitch.engine.result import Result, result_for
    from lockstitch.engine.worker import run_worker

__all__ = [
    "Agent",
    "App",
    "Event",
    "EventStream",
    "McpServer",
    "Plugin",
    "RecordedRuns",
    "Result",
    "StoredAgent",
    "Team",
    "Tool",
    "ToolContext",
    "ToolFailed",
    "answer",
    "approve",
    "cancel",
    "deny",
    "evaluate",
    "replay",
    "result_for",
    "resume_replay",
    "run_worker",
    "settle",
    "start_replay",
    "submit_results",
    "thread_tools",
    "tool",
]

_MODULES = {
    "agents.agent": ("Agent",),
    "agents.app": ("App", "Plugin"),
    "agents.evals.recorded_runs": ("RecordedRuns",),
    "agents.evals.runner": ("evaluate",),
    "agents.replays": ("replay", "resume_replay", "start_replay"),
    "agents.stored": ("StoredAgent",),
    "agents.team": ("Team",),
    "agents.tools.function": ("tool",),
    "agents.tools.mcp": ("McpServer",),
    "agents.tools.threads": ("thread_tools",),
    "engine.cancel": ("cancel",),
    "engine.events": ("Event", "EventStream"),
    "engine.ports.tool": ("Tool", "ToolContext", "ToolFailed"),
    "engine.replies": ("answer", "approve", "deny", "settle", "submit_results"),
    "engine.result": ("Result", "result_for"),
    "engine.worker": ("run_worker",),
}

_PLACES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"lockstitch.{_PLACES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
