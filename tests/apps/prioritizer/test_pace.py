"""The number of a call among the steps of a session."""

from datetime import UTC, datetime

from lockstitch.apps.prioritizer.agent_tools import place
from lockstitch.model import Stitch, new_id

NOW = datetime(2026, 3, 10, tzinfo=UTC)


def response(position: int, *ids: str) -> Stitch:
    uses = [{"type": "tool_use", "id": id, "name": "t", "input": {}} for id in ids]
    message = {"role": "assistant", "content": uses or "a thought"}
    return Stitch(type="llm_call", thread_id=new_id(), position=position, message=message, at=NOW)


def test_counts_calls_of_all_responses_when_their_ids_repeat() -> None:
    log = [response(1, "call_0", "call_1"), response(2), response(3, "call_0"), response(4, "call_0", "call_1")]
    places = [place(log, stitch.id, index) for stitch in log for index in range(stitch.calls or 0)]
    assert places == [0, 1, 3, 4, 5]
