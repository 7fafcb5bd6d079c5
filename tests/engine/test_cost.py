"""Prices of calls, their parts, and sums of costs."""

import logging
import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import genai_prices
import pytest
from genai_prices.data_snapshot import get_snapshot
from hypothesis import given
from hypothesis import strategies as st

from lockstitch.engine import usage as cost
from lockstitch.engine.ports.provider import Usage
from lockstitch.engine.usage import add, price, total
from tests.model.properties import quick

AT = datetime(2025, 11, 25, 10, tzinfo=UTC)
SAMPLE = Usage(input_tokens=2500, output_tokens=1300, cache_write_tokens=200, cache_read_tokens=400)
PARTS = ("input_cost", "output_cost", "cache_write_cost", "cache_read_cost")


@pytest.fixture(autouse=True)
def forget_warnings() -> None:
    cost._warn.cache_clear()


@pytest.mark.req("S0-067", "S0-068", "X0-17")
def test_reproduces_sample_of_documents() -> None:
    assert price("anthropic", "claude-sonnet-4-5", SAMPLE, AT) == {
        "input_cost": 0.0057,
        "output_cost": 0.0195,
        "cache_write_cost": 0.00075,
        "cache_read_cost": 0.00012,
        "total_cost": 0.02607,
        "total_input_tokens": 2500,
        "total_output_tokens": 1300,
        "total_cache_creation_tokens": 200,
        "total_cache_read_tokens": 400,
        "model_id": "claude-sonnet-4-5",
        "long_context_applied": False,
        "currency": "USD",
        "source": "genai-prices",
        "version": genai_prices.__version__,
    }


@pytest.mark.req("S0-069")
@pytest.mark.parametrize(("provider", "model"), [("anthropic", "claude-unknown-9"), ("unknown", "gpt-5"), ("", "")])
def test_unknown_model_has_empty_cost_and_one_warning(
    provider: str, model: str, caplog: pytest.LogCaptureFixture
) -> None:
    known_price = price("anthropic", "claude-sonnet-4-5", SAMPLE, AT)
    assert Decimal(str(known_price["total_cost"])) == sum(Decimal(str(known_price[part])) for part in PARTS)
    assert known_price["currency"] == "USD"

    with caplog.at_level(logging.WARNING, logger="lockstitch"):
        assert price(provider, model, SAMPLE, AT) == {}
        assert price(provider, model, SAMPLE, AT) == {}

    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert total({}) is None


@pytest.mark.req("S0-070")
def test_applies_long_context_price_to_whole_call() -> None:
    at_the_edge = price("anthropic", "claude-sonnet-4-5", Usage(200_000, 1_000, 50_000, 10_000), AT)
    beyond = price("anthropic", "claude-sonnet-4-5", Usage(200_001, 1_000, 50_000, 10_000), AT)

    assert [at_the_edge[part] for part in PARTS] == [0.42, 0.015, 0.0375, 0.015]
    assert at_the_edge["long_context_applied"] is False
    assert [beyond[part] for part in PARTS] == [0.840006, 0.0225, 0.075, 0.03]
    assert beyond["long_context_applied"] is True
    # Many short calls do not reach the price tier of a long one.
    short = price("anthropic", "claude-sonnet-4-5", Usage(150_000), AT)
    assert add(short, short)["long_context_applied"] is False
    assert add(short, beyond)["long_context_applied"] is True


@pytest.mark.req("S0-071")
@pytest.mark.parametrize(
    ("provider", "name", "entry"),
    [
        ("anthropic", "claude-sonnet-4-5-20250929", "claude-sonnet-4-5"),
        ("anthropic", "claude-sonnet-4-20250514", "claude-sonnet-4-0"),
        ("openai", "gpt-5-mini-2025-08-07", "gpt-5-mini"),
        ("openai", "gpt-5-2025-08-07", "gpt-5"),
    ],
)
def test_finds_price_of_versioned_name_by_longest_match(provider: str, name: str, entry: str) -> None:
    cost = price(provider, name, SAMPLE, AT)

    assert cost["model_id"] == entry
    assert cost["total_cost"] == price(provider, entry, SAMPLE, AT)["total_cost"] > 0


counts = st.integers(0, 400_000)


@quick
@given(
    st.sampled_from(
        [(provider.id, model.id) for provider in get_snapshot().providers for model in provider.models][::7]
    ),
    st.tuples(counts, counts, counts, counts),
)
def test_cost_parts_equal_total_of_price_library(ref: tuple[str, str], tokens: Any) -> None:
    plain, output, read_tokens, write = tokens
    usage = Usage(plain + read_tokens + write, output, read_tokens, write)
    provider, model = ref
    own_price = price(provider, model, usage, AT)
    if not own_price:
        return
    expected_price = genai_prices.calc_price(
        genai_prices.Usage(
            input_tokens=usage.input_tokens,
            output_tokens=output,
            cache_read_tokens=read_tokens,
            cache_write_tokens=write,
        ),
        model,
        provider_id=provider,
        genai_request_timestamp=AT,
    )

    assert own_price["total_cost"] == pytest.approx(float(expected_price.total_price), rel=1e-12)
    assert sum(own_price[part] for part in PARTS) == pytest.approx(own_price["total_cost"], rel=1e-12)


def test_cost_is_never_negative_when_token_counts_conflict() -> None:
    cost = price("anthropic", "claude-sonnet-4-5", Usage(10, 0, 400, 0), AT)

    assert cost["input_cost"] == 0
    assert cost["total_cost"] == 0.00012


# Prices set by the user

OWN = {
    "house-model": {"input": 1.0, "output": 2.0},
    "claude-sonnet-4": {"input": 100, "output": 100},
    "claude-sonnet-4-5": {"input": 10, "output": 20, "cache_read": 1, "cache_write": 12.5},
}


@pytest.mark.parametrize(
    ("model", "entry", "wanted"),
    [
        ("house-model", "house-model", [0.0019, 0.0026, 0.0002, 0.0004]),
        ("house-model-latest", "house-model", [0.0019, 0.0026, 0.0002, 0.0004]),
        ("claude-sonnet-4-5", "claude-sonnet-4-5", [0.019, 0.026, 0.0025, 0.0004]),
        ("claude-sonnet-4-5-20250929", "claude-sonnet-4-5", [0.019, 0.026, 0.0025, 0.0004]),
    ],
)
def test_prefers_prices_of_user(model: str, entry: str, wanted: list[float]) -> None:
    cost = price("house", model, SAMPLE, AT, OWN)

    assert [cost[part] for part in PARTS] == wanted
    assert (cost["model_id"], cost["source"], cost["version"]) == (entry, "override", None)


def test_does_not_use_price_of_similar_model_name() -> None:
    only = {"claude-sonnet-4": {"input": 100, "output": 100}}

    assert price("anthropic", "claude-sonnet-4-5", SAMPLE, AT, only)["total_cost"] == 0.02607
    assert price("house", "house-model-large", SAMPLE, AT, OWN) == {}


@pytest.mark.parametrize("prices", [{}, {"input": 1}, {"input": -1, "output": 1}, {"input": "x", "output": 1}])
def test_falls_back_to_price_table_when_override_is_invalid(prices: Any, caplog: pytest.LogCaptureFixture) -> None:
    cost = price("anthropic", "claude-sonnet-4-5", SAMPLE, AT, {"claude-sonnet-4-5": prices})

    assert cost["total_cost"] == 0.02607
    assert "are not valid" in caplog.text


# Sums


def test_sum_counts_unpriced_calls() -> None:
    call = price("anthropic", "claude-sonnet-4-5", SAMPLE, AT)
    other_price = price("house", "house-model", SAMPLE, AT, OWN)

    assert add({}, call) == call
    assert add({}, {}) == {"unpriced": 1}
    assert total(add({}, {})) is None
    twice = add(add(add({}, {}), call), {})
    assert twice == {**call, "unpriced": 2}
    mixed = add(twice, add(other_price, {}))
    assert mixed["unpriced"] == 3
    assert mixed["total_cost"] == 0.03117
    assert mixed["total_input_tokens"] == 5_000
    assert mixed["model_id"] == "claude-sonnet-4-5"
    assert mixed["source"] == "genai-prices+override"
    assert mixed["version"] == genai_prices.__version__


def test_sum_of_many_costs_has_no_rounding_error() -> None:
    call = price("anthropic", "claude-sonnet-4-5", SAMPLE, AT)
    usage: Any = {}
    for _ in range(1_000):
        usage = add(usage, call)

    assert usage["total_cost"] == 26.07
    assert [usage[part] for part in PARTS] == [5.7, 19.5, 0.75, 0.12]


def test_import_does_not_load_price_tables() -> None:
    program = "import sys, lockstitch, lockstitch.engine.usage; sys.exit('genai_prices' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize(
    ("provider", "model", "known"),
    [
        ("", "anthropic/claude-sonnet-4-5", ("anthropic", "claude-sonnet-4-5")),
        # The client of OpenAI, with the URL of a gateway.
        ("openai", "anthropic/claude-sonnet-4-5", ("anthropic", "claude-sonnet-4-5")),
        ("", "openai/gpt-4o-mini", ("openai", "gpt-4o-mini")),
        ("openai", "openai:gpt-4o-mini", ("openai", "gpt-4o-mini")),
        ("", "gemini/gemini-2.5-flash", ("google", "gemini-2.5-flash")),
        ("google", "models/gemini-2.5-flash", ("google", "gemini-2.5-flash")),
        (
            "",
            "bedrock/us-east-1/us.anthropic.claude-sonnet-4-5-20250929-v1:0",
            ("aws", "us.anthropic.claude-sonnet-4-5-20250929-v1:0"),
        ),
        (
            "",
            "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
            ("aws", "us.anthropic.claude-sonnet-4-5-20250929-v1:0"),
        ),
        ("", "openrouter/anthropic/claude-sonnet-4.5", ("openrouter", "anthropic/claude-sonnet-4.5")),
        ("", "litellm_proxy/anthropic/claude-sonnet-4-5", ("anthropic", "claude-sonnet-4-5")),
        ("", "text-embedding-3-small", ("openai", "text-embedding-3-small")),
    ],
)
def test_prefix_of_gateway_names_the_provider(provider: str, model: str, known: tuple[str, str]) -> None:
    used = Usage(input_tokens=1_000, output_tokens=100)
    priced = price(provider, model, used, AT)
    assert priced["total_cost"] > 0
    assert priced == price(*known, used, AT)


@pytest.mark.parametrize(
    "model", ["ollama/gpt-oss:20b", "my-model", "scripted/gpt-4o-mini", "a/scripted/gpt-4o-mini", "/", ":", "a/", "a//"]
)
def test_unknown_prefix_has_no_price(model: str) -> None:
    assert price("", model, Usage(input_tokens=1_000), AT) == {}
