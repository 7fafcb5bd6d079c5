"""Every failure of OpenAI's SDK as a ProviderError."""

from typing import Final

import httpx2
import openai

from lockstitch.runtime.provider import ErrorKind, ProviderError
from lockstitch.runtime.providers.transport import kind_of_status, retry_after

# What an error that comes in mid-stream, without a status, says of itself: in its code or its type.
_WORDS: Final[dict[str, ErrorKind]] = {
    "rate_limit_exceeded": "rate_limit",
    "rate_limit_error": "rate_limit",
    "server_error": "server",
    "internal_error": "server",
    "internal_server_error": "server",
    "api_error": "server",
    "overloaded_error": "overloaded",
    "server_overloaded": "overloaded",
    "service_unavailable": "overloaded",
    "vector_store_timeout": "timeout",
    "timeout": "timeout",
    "invalid_api_key": "auth",
    "authentication_error": "auth",
    "insufficient_quota": "request",
    "invalid_request_error": "request",
    "invalid_prompt": "request",
}
# A spent budget is no matter of waiting a moment.
_HOPELESS: Final = ("insufficient_quota", "billing_hard_limit_reached")


def translated(exc: Exception) -> ProviderError:
    """The ProviderError for what the SDK, the connection or the stream raised."""
    match exc:
        case ProviderError():
            return exc
        case openai.APIStatusError():
            return _of_status(exc)
        case openai.APITimeoutError() | httpx2.TimeoutException() | TimeoutError():
            return ProviderError("OpenAI did not answer in time.", "timeout")
        case openai.APIConnectionError() | openai.WebSocketConnectionClosedError() | httpx2.TransportError():
            return ProviderError(f"The connection to OpenAI broke: {_cause(exc)}", "connection")
        case openai.APIResponseValidationError():
            return ProviderError(f"OpenAI's answer could not be read: {exc}", "garbled")
        case openai.APIError():
            return told(exc.code or exc.type, exc.message)
        case ValueError() | LookupError() | TypeError() | AttributeError() | httpx2.HTTPError() | httpx2.StreamError():
            return ProviderError(f"OpenAI's answer could not be read: {_cause(exc)}", "garbled")
        case _:
            return ProviderError(f"OpenAI could not be asked: {_cause(exc)}", "request")


def told(word: object, message: object) -> ProviderError:
    """The error that a stream tells of in its own words; one that we do not know is taken as passing."""
    return ProviderError(f"OpenAI refused: {message} ({word})", _WORDS.get(str(word), _unknown(word)))


def _unknown(word: object) -> ErrorKind:
    return "request" if str(word).startswith(("invalid_", "image_", "unsupported_")) else "server"


def _of_status(exc: openai.APIStatusError) -> ProviderError:
    headers = exc.response.headers
    kind = "request" if exc.code in _HOPELESS else kind_of_status(exc.status_code, headers)
    message = f"OpenAI refused: {exc.message} (status {exc.status_code})"
    return ProviderError(message, kind, status=exc.status_code, retry_after=retry_after(headers))


def _cause(exc: Exception) -> str:
    cause = exc.__cause__ or exc
    return f"{type(cause).__name__}: {cause}" if str(cause) else type(cause).__name__
