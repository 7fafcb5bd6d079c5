"""`RecordedTurn`: the record for one run of a replay: results of calls, responses, and messages.

A call has a recorded result if the recorded turn has a call of the same tool with equal arguments. Of several such
calls, the first gets the first result, and each result is used once.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from lockstitch.engine.decision.snapshot import is_response
from lockstitch.model import Json, Run, Stitch
from lockstitch.store.reports.traces import arguments

RECORDED: Final = "recorded"
"""Key in the data of an entry: the position of the recorded stitch that it repeats."""

_UNKNOWN_OUTCOMES: Final = frozenset({"cancelled", "failed", "in_doubt"})
"""Statuses of calls whose tool did not finish, so that the record does not have its result."""


class RecordedResult(NamedTuple):
    """The result of a recorded tool call."""

    stitch: Stitch
    children: Sequence[str]
    """Ids of the child threads that the call created."""


class RecordedTurn:
    """The record of one turn, for the run that replays it. `used` are positions of results that are used already.

    One object serves all runs of the turn, also those of team members, in one event loop.
    """

    def __init__(
        self,
        run: Run | None,
        logs: Mapping[UUID, Sequence[Stitch]],
        agents: Mapping[UUID, str | None],
        *,
        until: int = 0,
        live: bool = False,
        is_last: bool = True,
        used: Collection[int] = (),
    ) -> None:
        self.run = run
        """The recorded run; None if it was deleted."""
        self.live = live
        """True if tools with the effect `safe` run if the record does not have their call."""
        self.is_last = is_last
        """True if no later turn is run again."""
        self._results: defaultdict[tuple[str, str], list[RecordedResult]] = defaultdict(list)
        self._children: set[str] = set()
        """Ids of the child threads that used results created."""
        self._used = set(used)
        self._memories: dict[str | None, Stitch] = {}
        own = [stitch for stitch in logs.get(run.id, ()) if stitch.lane is None] if run is not None else []
        own_responses = [stitch for stitch in own if is_response(stitch)]
        self._responses = [stitch for stitch in own_responses if stitch.position <= until]
        self._arrivals = [
            (sum(response.position < stitch.position for response in own_responses), stitch)
            for stitch in own
            if stitch.type in ("input", "thread_result") and run is not None and stitch.position != run.input_position
        ]
        """Messages that entered the recorded run, each after a number of responses."""
        for run_id, log in logs.items():
            responses = {stitch.position: stitch for stitch in log if stitch.type == "llm_call"}
            for stitch in log:
                if stitch.type == "memory_retrieval":
                    self._memories.setdefault(agents.get(run_id), stitch)
                if stitch.type == "tool_call" and stitch.status not in _UNKNOWN_OUTCOMES:
                    asked = arguments(stitch, responses.get(stitch.reply_to or 0))
                    result = RecordedResult(stitch, requests_of(stitch).get("children") or ())
                    if stitch.position in self._used:
                        self._children.update(result.children)
                    else:
                        self._results[_key(stitch.name, asked)].append(result)
        for results in self._results.values():
            results.sort(key=lambda result: result.stitch.position)

    def take(self, name: str, arguments: Any) -> Stitch | None:
        """Return the first unused result of an equal call, and mark it as used; None if there is none."""
        results = self._results.get(_key(name, arguments))
        if not results:
            return None
        result = results.pop(0)
        self._children.update(result.children)
        return result.stitch

    def calls_of(self, name: str) -> int:
        """Return the number of unused results of a tool."""
        return sum(len(results) for (tool, _), results in self._results.items() if tool == name)

    def response(self, step: int) -> Stitch | None:
        """Return the recorded response of a step; None if the model is called."""
        return self._responses[step - 1] if 0 < step <= len(self._responses) else None

    def take_arrivals(self, step: int) -> list[Stitch]:
        """Return the messages that entered the recorded run before a step, and mark them as used.

        The result of a child is left out if the replay did not create the child.
        """
        taken: list[Stitch] = []
        for after, stitch in self._arrivals:
            known = stitch.child_id is None or str(stitch.child_id) in self._children
            if after < step and known and stitch.position not in self._used:
                self._used.add(stitch.position)
                taken.append(stitch)
        return taken

    def memory(self, agent: str) -> Stitch | None:
        """Return the stitch with the memories that an agent got."""
        return self._memories.get(agent) or (self._memories.get(self.run.agent) if self.run is not None else None)


def _key(name: str | None, arguments: Any) -> tuple[str, str]:
    return name or "", json.dumps({} if arguments is None else arguments, sort_keys=True, default=str)


def requests_of(stitch: Stitch) -> Json:
    """Return the requests of a recorded tool call to the engine. Spans of an imported trace have none."""
    return stitch.data if stitch.parent_id is None else {}


def repeated(stitch: Stitch) -> Json:
    """Return the data of a tool call that repeats a recorded one. Of its requests, only the end is repeated."""
    end: Json | None = requests_of(stitch).get("end")
    return {RECORDED: stitch.position, **({"end": end} if end else {})}
