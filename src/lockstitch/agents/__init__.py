"""Agents, teams and apps, and the functions with which callers run and control them."""

from lockstitch.agents.agent import Agent
from lockstitch.agents.app import App, Plugin
from lockstitch.agents.evals.runner import evaluate
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
    "result_for",
    "run_worker",
    "settle",
    "submit_results",
    "thread_tools",
    "tool",
]
