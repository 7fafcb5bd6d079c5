"""The runtime: who acts, and what is committed before what."""

from lockstitch.runtime.agent import Agent
from lockstitch.runtime.app import App
from lockstitch.runtime.application import Application
from lockstitch.runtime.cancelling import cancel
from lockstitch.runtime.evals.evaluating import evaluate
from lockstitch.runtime.event import Event
from lockstitch.runtime.replies import answer, approve, deny, settle, submit_results
from lockstitch.runtime.result import Result
from lockstitch.runtime.team import Team
from lockstitch.runtime.tool import Tool, ToolContext, ToolFailed
from lockstitch.runtime.tools.function import tool
from lockstitch.runtime.tools.threads import thread_tools
from lockstitch.runtime.worker import work

__all__ = [
    "Agent",
    "App",
    "Application",
    "Event",
    "Result",
    "Team",
    "Tool",
    "ToolContext",
    "ToolFailed",
    "answer",
    "approve",
    "cancel",
    "deny",
    "evaluate",
    "settle",
    "submit_results",
    "thread_tools",
    "tool",
    "work",
]
