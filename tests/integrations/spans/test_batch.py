"""Values that are redacted, similar values that are not, and the page that lists them."""

import json
import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

import pytest

from lockstitch.integrations.spans import batch
from lockstitch.integrations.spans.batch import KEYS, REDACTED, VALUES, may_hide, redact, without_credentials
from lockstitch.store import Store
from tests.integrations.importing import import_bytes, lens
from tests.integrations.otel import bodies as otel
from tests.integrations.runs import agent_trace
from tests.integrations.seeing import rows_of

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "redaction.md").read_text()


def section(name: str) -> str:
    return PAGE.partition(f"\n## {name}\n")[2].partition("\n## ")[0]


def listed(name: str) -> dict[str, str]:
    """Return the patterns of a table, each with its example."""
    pairs = re.findall(r"^\| `(.+?)` \| `(.+?)` \|", section(name), re.MULTILINE)
    return {pattern.replace("\\|", "|"): example for pattern, example in pairs}


KEY_EXAMPLES = listed("Keys")
VALUE_EXAMPLES = listed("Values")
NEAR_MISSES = re.findall(r"`([^`]+)`", section("Unchanged content").replace("\n", " "))


@pytest.mark.req("S2-054", "S2-010")
def test_page_has_lists_of_code() -> None:
    assert tuple(KEY_EXAMPLES) == KEYS
    assert tuple(VALUE_EXAMPLES) == VALUES


@pytest.mark.parametrize(("pattern", "example"), KEY_EXAMPLES.items())
def test_redacts_value_under_secret_key(pattern: str, example: str) -> None:
    assert re.search(pattern, example, re.IGNORECASE), "the example matches its pattern"
    as_written = pattern.startswith("(?-i:")
    for key in (example,) if as_written else (example, example.lower(), example.upper()):
        assert redact({key: "x"}) == {key: REDACTED}
        assert redact({"deep": [{key: ["x", "y"]}]}) == {"deep": [{key: REDACTED}]}
        assert redact({key: {"a": "b"}}) == {key: REDACTED}


@pytest.mark.parametrize("key", KEY_EXAMPLES.values())
@pytest.mark.parametrize("value", [None, "", True, False, 7, 0.5])
def test_values_that_are_not_text_stay(key: str, value: Any) -> None:
    assert redact({key: value}) == {key: value}


@pytest.mark.parametrize("example", [*KEY_EXAMPLES.values(), *VALUE_EXAMPLES.values()])
@pytest.mark.parametrize("change", [str, str.upper, str.title])
def test_may_hide_misses_no_name_and_no_value(example: str, change: Callable[[str], str]) -> None:
    for fields in ({change(example): "x-value"}, {"a": example}, {"deep": [{change(example): ["b"]}]}):
        hides = redact(fields) != fields
        plain = json.dumps(fields)
        for text in (plain, json.dumps({"metadata": plain}), json.dumps({"a": json.dumps([plain])})):
            assert may_hide(text.encode()) or not hides
        escaped = "".join(f"\\u{ord(sign):04x}" if sign.isalpha() else sign for sign in plain)
        assert may_hide(escaped.encode())


def test_may_hide_finds_further_names() -> None:
    assert may_hide(b'{"Customer_Email": 1}', frozenset({"customer_email"}))
    assert not may_hide(b'{"gen_ai.usage.input_tokens": 12, "author": "Ada", "url": "http://a/b"}')


@pytest.mark.parametrize(("pattern", "example"), VALUE_EXAMPLES.items())
def test_redacts_secret_value_under_any_key(pattern: str, example: str) -> None:
    assert re.search(pattern, example), "the example matches its pattern"
    assert not any(re.search(other_pattern, example) for other_pattern in VALUES if other_pattern != pattern), (
        "and no other pattern"
    )
    for text in (example, f"use {example} please", f"a={example}\n"):
        assert redact({"note": text}) == {"note": REDACTED}
        assert redact({"a": {"b": [1, text]}}) == {"a": {"b": [1, REDACTED]}}
    assert redact({"note": "x" * 30_000 + " " + example})["note"] != REDACTED, "beyond the searched length"


@pytest.mark.parametrize("word", NEAR_MISSES)
def test_similar_values_stay(word: str) -> None:
    fields = {word: "x", "note": word, "list": [word]}
    assert redact(fields) is fields


def test_list_of_similar_values_is_complete() -> None:
    similar = {"max_tokens", "token_usage", "total_tokens", "task-123", "sk-short", "author", "tokenizer"}
    assert similar <= set(NEAR_MISSES)


def test_second_redaction_changes_nothing() -> None:
    fields = dict.fromkeys(KEY_EXAMPLES.values(), "x") | {"note": list(VALUE_EXAMPLES.values())}
    redacted = redact(fields)
    assert redact(redacted) == redacted
    assert redacted.keys() == fields.keys()


def test_redaction_is_fast_for_any_text() -> None:
    """A pattern that backtracks over a long text takes seconds."""
    parts = ("a", "a://", "a://b:", "eyJ", "eyJaaaaaaaaa.", "sk-", "bearer ", "a+.-", "a.b-", "-----BEGIN ")
    before = process_time()
    for part in parts:
        text = part * (20_000 // len(part))
        redact({"note": text, text: "x"})
    assert process_time() - before < 2


def pauses(work: Callable[[Callable[[], None]], object]) -> int:
    """Return how often other threads can run while a text is searched."""
    calls: list[None] = []
    work(lambda: calls.append(None))
    return len(calls)


@pytest.mark.parametrize("size", [1 << 20, 2 << 20])
def test_search_of_long_content_pauses_repeatedly(size: int) -> None:
    content = b"url " + b"d" * size
    assert pauses(lambda pause: without_credentials(content, pause)) >= size >> 16
    assert pauses(lambda pause: may_hide(content, pause=pause)) >= size >> 16
    assert pauses(lambda pause: redact(["x" * 20_000] * 10, pause=pause)) == 10


@pytest.mark.parametrize("example", VALUE_EXAMPLES.values())
def test_replaces_credential_around_end_of_window(example: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "_WINDOW", 4_000)
    monkeypatch.setattr(batch, "_LONGEST", 2_000)
    for place in range(4_000 - len(example) - 1, 4_000 + 2):
        content = b"." + b" " * place + example.encode() + b" " * 3_000
        assert example.encode() not in without_credentials(content)


def test_replaces_very_long_credential_completely() -> None:
    assert without_credentials(b"sk-" + b"a" * 200_000 + b" end") == f"{REDACTED} end".encode()


def test_long_names_are_not_cached() -> None:
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(10):
            assert redact({f"{number}{'x' * 1_000_000}_api_key": "x"}) != {}
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 1_000_000


def test_redacts_value_under_long_name() -> None:
    for name in ("x" * 5_000 + "_api_key", "api_key_" + "x" * 5_000):
        assert redact({name: "y"}) == {name: REDACTED}


@pytest.mark.parametrize("name", ["\u017fecret", "to\u212aen", "coo\u212aie"])
def test_may_hide_finds_escaped_letters(name: str) -> None:
    assert redact({name: "x"}) == {name: REDACTED}
    for text in (json.dumps({name: "x"}), json.dumps({name: "x"}, ensure_ascii=False)):
        assert may_hide(text.encode())
        assert may_hide(text.replace("f", "F").replace("a", "A").encode())


@pytest.mark.anyio
@pytest.mark.req("S2-054")
@pytest.mark.parametrize("source", ["langsmith", "otel"])
async def test_record_contains_no_secrets(store: Store, source: str) -> None:
    """Secrets in metadata, environment and attributes are redacted. Content stays, because it belongs to the user."""
    secrets = list(VALUE_EXAMPLES.values())
    text = "My key is sk-example-said-0123456789"
    if source == "langsmith":
        trace = agent_trace(metadata={f"note{place}": secret for place, secret in enumerate(secrets)})
        for run in trace.runs:
            run["extra"]["runtime"] = {"environment": {"HOME": "/", "SOME": secrets[0], "DB_PASSWORD": "hunter2"}}
            run["extra"]["invocation_params"] = {"model": "m", "openai_api_key": "hunter2", "max_tokens": 7}
        trace.runs[0]["inputs"]["messages"][0]["content"] = text
        body = b"\n".join(map(_dumped, trace.runs))
    else:
        metadata = {f"note{place}": secret for place, secret in enumerate(secrets)}
        span = otel.made(
            {
                **metadata,
                "http.request.header.authorization": "hunter2",
                "input.value": text,
                "gen_ai.request.max_tokens": 7,
            },
            resource={"service.name": "shop", "process.env.DB_PASSWORD": "hunter2"},
        )
        body = _dumped(span)
    report = await import_bytes(store, source, body)
    assert report.skipped == []
    rows = [row for kind in ("llm_call", "tool_call", "span") for row in await rows_of(store, kind)]
    stored = str([(row.data, row.message) for row in rows]) + str(await lens(store))
    assert [secret for secret in (*secrets, "hunter2") if secret in stored] == []
    assert text in stored
    assert REDACTED in stored


def _dumped(value: Any) -> bytes:
    return json.dumps(value).encode()


def test_versions_of_clients_are_not_redacted() -> None:
    metadata = {"langchain_version": "1.4.7", "langchain_core_version": "1.0.0"}
    assert redact(metadata) == metadata
