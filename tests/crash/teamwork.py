"""Work of teams for the crash matrix: members in sequence and in parallel, answers compiled and passed through.

Members have tools of every effect, and one waits for a person. The process that runs it continues each conversation
from its current state. Every effect is written to a file outside the record, as for the errand. In the second
conversation all models number their calls from 0 in each response, so that calls of several members have the same ids.
"""

from pathlib import Path
from typing import Any

from lockstitch.agents.agent import Agent
from lockstitch.agents.providers.scripted import Scripted
from lockstitch.agents.team import Team
from lockstitch.engine.ports.provider import Provider
from lockstitch.engine.replies import approve, settle
from lockstitch.model import Json
from lockstitch.store import Store, open_store
from lockstitch.testing import KillPoints
from tests.crash.errand import tools
from tests.engine.books import delegate


def _asks(*calls: Json) -> Json:
    return {"calls": list(calls)}


def _does(name: str, id: str) -> Json:
    return {"name": name, "id": id, "input": {"what": f"{name} {id}"}}


_IN_TURN = [
    [_asks(_does("look", "l1")), _asks(delegate("finder", "find"), delegate("payer", "pay")), "Both are done."],
    [_asks(delegate("payer", "pay again"), delegate("writer", "write", final=True))],
]
_AT_ONCE = [
    [_asks({**delegate("finder", "find"), "id": "call_0"}, {**delegate("payer", "pay"), "id": "call_1"}), "Compiled."]
]

SCENES: tuple[tuple[str, int], ...] = (("in turn", 2), ("at once", 1))
"""The conversations, and the number of messages of each."""

RUNS = {"in turn": 4 + 3, "at once": 4}


def team(thread: str, ledger: Path, points: KillPoints) -> Team:
    known_tools = [points.tool(tool) for tool in tools(ledger)]
    settings: dict[str, Any] = {"title": False, "base_delay": 0.0, "tools": known_tools}
    first, numbered = thread[0], thread == "at once"

    def _asks(*calls: Json) -> Json:
        return {"calls": [{**call, "id": f"call_{at}"} if numbered else call for at, call in enumerate(calls)]}

    def model(replies: list[Any]) -> Provider:
        return points.provider(Scripted(replies))

    finder = Agent("finder", model=model([[_asks(_does("put", f"{first}f1")), "Found."]]), **settings)
    payer = Agent(
        "payer",
        model=model(
            [
                [
                    _asks(_does("charge", f"{first}c1"), _does("look", f"{first}c2")),
                    _asks(_does("pay", f"{first}p1")),
                    "Paid.",
                ],
                [_asks(_does("charge", f"{first}c3"), _does("put", f"{first}c4")), "Paid again."],
            ]
        ),
        **settings,
    )
    writer = Agent("writer", model=model([f"Written {first}."]), **settings)
    return Team(
        "teamwork",
        model=model(_IN_TURN if thread == "in turn" else _AT_ONCE),
        members=[finder, payer, writer],
        mode="sequence" if thread == "in turn" else "parallel",
        answer="choose",
        **settings,
    )


async def run(url: str, ledger: Path, points: KillPoints) -> None:
    """Continue both conversations from their current state, to their end."""
    async with points.store(open_store(url)) as store:
        for thread, messages in SCENES:
            crew = team(thread, ledger, points)
            await _see_through(store, crew, thread)
            while (started := await _started_runs(store, thread)) < messages:
                await crew.run(f"Message {started + 1}", store=store, thread=thread)
                await _see_through(store, crew, thread)
            runs = await store.runs(thread)
            assert {run.status for run in runs} == {"completed"}, [(run.agent, run.status, run.error) for run in runs]
            await crew.close()


async def _started_runs(store: Store, thread: str) -> int:
    count = await store.count(key=thread)
    return (await store.thread(thread)).last_turn if count else 0


async def _see_through(store: Store, crew: Team, thread: str) -> None:
    """Finish the message in progress, and answer for the person."""
    if not await store.count(key=thread):
        return
    while True:
        await crew.resume(thread, store=store)
        waits = [wait for wait in (await store.thread(thread)).waiting_for if wait["id"] is not None]
        if not waits:
            return
        for wait in waits:
            if wait["kind"] == "doubt":
                await settle(store, thread, wait["key"], done="settled by hand")
            else:
                await approve(store, thread, wait["key"])
