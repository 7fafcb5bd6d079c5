"""What a model call of another system cost: what that system says, else what the price list says."""

from datetime import datetime
from typing import Final

from lockstitch.bridges.span import Meaning
from lockstitch.records import Json
from lockstitch.runtime import cost as costs
from lockstitch.runtime.provider import Usage

_NO_PARTS: Final = ("input_cost", "output_cost", "cache_write_cost", "cache_read_cost")
_ABSURD: Final = 1e9
"""Dollars that no call costs, so that whoever says so is not believed, and sums stay numbers."""


def price(meaning: Meaning, at: datetime) -> Json | None:
    """The cost of a call; {} where nobody knows it, None where it counted nothing."""
    tokens = meaning.tokens
    if tokens is None:
        return None
    if meaning.cost is not None and 0 <= meaning.cost < _ABSURD:
        return {
            **dict.fromkeys(_NO_PARTS, 0.0),
            "total_cost": meaning.cost,
            "total_input_tokens": tokens.input,
            "total_output_tokens": tokens.output,
            "total_cache_creation_tokens": tokens.cache_write,
            "total_cache_read_tokens": tokens.cache_read,
            "model_id": meaning.model,
            "long_context_applied": False,
            "currency": "USD",
            "source": "given",
            "version": None,
        }
    if not meaning.model:
        return {}
    usage = Usage(
        input_tokens=tokens.input,
        output_tokens=tokens.output,
        cache_read_tokens=tokens.cache_read,
        cache_write_tokens=tokens.cache_write,
    )
    return costs.price(meaning.provider or "", meaning.model or "", usage, at)
