"""Raw events of the provider, and formatters by name."""

import json

import pytest

from lockstitch.agents.formatters.formats import RawFormatter
from lockstitch.agents.registry import FORMATTER_NAMES, formatter
from lockstitch.errors import Refused
from tests.agents.formatters.events import all_frames, event, one_of_each


@pytest.mark.req("S0-138")
@pytest.mark.parametrize("detail", [False, True])
def test_events_of_provider_pass_unchanged(detail: bool) -> None:
    sent = [{"type": "ping"}, {"type": "delta", "b": 2, "a": [1.5, None, 2**70, "\u2028é"]}]
    events = [*one_of_each(), *(event("raw", data) for data in sent)]

    frames = all_frames(RawFormatter(detail), events)

    assert [json.loads(frame) for frame in frames] == [event.data for event in events if event.type == "raw"]
    assert all("\n" not in frame for frame in frames)


@pytest.mark.parametrize("name", FORMATTER_NAMES)
def test_every_stream_has_its_own_formatter(name: str) -> None:
    make = formatter(name)

    assert make(True).name == make(False).name == name
    assert make(True) is not make(True)


@pytest.mark.parametrize("name", ["", "yaml", "JSON"])
def test_rejects_unknown_names(name: str) -> None:
    with pytest.raises(Refused):
        formatter(name)
