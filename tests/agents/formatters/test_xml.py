"""XML is well-formed and exact for any text."""

import json
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given

from lockstitch.agents.formatters.formats import XmlFormatter
from lockstitch.engine.events import Event
from tests.agents.formatters.events import MEMBER, PNG, RUN, all_frames, event, one_of_each
from tests.agents.formatters.events import random_events as streams
from tests.model.properties import quick

BLOCKS = [
    *("thinking", "text", "citation", "tool_call", "server_tool_call", "tool_result", "tool_result_image"),
    *("server_tool_result", "error"),
]
TAGS = {
    "meta_init",
    "awaiting_frontend_tools",
    "meta_files",
    "meta_final",
    *(f"content-block-{block}" for block in BLOCKS),
}


def parsed(events: list[Event], *, detail: bool = True) -> list[Any]:
    return list(ElementTree.fromstring(f"<root>{''.join(all_frames(XmlFormatter(detail), events))}</root>"))


def legal(text: str) -> str:
    """Return the text with the characters that XML 1.0 allows."""
    allowed = [(0x9, 0xA), (0xD, 0xD), (0x20, 0xD7FF), (0xE000, 0xFFFD), (0x10000, 0x10FFFF)]
    return "".join(c if any(a <= ord(c) <= b for a, b in allowed) else "\ufffd" for c in text)


@pytest.mark.req("S0-137")
def test_every_event_has_its_tag() -> None:
    elements = parsed(one_of_each())

    assert {element.tag for element in elements} == TAGS
    first = {element.tag.removeprefix("content-block-"): element for element in reversed(elements)}
    assert first["thinking"].text == "Hmm."
    assert first["text"].text == "Let me look."
    assert first["error"].text == "It <broke>"
    assert json.loads(first["tool_call"].text) == {"at": "it & <that>"}
    assert first["tool_call"].attrib == {"agent": "helper", "run_id": str(RUN), "step": "1", "id": "c1", "name": "look"}
    assert first["tool_result_image"].text == PNG
    assert PNG not in first["meta_init"].text
    assert all(element.tail is None for element in elements)


@pytest.mark.req("S0-137")
@quick
@given(streams)
def test_any_text_is_well_formed_and_unchanged_after_parsing(events: list[Event]) -> None:
    elements = parsed(events)

    for type, key in (("text", "text"), ("thinking", "text"), ("error", "error"), ("tool_result", "content")):
        source = "failed" if type == "error" else type
        expected = "".join(event.data[key] for event in events if event.type == source)
        shown = "".join(element.text or "" for element in elements if element.tag == f"content-block-{type}")
        assert shown == legal(expected)
    calls = [element for element in elements if element.tag == "content-block-tool_call"]
    tool_calls = [event for event in events if event.type == "tool_call"]
    assert [element.get("id") for element in calls] == [legal(event.data["id"]) for event in tool_calls]
    assert [element.get("agent") for element in calls] == [legal(event.agent) for event in tool_calls]


@pytest.mark.parametrize("parts", [["]]", ">"], ["]", "]>"], ["]]>", "]]>"], ["a\r", "\nb\rc"], ["<![CDATA[", "x"]])
def test_division_into_deltas_never_ends_a_section(parts: list[str]) -> None:
    [element] = parsed([event("text", {"text": part}) for part in parts])

    assert element.text == "".join(parts)


def test_parallel_runs_alternate() -> None:
    elements = parsed(
        [
            event("text", {"text": "a1"}),
            event("text", {"text": "b1"}, run=MEMBER, agent='mem"ber'),
            event("text", {"text": "a2"}),
        ]
    )

    assert [(element.get("agent"), element.text) for element in elements] == [
        ("helper", "a1"),
        ('mem"ber', "b1"),
        ("helper", "a2"),
    ]


def test_history_results_and_final_metadata_appear_only_on_demand() -> None:
    plain = parsed(one_of_each(), detail=False)

    on_demand = {"meta_final", *(f"content-block-{block}" for block in BLOCKS if "result" in block)}
    assert {element.tag for element in plain} == TAGS - on_demand
    assert "messages" not in plain[0].text
    assert "messages" in parsed(one_of_each())[0].text
