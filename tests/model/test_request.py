"""The exact request of a model call, and what is kept of it."""

from hashlib import sha256

from lockstitch.model import codec
from lockstitch.model.message import build, reference

PARAMETERS = {"model": "m", "temperature": 0.1}
MESSAGES = [{"role": "user", "content": "Hello"}]


def test_the_order_of_its_keys_is_part_of_a_request() -> None:
    request = build(PARAMETERS, "Be größer.", [{"name": "look"}], MESSAGES)

    assert (
        codec.dumps(request)
        == (
            '{"model":"m","temperature":0.1,"system":"Be größer.","tools":[{"name":"look"}],'
            '"messages":[{"role":"user","content":"Hello"}]}'
        ).encode()
    )


def test_what_there_is_not_is_not_sent() -> None:
    assert build(PARAMETERS, None, [], MESSAGES) == {**PARAMETERS, "messages": MESSAGES}
    # An empty system text was sent, none was not.
    assert build({}, "", [], [])["system"] == ""


def test_building_changes_nothing_that_was_given() -> None:
    request = build(PARAMETERS, None, [], MESSAGES)
    request["messages"].append("more")
    request["model"] = "n"

    assert MESSAGES == [{"role": "user", "content": "Hello"}]
    assert PARAMETERS["model"] == "m"


def test_a_reference_names_the_bytes_and_repeats_no_text() -> None:
    request = build(PARAMETERS, "s", [], MESSAGES)
    kept = reference(PARAMETERS, "1" * 64, None, request)

    assert kept == {
        "sha256": sha256(codec.dumps(request)).hexdigest(),
        "parameters": PARAMETERS,
        "system": "1" * 64,
        "tools": None,
    }
