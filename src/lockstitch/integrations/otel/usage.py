"""Token counts of a model call in one convention: the input includes cache reads and writes.

GenAI, OpenInference and LangChain count this way. Anthropic's own counts exclude the cache. Instrumentations that pass
these on unchanged are recognised.
"""

from typing import Any

from lockstitch.integrations.otel.values import as_count, as_json, first
from lockstitch.integrations.spans.span import TokenCounts
from lockstitch.model import Json


def counted(
    input_tokens: Any,
    output_tokens: Any,
    *,
    cache_read: Any = None,
    cache_write: Any = None,
    raw: Json | None = None,
    total: Any = None,
) -> TokenCounts | None:
    """Return the counts of a span, or None. `raw` are the provider's own counts, if the span contains them."""
    requested, answered = as_count(input_tokens), as_count(output_tokens)
    token_counts = raw_counts(raw or {})
    if requested is None and answered is None:
        return token_counts
    read = as_count(cache_read)
    written = as_count(cache_write)
    if token_counts:
        read = token_counts.cache_read if read is None else read
        written = token_counts.cache_write if written is None else written
        requested = token_counts.input if requested is None else requested
        answered = token_counts.output if answered is None else answered
    requested, answered, read, written = requested or 0, answered or 0, read or 0, written or 0
    cached = read + written
    alone = (
        as_count((raw or {}).get("input_tokens")) == requested
        and token_counts is not None
        and token_counts.input == requested + cached
    )
    if cached and (cached > requested or alone or as_count(total) == requested + answered + cached):
        requested += cached
    return TokenCounts(requested, answered, read, written)


def raw_counts(usage: Json) -> TokenCounts | None:
    """Return a provider's own counts: Anthropic's, those of both OpenAI APIs, or LangChain's."""
    if not usage:
        return None
    requested = as_count(first(usage, "input_tokens", "prompt_tokens"))
    answered = as_count(first(usage, "output_tokens", "completion_tokens"))
    if requested is None and answered is None:
        return None
    requested, answered = requested or 0, answered or 0
    if "cache_read_input_tokens" in usage or "cache_creation_input_tokens" in usage:
        read = as_count(usage.get("cache_read_input_tokens")) or 0
        written = as_count(usage.get("cache_creation_input_tokens")) or 0
        return TokenCounts(requested + read + written, answered, read, written)
    details = as_json(first(usage, "prompt_tokens_details", "input_tokens_details", "input_token_details"))
    read = as_count(first(details, "cached_tokens", "cache_read")) or 0
    written = as_count(first(details, "cache_write_tokens", "cache_creation")) or 0
    return TokenCounts(requested, answered, read, written)
