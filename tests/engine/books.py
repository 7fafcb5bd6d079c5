"""The example of the documents: a notebook about books, three messages, seven runs.

    "Hello!"                           1: the leader answers
    "What happens in chapter 5?"       2: the leader asks the Researcher, 3: who searches, 4: the leader compiles
    "Write a summary of it."           5: the leader asks 6: the Researcher, then 7: the Writer, whose answer is sent

The models are scripted, so a process that continues after a kill gets the same replies.
"""

from typing import Any

from lockstitch.agents.agent import Agent
from lockstitch.agents.providers.scripted import Scripted
from lockstitch.agents.team import Team
from lockstitch.agents.tools.function import tool
from lockstitch.model import Json

MESSAGES = ("Hello!", "What happens in chapter 5?", "Write a summary of it.")

ANSWERS = (
    "Hello. Ask me about your books.",
    "In chapter 5 the letter is found, says the Researcher.",
    "A letter is found, and everything changes.",
)

RUNS = (
    (1, "team", "NotebookLM"),
    (2, "team", "NotebookLM"),
    (2, "agent", "Researcher"),
    (2, "team", "NotebookLM"),
    (3, "team", "NotebookLM"),
    (3, "agent", "Researcher"),
    (3, "agent", "Writer"),
)
"""Turn, role and agent of each run, in order."""


def delegate(member: str, task: str, **more: Any) -> Json:
    """Return a leader's call to a member."""
    return {"name": "delegate", "input": {"member": member, "task": task, **more}}


LEADER = (
    [ANSWERS[0]],
    [{"calls": [delegate("Researcher", "Find out what happens in chapter 5.")]}, ANSWERS[1]],
    [
        {
            "calls": [
                delegate("Researcher", "Find what a summary of chapter 5 needs."),
                delegate("Writer", "Write a summary of chapter 5.", final=True),
            ]
        }
    ],
)

RESEARCHER = (
    ["unused"],
    [{"calls": [{"name": "search", "input": {"query": "chapter 5"}}]}, "In chapter 5 the letter is found."],
    ["The letter is found, and everything changes."],
)


@tool(effect="safe")
async def search(query: str) -> str:
    """Search the web."""
    return f"Found: {query}."


def books(writer: str = "You write.", **settings: Any) -> Team:
    """Return the team of the example. `writer` are the Writer's instructions."""
    plain: dict[str, Any] = {"title": False, "base_delay": 0.0}
    researcher = Agent(
        "Researcher",
        model=Scripted([list(turn) for turn in RESEARCHER]),
        instructions="You find things out.\nSay where you have it from.",
        tools=[search],
        **plain,
    )
    author = Agent("Writer", model=Scripted([ANSWERS[2]]), instructions=writer, **plain)
    return Team(
        "NotebookLM",
        model=Scripted([list(turn) for turn in LEADER]),
        members=[researcher, author],
        instructions="You help with books.",
        answer="choose",
        **{**plain, **settings},
    )
