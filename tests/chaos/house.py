"""The app that is put through chaos: ledger threads three levels deep, and what a sound record of them holds.

A house has two floors, a floor has three rooms. Each charges somebody once, and waits for those below it.
"""

from collections import Counter

from examples.ledger import calls, charge, look, put
from lockstitch import Agent, App, thread_tools
from lockstitch.testing import Scripted

FLOORS, ROOMS = 2, 3
THREADS = 1 + FLOORS + FLOORS * ROOMS
"""Threads of one house."""

DEPTHS = {"house": 0, "floor": 1, "room": 2}
CHILDREN = {"house": FLOORS, "floor": ROOMS, "room": 0}
ONCE = {"house": 1, "floor": 1, "room": 2}
"""How many calls of `charge` a thread makes."""

_tools = [charge, put, look, *thread_tools()]


def _spawn(agent: str, count: int, wait: bool) -> list[tuple[str, dict[str, object]]]:
    return [
        ("create_thread", {"goal": f"{agent} {number}", "agent": agent, "wait_for_completion": wait})
        for number in range(count)
    ]


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
house = _agent(
    "house",
    calls(*_spawn("floor", FLOORS, wait=False)),
    calls(("charge", {"amount": 5}), ("update_tasks", {"tasks": [{"description": "roof", "status": "done"}]})),
    calls(("wait_for_threads", {})),
    calls(("look", {"item": "roof"})),
    "The house is done.",
)

app = App([house, floor, room])

EXPECTED = Counter({"house": 1, "floor": FLOORS, "room": FLOORS * ROOMS})
