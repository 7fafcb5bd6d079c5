"""The incremental context equals the context at every position, and its digest that of the whole request."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from lockstitch.model import Json, Stitch, codec, context
from lockstitch.model.context import ContextBuilder, RequestDigest, kept_positions, replaced_positions, replaces_context
from lockstitch.model.message import build
from tests.model.logs import LANES, Log, logs

lanes = st.sampled_from(LANES)


def without_revivals(log: Log, lane: UUID | None) -> list[Stitch]:
    """Return the log without compactions that restore stitches which an earlier one dropped.

    No engine writes such compactions, because a compactor sees only the context.
    """
    stored_stitches: list[Stitch] = []
    grown = ContextBuilder([], lane)
    for stitch in log.stitches:
        if stitch.lane == lane and replaces_context(stitch) and stitch.type == "compaction":
            grown_positions = {stitch.position for stitch in grown.stitches}
            expected_positions = {
                stored_stitch.position
                for stored_stitch in stored_stitches
                if stored_stitch.lane == lane
                and (stored_stitch.message is not None or stored_stitch.type == "fork")
                and any(first <= stored_stitch.position <= last for first, last in kept_positions(stitch))
            } | set(replaced_positions(stitch))
            if not expected_positions <= grown_positions:
                continue
        stored_stitches.append(stitch)
        grown.add(stitch)
    return stored_stitches


@given(logs(), lanes)
def test_incremental_context_equals_context_at_every_position(log: Log, lane: UUID | None) -> None:
    stitches = without_revivals(log, lane)
    grown = ContextBuilder([], lane)
    for number, stitch in enumerate(stitches, start=1):
        grown.add(stitch)
        assert grown.messages == context(stitches[:number], lane)


@given(logs(orderly=False), lanes, st.data())
def test_builder_can_start_at_any_position(log: Log, lane: UUID | None, data: st.DataObject) -> None:
    stitches = without_revivals(log, lane)
    middle = data.draw(st.integers(0, len(stitches)))
    grown = ContextBuilder(stitches[:middle], lane)
    for stitch in stitches[middle:]:
        grown.add(stitch)
    assert grown.messages == context(stitches, lane)
    assert context(grown.stitches, lane) == grown.messages


@given(logs(compacting=False), lanes, st.data())
def test_builder_ignores_stitches_before_first_position(log: Log, lane: UUID | None, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(log.stitches) + 1))
    assert ContextBuilder(log.stitches, lane, first).messages == context(
        [stitch for stitch in log.stitches if stitch.position >= first], lane
    )


@given(logs(), lanes)
def test_incremental_digest_equals_digest_of_whole_request(log: Log, lane: UUID | None) -> None:
    parameters: Json = {"model": "m", "max_tokens": 10}
    first_request = build(parameters, "system", [{"name": "t"}], ())
    first_request.pop("messages")
    digest = RequestDigest(first_request)
    grown = ContextBuilder([], lane)
    for stitch in log.stitches:
        grown.add(stitch)
        expected_request = build(parameters, "system", [{"name": "t"}], grown.messages)
        assert digest.of(grown.messages) == codec.digest(expected_request)


@given(logs(), lanes)
def test_digest_of_copied_messages_equals_digest_of_whole_request(log: Log, lane: UUID | None) -> None:
    """Each request has its own list of the messages. A compaction replaces them."""
    digest = RequestDigest({"model": "m"})
    grown = ContextBuilder([], lane)
    for stitch in log.stitches:
        grown.add(stitch)
        assert digest.of(list(grown.messages)) == codec.digest({"model": "m", "messages": grown.messages})
    shorter = grown.messages[:-1]
    assert digest.of(shorter) == codec.digest({"model": "m", "messages": shorter})


def test_digest_serialises_each_message_once() -> None:
    messages: list[Json] = [{"role": "user", "content": str(number)} for number in range(100)]
    expected = codec.digest({"model": "m", "messages": messages})
    digest = RequestDigest({"model": "m"})
    digest.of(messages[:99])
    # Nothing changes a message that is in a context. Here it shows that the digest does not read it again.
    messages[0]["content"] = "changed"
    assert digest.of(messages) == expected


def test_request_with_only_messages_has_digest() -> None:
    messages = [{"role": "user", "content": "ü 2^70 is 1180591620717411303424"}, {"n": 2**70}]
    assert RequestDigest({}).of(messages) == codec.digest({"messages": messages})
