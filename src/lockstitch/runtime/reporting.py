"""Reporting: how a child tells its parent that it has ended, in the commit of its end.

The summary is short and made without a model: what `complete_thread` was given, or else the last answer, cut.
"""

from typing import Any, Final

from lockstitch.records import Clock, Json, Letter, Thread
from lockstitch.records.report import report as letter_of
from lockstitch.runtime.doubts import sentence

SUMMARY: Final = 2_000
"""Characters of a summary."""


def result(status: str, summary: str | None, error: str | None, *, output: Any = None, data: Any = None) -> Json:
    """What a thread ends with. `data` is what it was completed with, `output` its structured answer."""
    told: Json = {"status": status, "summary": summary, "error": error}
    if output is not None:
        told["output"] = output
    if data is not None:
        told["data"] = data
    return told


def report(head: Thread, ended: Json, clock: Clock) -> list[Letter]:
    """The letter to the parent of a thread that ends so; none for a root."""
    if head.parent_id is None:
        return []
    summary = str(ended.get("summary") or ended.get("error") or "")[:SUMMARY]
    doubts: list[Json] = ended.get("in_doubt") or []
    if ended["status"] != "completed":
        # A model of the child knew about the doubts of a completed run, and answered with that knowledge.
        summary = " ".join(filter(None, (summary, sentence(doubts))))
    more: Json = {"data": ended.get("data"), "output": ended.get("output"), "in_doubt": doubts or None}
    return [letter_of(head, head.parent_id, str(ended["status"]), summary, clock.now(), **more)]
