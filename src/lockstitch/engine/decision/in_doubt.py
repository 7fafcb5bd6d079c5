"""Calls in doubt: how the state of a run names them, and which of them a retry must have settled first. Pure.

A run's state has two lists. `in_doubt` names every call of the run whose outcome is unknown, for results and pages.
`unsettled` holds the calls in doubt that no model has seen answered: the run ended right after them. A retry sends the
same context to a model, which would make such a call again. So the retried run takes this list over and waits until a
person has settled each call in it.
"""

from collections.abc import Iterable, Sequence

from lockstitch.engine.decision.snapshot import RunSnapshot, place_of, unsettled
from lockstitch.model import Entry, Json, Run, Stitch


def doubt_of(answer: Entry | Stitch) -> Json:
    """Return a call in doubt as the state of its run keeps it: by its name, and by its place in the thread."""
    place = answer.reply_to if answer.type == "tool_call" else answer.data.get("response")
    return {
        "call_id": answer.call_id,
        "name": answer.name,
        "response": place or 0,
        "index": answer.call_index or 0,
        "step": answer.step_number or 0,
    }


def shown(run: Run) -> list[Json]:
    """Return the calls in doubt of a run and its nested runs, as results name them."""
    doubts: list[Json] = list(run.state.get("in_doubt") or ())
    return [{name: doubt[name] for name in ("call_id", "name", "run", "agent") if name in doubt} for doubt in doubts]


def sentence(doubts: Sequence[Json]) -> str:
    """Return the sentence that tells a model about these calls; empty if there are none."""
    calls = ", ".join(f"{doubt.get('name')} ({doubt.get('call_id')})" for doubt in doubts)
    return f"These calls were interrupted, and whether they took effect is unknown: {calls}." if doubts else ""


def with_doubts(run: Run, doubts: Iterable[Json]) -> Json:
    """Return the state of a run that also names these calls."""
    known: list[Json] = list(run.state.get("in_doubt") or ())
    places = {place_of(item) for item in known}
    new = {place_of(doubt): doubt for doubt in doubts if place_of(doubt) not in places}
    return {**run.state, "in_doubt": [*known, *new.values()]} if new else run.state


def of_inner(run: Run) -> list[Json]:
    """Return the calls in doubt of a nested run, as the outer run names them."""
    inner: list[Json] = list(run.state.get("in_doubt") or ())
    return [{"run": str(run.id), "agent": run.agent, **item} for item in inner]


def when_resumed(snapshot: RunSnapshot) -> Json:
    """Return the state of a run that continues after a pause: settled calls are dropped, unknown outcomes are named."""
    run = snapshot.run
    assert run is not None
    return _leaving(with_doubts(run, map(doubt_of, _doubtful(snapshot.after_response))), _open_earlier(snapshot))


def when_ended(snapshot: RunSnapshot, entries: Sequence[Entry], *, completed: bool) -> Json:
    """Return the state of a run that ends with these entries."""
    run = snapshot.run
    assert run is not None
    asking = {"response_id": str(snapshot.response.id)} if snapshot.response is not None else {}
    doubtful = _doubtful([*snapshot.after_response, *entries])
    own = [{**doubt_of(item), **asking} for item in doubtful if item.type == "tool_call"]
    left = _open_earlier(snapshot)
    state = with_doubts(run, [*own, *left])
    if completed:
        return _leaving(state, [])
    members = [member for call in snapshot.calls if (member := snapshot.member_run(call)) is not None]
    last = snapshot.compile_run()
    inner = [
        {"agent": member.agent, **item}
        for member in (*members, *([last] if last is not None else ()))
        for item in unsettled(member)
    ]
    return _leaving(state, list({place_of(item): item for item in (*left, *own, *inner)}.values()))


def _doubtful(answers: Iterable[Entry | Stitch]) -> list[Entry | Stitch]:
    return [answer for answer in answers if answer.type in ("tool_call", "permission") and answer.status == "in_doubt"]


def _open_earlier(snapshot: RunSnapshot) -> list[Json]:
    """Return the calls of the retried run that are still to be settled."""
    run = snapshot.run
    assert run is not None
    if snapshot.response is not None:
        return []
    return [item for item, call in zip(unsettled(run), snapshot.calls, strict=True) if call.state != "answered"]


def _leaving(state: Json, left: Sequence[Json]) -> Json:
    if left:
        return {**state, "unsettled": list(left)}
    return {name: value for name, value in state.items() if name != "unsettled"} if "unsettled" in state else state
