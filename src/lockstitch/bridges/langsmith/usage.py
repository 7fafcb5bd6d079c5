"""What a model call counted, in every provider's words.

Input includes what the cache had to do with. LangChain and OpenAI count that way; Anthropic's and Bedrock's own words
leave cache reads and writes out of the input, so there they are added. Cache writes stand in two places: as a sum, and
by time to live; some versions fill only one of them, so the larger is right.
"""

from typing import Any

from lockstitch.bridges.langsmith.values import bag, count, first_bag
from lockstitch.bridges.span import Tokens
from lockstitch.records import Json

_INPUT = (
    "input_tokens",
    "prompt_tokens",
    "promptTokens",
    "inputTokens",
    "prompt_token_count",
    "promptTokenCount",
    "prompt_eval_count",
)
_OUTPUT = (
    "output_tokens",
    "completion_tokens",
    "completionTokens",
    "outputTokens",
    "candidates_token_count",
    "candidatesTokenCount",
    "eval_count",
)
_TOTAL = ("total_tokens", "totalTokens", "total_token_count", "totalTokenCount")
_DETAILS = (
    "input_token_details",
    "input_tokens_details",
    "prompt_tokens_details",
    "prompt_token_details",
    "promptTokensDetails",
)
_READ = ("cache_read", "cached_tokens", "cachedTokens")
_WRITE = ("cache_creation", "cache_write", "cache_write_tokens")
_FORMS = ("ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens")
_APART_READ = ("cache_read_input_tokens", "cacheReadInputTokens")
_APART_WRITE = ("cache_creation_input_tokens", "cacheWriteInputTokens")
_WITHIN_READ = ("cached_content_token_count", "cachedContentTokenCount")
_EXCLUSIVE = ("input_tokens", "inputTokens")
_THOUGHTS = ("thoughts_token_count", "thoughtsTokenCount")


def tokens_of(usage: Any) -> Tokens | None:
    """The four counts of one usage object; None if it counts nothing that has a direction."""
    said = bag(usage)
    if not any(count(said.get(key)) or said.get(key) == 0 for key in (*_INPUT, *_OUTPUT)):
        return None
    details = first_bag(*(said.get(key) for key in _DETAILS))
    within_read = _largest(details, _READ) or _largest(said, _WITHIN_READ)
    within_write = max(_largest(details, _WRITE), sum(count(details.get(form)) for form in _FORMS))
    apart_read = _largest(said, _APART_READ)
    by_form = sum(count(bag(said.get("cache_creation")).get(form)) for form in _FORMS)
    apart_write = max(_largest(said, _APART_WRITE), by_form)
    read, write = max(within_read, apart_read), max(within_write, apart_write)
    given = _largest(said, _INPUT)
    # Only where the two stand apart are they left out of the input; and no input is smaller than its parts.
    # `prompt_tokens` is OpenAI's word, and includes them whatever a gateway writes beside it.
    apart = (apart_read or apart_write) and not (within_read or within_write) and any(key in said for key in _EXCLUSIVE)
    inclusive = given + read + write if apart or given < read + write else given
    return Tokens(inclusive, _largest(said, _OUTPUT) + _largest(said, _THOUGHTS), read, write)


def total_of(usage: Any) -> int:
    return _largest(bag(usage), _TOTAL)


def _largest(said: Json, keys: tuple[str, ...]) -> int:
    return max(count(said.get(key)) for key in keys)
