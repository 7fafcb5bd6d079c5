"""The app of the chaos test: ledger threads three levels deep, and the expected content of their record.

A house has two floors, a floor has three rooms. Each thread charges a customer once, and waits for its children. The
garden is the work of a team: two members in parallel, one of which has a shed built, and then one of them again, whose
answer is passed through.

Every model numbers its calls from 0 in each response, as Ollama and vLLM do.

There are also termites: threads with a tool that kills its process. Each of them must fail, and no other thread. Booths
and clerks are in `booth` and `clients`.
"""

import os
import signal

from examples.ledger import charge, look, put
from lockstitch import Agent, App, Team, thread_tools, tool
from lockstitch.testing import Scripted
from tests.chaos.booth import booth
from tests.chaos.clients import clerk

FLOORS, ROOMS = 2, 3
CHILDREN = {"house": FLOORS + 1, "floor": ROOMS, "garden": 1, "room": 0}
POISON = "termite"
ONCE = {"house": 1, "floor": 1, "garden": 2, "room": 2}
"""Number of calls of `charge` that a thread makes."""

RUNS = {"garden": ["garden", "digger", "planter", "garden", "planter"]}
"""The agents of the runs of a thread; other threads have only their own."""

_tools = [charge, put, look, *thread_tools()]


def calls(*pairs: tuple[str, dict[str, object]]) -> dict[str, object]:
    """Return a reply with these calls, numbered from call_0."""
    return {
        "calls": [{"name": name, "id": f"call_{at}", "input": arguments} for at, (name, arguments) in enumerate(pairs)],
    }


def _spawn(agent: str, count: int, wait: bool) -> list[tuple[str, dict[str, object]]]:
    return [
        ("create_thread", {"goal": f"{agent} {number}", "agent": agent, "wait_for_completion": wait})
        for number in range(count)
    ]


def _delegate(member: str) -> tuple[str, dict[str, object]]:
    return "delegate", {"member": member, "task": "Do your part."}


def _agent(name: str, *replies: object) -> Agent:
    return Agent(name, model=Scripted(list(replies)), tools=_tools, title=False)


room = _agent(
    "room",
    calls(("charge", {"amount": 1}), ("look", {"item": "window"})),
    calls(("put", {"item": "chair"}), ("charge", {"amount": 2})),
    calls(("complete_thread", {"result_summary": "furnished", "result_data": {"chairs": 1}})),
)
floor = _agent(
    "floor",
    calls(("charge", {"amount": 3}), *_spawn("room", ROOMS, wait=True)),
    calls(("put", {"item": "key"})),
    "The floor is done.",
)
digger = _agent("digger", calls(("charge", {"amount": 7}), *_spawn("room", 1, wait=True)), "It is dug.")
planter = _agent(
    "planter",
    calls(("put", {"item": "tree"}), ("charge", {"amount": 9})),
    "It is planted.",
    calls(("look", {"item": "tree"})),
    "The garden is done.",
)
garden = Team(
    "garden",
    model=Scripted(
        [
            calls(_delegate("digger"), _delegate("planter")),
            calls(("delegate", {"member": "planter", "task": "Look at it.", "final": True})),
        ]
    ),
    members=[digger, planter],
    mode="parallel",
    answer="choose",
    title=False,
)
house = _agent(
    "house",
    calls(*_spawn("floor", FLOORS, wait=False), *_spawn("garden", 1, wait=False)),
    calls(("charge", {"amount": 5}), ("update_tasks", {"tasks": [{"description": "roof", "status": "done"}]})),
    calls(("wait_for_threads", {})),
    calls(("look", {"item": "roof"})),
    "The house is done.",
)


@tool(effect="safe")
async def gnaw() -> str:
    """End the process."""
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


termite = Agent("termite", model=Scripted([calls(("gnaw", {})), "Never."]), tools=[gnaw], title=False)

app = App([house, floor, garden, room, termite, booth, clerk])
