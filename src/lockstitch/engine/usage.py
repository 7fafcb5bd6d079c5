"""Token estimates and prices.

A cost is JSON, in US dollars:

    {"input_cost", "output_cost", "cache_write_cost", "cache_read_cost", "total_cost",
     "total_input_tokens", "total_output_tokens", "total_cache_creation_tokens", "total_cache_read_tokens",
     "model_id", "long_context_applied", "currency": "USD", "source", "version"}

`input_cost` covers the input tokens that were neither read from nor written to the cache. `total_input_tokens` counts
all input tokens. A sum of costs also has `unpriced`: the number of calls without a known price. Its total does not
contain them.
"""

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from lockstitch.engine.ports.provider import Usage
from lockstitch.model import Json, Message, codec
from lockstitch.model.message import blocks

if TYPE_CHECKING:
    from genai_prices.data_snapshot import DataSnapshot
    from genai_prices.types import ModelInfo, ModelPrice

Overrides = Mapping[str, Mapping[str, float]]
"""Prices set by the user, by model: {"input", "output", "cache_read", "cache_write"}, in dollars per million tokens.

A missing cache price is that of the input.
"""

_log = logging.getLogger("lockstitch.cost")

_COSTS: Final = ("input_cost", "output_cost", "cache_write_cost", "cache_read_cost")
_TOKENS: Final = (
    "total_input_tokens",
    "total_output_tokens",
    "total_cache_creation_tokens",
    "total_cache_read_tokens",
)
_MILLION: Final = Decimal(1_000_000)
_THOUSAND: Final = Decimal(1_000)
_DATED: Final = re.compile(r"[-@](\d{8}|\d{4}-\d{2}-\d{2}|\d{3}|latest)")
"""The suffix of a model version."""

_BEDROCK: Final = re.compile(
    r"([a-z]{2,6}\.)?(ai21|amazon|anthropic|cohere|deepseek|meta|mistral|openai|qwen|writer)\."
)
"""The start of a model id of Amazon Bedrock, with or without a region."""

_RESOURCE: Final = "/models/"

_WITHOUT_PRICE: Final = frozenset({"scripted"})
"""Providers without costs. An unknown price of theirs needs no warning."""


class _Rates(NamedTuple):
    """Dollars per million tokens, and the fixed dollars per request."""

    model: str
    source: str
    version: str | None
    input: Decimal
    output: Decimal
    cache_read: Decimal
    cache_write: Decimal
    request: Decimal = Decimal(0)
    long_context: bool = False


def price(provider: str, model: str, usage: Usage, at: datetime, overrides: Overrides | None = None) -> Json:
    """Return the cost of one call made at that time. If the price is unknown, return {} and log a warning."""
    rates = _override_rates(model, overrides or {}) or _known_rates(provider, model, usage, at)
    if rates is None:
        return {}
    plain = max(0, usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens)
    costs = (
        plain * rates.input / _MILLION + rates.request,
        usage.output_tokens * rates.output / _MILLION,
        usage.cache_write_tokens * rates.cache_write / _MILLION,
        usage.cache_read_tokens * rates.cache_read / _MILLION,
    )
    return {
        "input_cost": float(costs[0]),
        "output_cost": float(costs[1]),
        "cache_write_cost": float(costs[2]),
        "cache_read_cost": float(costs[3]),
        "total_cost": float(sum(costs)),
        "total_input_tokens": usage.input_tokens,
        "total_output_tokens": usage.output_tokens,
        "total_cache_creation_tokens": usage.cache_write_tokens,
        "total_cache_read_tokens": usage.cache_read_tokens,
        "model_id": rates.model,
        "long_context_applied": rates.long_context,
        "currency": "USD",
        "source": rates.source,
        "version": rates.version,
    }


def add(total: Json, cost: Json) -> Json:
    """Return the sum of a total and another cost: that of a call ({} if its price is unknown), or another sum.

    The sum names the model of the first priced cost. `total` is {} before the first call.
    """
    if not total and cost:
        return cost
    unpriced = int(total.get("unpriced", 0)) + (int(cost.get("unpriced", 0)) if cost else 1)
    priced = [item for item in (total, cost) if "total_cost" in item]
    both: Json = {}
    if priced:
        first, last = priced[0], priced[-1]
        is_sum = len(priced) == 2
        both = {name: _sum(first[name], last[name] if is_sum else 0.0) for name in (*_COSTS, "total_cost")}
        for name in _TOKENS:
            both[name] = first[name] + last[name] if is_sum else first[name]
        both["model_id"] = first["model_id"]
        both["long_context_applied"] = first["long_context_applied"] or last["long_context_applied"]
        both["currency"] = first["currency"]
        both["source"] = _sources(first["source"], last["source"])
        both["version"] = last["version"] or first["version"]
    return {**both, "unpriced": unpriced} if unpriced else both


def total(cost: Json) -> float | None:
    """Return the dollars of a cost or a sum; None if nothing in it has a price."""
    return cost.get("total_cost")


def _sum(first: Any, second: Any) -> float:
    # Add decimals, so that a thousand small costs have no rounding error.
    if not first or not second:
        return float(first or second or 0.0)
    return float(Decimal(str(first)) + Decimal(str(second)))


def _sources(first: Any, second: Any) -> str:
    return "+".join(sorted({*str(first).split("+"), *str(second).split("+")}))


def _override_rates(model: str, overrides: Overrides) -> _Rates | None:
    """Return the user's prices for a model, by its exact name or the longest name of which it is a version."""
    names = [name for name in overrides if model == name or _is_version(model, name)] if overrides else []
    if not names:
        return None
    name = max(names, key=len)
    values = overrides[name]
    try:
        rate = {part: Decimal(str(value)) for part, value in values.items()}
        if not all(value.is_finite() and value >= 0 for value in rate.values()):
            raise ValueError("a price must be a finite number, zero or more")
        read, write = rate.get("cache_read", rate["input"]), rate.get("cache_write", rate["input"])
        return _Rates(name, "override", None, rate["input"], rate["output"], read, write)
    except (ArithmeticError, LookupError, ValueError) as exc:
        _warn(f"The configured prices of {name} are not valid: {exc!r}.")
        return None


def _is_version(model: str, name: str) -> bool:
    return model.startswith(name) and _DATED.fullmatch(model[len(name) :]) is not None


def _known_rates(provider: str, model: str, usage: Usage, at: datetime) -> _Rates | None:
    if provider in _WITHOUT_PRICE:
        return None
    named = f"model {model} at provider {provider}" if provider else f"model {model}"
    try:
        get_snapshot, version = _price_table()
    except ModuleNotFoundError:
        _warn("No prices: genai-prices is not installed. Run: pip install 'lockstitch[prices]'")
        return None
    try:
        prices = _model_prices(provider, model, id(get_snapshot()))
        if prices is None:
            raise LookupError(model)
        return prices.at(at, version, usage.input_tokens)
    except LookupError:
        _warn(f"Unknown price of {named}. Pass `prices` to the agent to count its costs.")
        return None
    except Exception as exc:  # an unknown price must never fail a run
        _warn(f"Unknown price of {named}: {exc}.")
        return None


@cache
def _price_table() -> "tuple[Callable[[], DataSnapshot], str]":
    """Return the function that gives the current price table, and the version of its package."""
    # Imported here because its tables take a quarter of a second to load.
    import genai_prices
    from genai_prices.data_snapshot import get_snapshot

    return get_snapshot, genai_prices.__version__


class _ModelPrices:
    """The prices of one model. Rates that do not depend on the number of tokens are computed once."""

    def __init__(self, model: "ModelInfo") -> None:
        self._model = model
        self._rates: dict[int, _Rates] = {}
        """By the id of the prices, which are objects of the table. They can change at a date or a time of the day."""

    def at(self, at: datetime, version: str, input_tokens: int) -> _Rates:
        """Return the rates of a call at that time."""
        prices = self._model.get_prices(at)
        rates = self._rates.get(id(prices))
        if rates is None:
            rates = _rates_of(prices, self._model.id, version, input_tokens)
            if not any(hasattr(price, "tiers") for price in vars(prices).values()):
                self._rates[id(prices)] = rates
        return rates


@lru_cache(maxsize=4_096)
def _model_prices(provider: str, model: str, snapshot_id: int) -> _ModelPrices | None:
    """Return the prices of a model, or None. Cached per table, because a failed search reads all its models."""
    from genai_prices.data_snapshot import get_snapshot

    for provider_name, model_name in _table_names(provider, model):
        try:
            return _ModelPrices(get_snapshot().find_provider_model(model_name, None, provider_name or None, None)[1])
        except LookupError:
            continue
    return None


def _table_names(provider: str, model: str) -> Iterator[tuple[str, str]]:
    """Yield the provider and model names to look up in the price table, the recorded names first.

    Gateways and frameworks put the provider before the model: `anthropic/claude-sonnet-4-5` (LiteLLM, OpenRouter),
    `openai:gpt-5` (LangChain, pydantic-ai), `bedrock/us-east-1/anthropic.claude-…`. The client of such a gateway may be
    that of another provider, so the prefix is more exact than the recorded provider.
    """
    yield provider, model
    for separator in "/:":
        prefix, found, name = model.partition(separator)
        if found and prefix and name and prefix not in _WITHOUT_PRICE:
            yield prefix, name
            if separator in name:
                yield prefix, name.rpartition(separator)[2]
                # A proxy in front of another provider: litellm_proxy/anthropic/claude-sonnet-4-5.
                inner, _, inner_name = name.partition(separator)
                yield inner, inner_name
    if _RESOURCE in f"/{model}":
        # Google names models by their resource: models/gemini-2.5-pro.
        yield provider, f"/{model}".rpartition(_RESOURCE)[2]
    if not provider and _BEDROCK.match(model):
        yield "aws", model
    if not provider and model.startswith("text-embedding-"):
        yield "openai", model


def _rates_of(prices: "ModelPrice", model: str, version: str, input_tokens: int) -> _Rates:
    long_context = False

    def rate(name: str, otherwise: Decimal | None = None) -> Decimal:
        nonlocal long_context
        value: Any = getattr(prices, name)
        if value is None:
            if otherwise is None:
                raise LookupError(f"the price table has no {name}")
            return otherwise
        if isinstance(value, Decimal):
            return value
        # The highest tier that is reached applies to all tokens of the call.
        reached = [tier for tier in value.tiers if input_tokens > tier.start]
        long_context = long_context or bool(reached)
        return reached[-1].price if reached else value.base

    input = rate("input_mtok")
    rates = (input, rate("output_mtok", Decimal(0)), rate("cache_read_mtok", input), rate("cache_write_mtok", input))
    request = rate("requests_kcount", Decimal(0)) / _THOUSAND
    return _Rates(model, "genai-prices", version, *rates, request, long_context)


@cache
def _warn(message: str) -> None:
    """Log a warning once per process, because an unknown price repeats at every step."""
    _log.warning(message)


_BYTES_PER_TOKEN: Final = 4
_MESSAGE: Final = 4
"""Tokens of a message besides its blocks."""

_FLAT: Final = {"image": 1_600, "document": 3_000}
"""Tokens of media. Models count them by size, not by the length of their base64."""


def estimate(message: Message) -> int:
    """Return the estimated tokens of a message: one token per four bytes of JSON, a fixed number per image and
    document."""
    return _MESSAGE + sum(estimate_block(block) for block in blocks(message))


def estimate_all(messages: Iterable[Message]) -> int:
    """Return the estimated tokens of several messages."""
    return sum(map(estimate, messages))


def estimate_json(value: Any) -> int:
    """Return the estimated tokens of other request parts: a system text, a list of tools."""
    return -(-len(codec.dumps(value)) // _BYTES_PER_TOKEN)


def estimate_block(block: Json) -> int:
    """Return the estimated tokens of one content block."""
    flat = _FLAT.get(str(block.get("type")))
    if flat is not None:
        return flat
    content: Any = block.get("content")
    if not isinstance(content, list):
        return estimate_json(block)
    # A tool result may contain images.
    inner = [cast("Json", part) for part in cast("list[Any]", content) if isinstance(part, dict)]
    return estimate_json({**block, "content": None}) + sum(map(estimate_block, inner))
