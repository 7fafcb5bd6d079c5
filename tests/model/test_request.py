"""The exact request of a model call, and the reference to it."""

from hashlib import sha256

from lockstitch.model import codec
from lockstitch.model.message import build, reference

PARAMETERS = {"model": "m", "temperature": 0.1}
MESSAGES = [{"role": "user", "content": "Hello"}]


def test_key_order_is_part_of_request() -> None:
    request = build(PARAMETERS, "Be größer.", [{"name": "look"}], MESSAGES)

    assert (
        codec.dumps(request)
        == (
            '{"model":"m","temperature":0.1,"system":"Be größer.","tools":[{"name":"look"}],'
            '"messages":[{"role":"user","content":"Hello"}]}'
        ).encode()
    )


def test_missing_parts_are_not_sent() -> None:
    assert build(PARAMETERS, None, [], MESSAGES) == {**PARAMETERS, "messages": MESSAGES}
    # An empty system text was sent; None was not sent.
    assert build({}, "", [], [])["system"] == ""


def test_build_does_not_modify_arguments() -> None:
    request = build(PARAMETERS, None, [], MESSAGES)
    request["messages"].append("more")
    request["model"] = "n"

    assert MESSAGES == [{"role": "user", "content": "Hello"}]
    assert PARAMETERS["model"] == "m"


def test_reference_contains_digests_without_texts() -> None:
    request = build(PARAMETERS, "s", [], MESSAGES)
    stored_request = reference(PARAMETERS, "1" * 64, None, request)

    assert stored_request == {
        "sha256": sha256(codec.dumps(request)).hexdigest(),
        "parameters": PARAMETERS,
        "system": "1" * 64,
        "tools": None,
    }
