"""What a model call counted, brought to one way of counting: input includes what the cache read and wrote.

GenAI, OpenInference and LangChain count so; Anthropic's own figures leave the cache out. Instrumentations that pass
those on unchanged are recognised by it.
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
    """The counts of a span, `raw` being the provider's own where the span has them too; None if it has none."""
    asked, answered = as_count(input_tokens), as_count(output_tokens)
    own = raw_counts(raw or {})
    if asked is None and answered is None:
        return own
    read = as_count(cache_read)
    written = as_count(cache_write)
    if own:
        read = own.cache_read if read is None else read
        written = own.cache_write if written is None else written
        asked = own.input if asked is None else asked
        answered = own.output if answered is None else answered
    asked, answered, read, written = asked or 0, answered or 0, read or 0, written or 0
    cached = read + written
    alone = as_count((raw or {}).get("input_tokens")) == asked and own is not None and own.input == asked + cached
    if cached and (cached > asked or alone or as_count(total) == asked + answered + cached):
        asked += cached
    return TokenCounts(asked, answered, read, written)


def raw_counts(usage: Json) -> TokenCounts | None:
    """A provider's own counts: Anthropic's, OpenAI's of both APIs, or LangChain's."""
    asked = as_count(first(usage, "input_tokens", "prompt_tokens"))
    answered = as_count(first(usage, "output_tokens", "completion_tokens"))
    if asked is None and answered is None:
        return None
    asked, answered = asked or 0, answered or 0
    if "cache_read_input_tokens" in usage or "cache_creation_input_tokens" in usage:
        read = as_count(usage.get("cache_read_input_tokens")) or 0
        written = as_count(usage.get("cache_creation_input_tokens")) or 0
        return TokenCounts(asked + read + written, answered, read, written)
    details = as_json(first(usage, "prompt_tokens_details", "input_tokens_details", "input_token_details"))
    read = as_count(first(details, "cached_tokens", "cache_read")) or 0
    written = as_count(first(details, "cache_write_tokens", "cache_creation")) or 0
    return TokenCounts(asked, answered, read, written)
