"""`decide`: every log, cut at any stitch, leads to the same end or to a call in doubt."""

from hypothesis import given
from hypothesis import strategies as st

from lockstitch.engine.decision.action import CallModel, Finish, Idle, RecordEntries
from lockstitch.engine.decision.decide import decide
from lockstitch.engine.decision.snapshot import RunSnapshot
from lockstitch.model import context, open_calls
from tests.engine.simulation import HEAD, NOW, World, setup

names = st.sampled_from(["safe", "keyed", "once", "asking", "browser", "unknown"])
replies = st.lists(st.lists(names, max_size=4), max_size=4)


@given(replies, st.data(), st.sampled_from(["tell", "ask"]))
def test_reaches_same_end_from_every_cut_of_log(script: list[list[str]], data: st.DataObject, on_doubt: str):
    uninterrupted = World(setup(on_doubt=on_doubt), script, [])
    uninterrupted.go()
    cut = data.draw(st.integers(0, len(uninterrupted.log)))
    resumed = World(setup(on_doubt=on_doubt), script, uninterrupted.log[:cut], fence=2)
    doubtful = {call.id for call in resumed.snapshot().calls if call.state == "cut" and call.name in ("once", "asking")}
    if uninterrupted.log[:cut] and uninterrupted.log[cut - 1].type in ("run_completed", "run_failed"):
        return
    resumed.go()
    resumed_entries = [entry for entry in resumed.recorded() if entry[2] not in doubtful]
    expected_entries = [entry for entry in uninterrupted.recorded() if entry[2] not in doubtful]
    assert resumed_entries == expected_entries
    answers = {entry[2]: entry[3] for entry in resumed.recorded() if entry[0] == "tool_call"}
    assert all(answers[call] == ("in_doubt" if on_doubt == "tell" else "settled") for call in doubtful)


@given(replies, st.integers(1, 4))
def test_leaves_valid_context_at_every_end(script: list[list[str]], max_steps: int):
    world = World(setup(max_steps=max_steps), script, [])
    world.go()
    assert open_calls(world.log) == []
    messages = context(world.log)
    for before, after in zip(messages, [*messages[1:], None], strict=True):
        call_ids = (
            [block["id"] for block in before["content"] if block["type"] == "tool_use"] if _blocks(before) else []
        )
        if call_ids:
            assert after is not None
            assert [block["tool_use_id"] for block in after["content"]] == call_ids


@given(replies, st.integers(1, 3))
def test_never_exceeds_step_limit(script: list[list[str]], max_steps: int):
    world = World(setup(max_steps=max_steps), script, [])
    world.go()
    calls = [stitch for stitch in world.log if stitch.type == "llm_call"]
    assert sum(call.data.get("purpose") is None for call in calls) <= max_steps
    assert sum(call.data.get("purpose") == "final_summary" for call in calls) <= 1


@given(replies, st.data())
def test_cancel_request_ends_run_and_answers_open_calls(script: list[list[str]], data: st.DataObject):
    world = World(setup(), script, [])
    world.go()
    cut = data.draw(st.integers(0, len(world.log)))
    world.log = world.log[:cut]
    cancelled = world.snapshot(cancel_requested=True)
    action = decide(world.setup, cancelled, NOW)
    assert isinstance(action, Finish)
    assert action.status == "cancelled"
    world.add(*action.entries)
    assert open_calls(world.log) == []


def test_is_idle_without_open_run():
    assert decide(setup(), RunSnapshot(HEAD, None, ()), NOW) == Idle()


def test_calls_model_when_run_has_no_response():
    assert decide(setup(), World(setup(), [], []).snapshot(), NOW) == CallModel(1)


def test_full_log_records_compaction_check_without_effect():
    full = setup()
    full = type(full)(**{**full.__dict__, "definition": full.definition.model_copy(update={"log": "full"})})
    action = decide(full, World(full, [], []).snapshot(), NOW)
    assert isinstance(action, RecordEntries)
    assert action.entries[0].data["reason"] == "no_compactor"
    assert not action.must_commit


def _blocks(message: dict) -> bool:
    return isinstance(message["content"], list)
