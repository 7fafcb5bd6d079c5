"""Server-sent events, parsed like in a browser."""

import json
import logging
from collections.abc import AsyncIterator
from typing import Any
from xml.etree import ElementTree

import pytest

from lockstitch.agents.formatters.formats import DONE, encode, stream
from lockstitch.agents.registry import FORMATTER_NAMES, formatter
from lockstitch.engine.events import Event
from lockstitch.errors import ThreadBusy
from tests.agents.formatters.events import all_frames, event, one_of_each

pytestmark = pytest.mark.anyio


async def source(events: list[Event], problem: BaseException | None = None) -> AsyncIterator[Event]:
    for item in events:
        yield item
    if problem:
        raise problem


async def sent(name: str, events: list[Event], problem: BaseException | None = None) -> str:
    return "".join([part async for part in stream(source(events, problem), formatter(name)(True))])


def received(text: str) -> list[str]:
    """Return the data of each event by the rules of the standard."""
    assert text.endswith("\n\n")
    lines = [part.split("\n") for part in text.removesuffix("\n\n").split("\n\n")]
    assert all(line.startswith("data: ") for part in lines for line in part)
    return ["\n".join(line.removeprefix("data: ") for line in part) for part in lines]


def without_done(name: str, got: list[str]) -> list[str]:
    """Return the frames before [DONE], which ends each format but AG-UI once."""
    assert got.count("[DONE]") == (name != "ag-ui")
    if name == "ag-ui":
        return got
    assert got[-1] == "[DONE]"
    return got[:-1]


@pytest.mark.parametrize("name", FORMATTER_NAMES)
async def test_frames_arrive_complete_and_done_is_sent_once(name: str) -> None:
    spoken_events = [event("text", {"text": "two\n\nlines\rand more"}), event("raw", {"a": "b\n"})]
    events = [*spoken_events, *(event for event in one_of_each() if event.type != "failed")]

    got = received(await sent(name, events))

    assert without_done(name, got) == all_frames(formatter(name)(True), events)


@pytest.mark.parametrize("name", FORMATTER_NAMES)
async def test_failed_run_yields_one_error_frame(name: str) -> None:
    got = received(await sent(name, one_of_each()))

    assert len([frame for frame in without_done(name, got) if "broke" in frame]) == 1


@pytest.mark.parametrize("name", FORMATTER_NAMES)
@pytest.mark.parametrize("failed", [False, True])
async def test_failed_stream_yields_error_and_ends(name: str, failed: bool) -> None:
    events = [event("text", {"text": "Hel"})]
    if failed:
        events.append(event("failed", {"error": "Another worker holds it", "type": "ThreadBusy"}))
    text = await sent(name, events, ThreadBusy("Another worker holds it"))
    got = without_done(name, received(text))

    assert text.count("Another worker holds it") == 1
    if name == "xml":
        assert ElementTree.fromstring(f"<root>{''.join(got)}</root>")[-1].tag == "content-block-error"
    else:
        assert any(json.loads(frame).get("type") in ("error", "RUN_ERROR") for frame in got)


async def test_unexpected_exception_is_logged_and_not_sent(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, logger="lockstitch"):
        text = await sent("json", [], RuntimeError("password=plum"))

    assert "plum" not in text
    assert [json.loads(frame)["delta"] for frame in received(text)[:-1]] == ["The stream was interrupted."]
    assert "plum" in caplog.text


async def test_does_not_write_to_closed_reader() -> None:
    parts: Any = stream(source([event("text", {"text": "a"})] * 3), formatter("json")(False))
    assert (await anext(parts)).startswith("data: ")

    await parts.aclose()

    with pytest.raises(StopAsyncIteration):
        await anext(parts)


def test_splits_lines_like_readers() -> None:
    assert encode("a\nb\r\nc\rd") == "data: a\ndata: b\ndata: c\ndata: d\n\n"
    assert encode("") == "data: \n\n"
    assert DONE == "data: [DONE]\n\n"
