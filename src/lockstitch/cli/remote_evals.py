"""`evaluate_on_server`: start an evaluation on a server, follow its progress, and return it with its outcomes."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from lockstitch.agents.evals.results import CaseOutcome, Evaluation
from lockstitch.client.eval_methods import RemoteEvals
from lockstitch.errors import Refused
from lockstitch.model import Json

_PAUSE: Final = (0.1, 1.0)
"""Shortest and longest pause before the progress is read again, in seconds."""

_PAGE: Final = 1000

Progress = Callable[[int, int, int], None]
"""Called with the numbers of trials that did not pass, of those that are done, and of all."""


async def evaluate_on_server(evals: RemoteEvals, request: Json, progress: Progress) -> Evaluation:
    """Return a finished evaluation of a server. If the same one runs or was interrupted, follow or continue it.

    Raises:
        Refused: If a value is not valid, or the evaluation stopped on the server.
    """
    value = started = await evals.start(**request)
    pause = _PAUSE[0]
    while value["status"] == "running":
        done = value["trials_done"]
        progress(done - value["passed"] if value["passed"] is not None else 0, done, value["trials_total"])
        await asyncio.sleep(pause)
        pause = min(pause * 1.2, _PAUSE[1])
        value = await evals.get(started["id"])
    if value["status"] != "completed":
        reason = value["reason"] or f"its status is {value['status']}"
        raise Refused(f"Evaluation {value['name']}#{value['number']} stopped on the server: {reason}")
    previous = await _previous(evals, value)
    evaluation = Evaluation.from_json(value, await _outcomes(evals, value["id"]))
    return evaluation._replace(resumed_cases=started["trials_done"], previous=previous)


async def _previous(evals: RemoteEvals, value: Json) -> Evaluation | None:
    """Return the last finished evaluation of the same name before this one."""
    after: str | None = value["id"]
    while after is not None:
        page = await evals.list(name=value["name"], status="completed", after=after, limit=10)
        for row in page["evals"]:
            if row["number"] < value["number"]:
                return Evaluation.from_json(row, await _outcomes(evals, row["id"]))
        after = page["next"]
    return None


async def _outcomes(evals: RemoteEvals, id: str) -> list[CaseOutcome]:
    outcomes: list[Any] = []
    page: Json = {"next": None}
    while not outcomes or page["next"] is not None:
        page = await evals.cases(id, limit=_PAGE, after=page["next"])
        outcomes += [CaseOutcome.from_json(outcome) for case in page["cases"] for outcome in case["outcomes"]]
        if not page["cases"]:
            break
    return outcomes
