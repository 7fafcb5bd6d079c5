"""Every failure of Anthropic's SDK as a ProviderError."""

from typing import Final

import anthropic
import httpx2
from anthropic.lib.credentials import WorkloadIdentityError

from lockstitch.runtime.provider import ErrorKind, ProviderError
from lockstitch.runtime.providers.transport import kind_of_status, retry_after

NO_KEY: Final = "There is no key for Anthropic: set ANTHROPIC_API_KEY, or give the provider an api_key."

# An error in mid-stream comes with status 200, so its own word comes first.
_TYPES: Final[dict[str, ErrorKind]] = {
    "overloaded_error": "overloaded",
    "rate_limit_error": "rate_limit",
    "api_error": "server",
    "timeout_error": "timeout",
    "authentication_error": "auth",
    "permission_error": "auth",
    "billing_error": "request",
    "invalid_request_error": "request",
    "not_found_error": "request",
    "request_too_large": "request",
}
# A spending limit is no matter of waiting a moment.
_HOPELESS: Final = ("enforced_spend_limit_reached",)


def translated(exc: Exception) -> ProviderError:
    """The ProviderError for what the SDK, the connection or the stream raised."""
    match exc:
        case ProviderError():
            return exc
        case anthropic.APIStatusError():
            return _of_status(exc)
        case anthropic.APITimeoutError() | httpx2.TimeoutException() | TimeoutError():
            return ProviderError("Anthropic did not answer in time.", "timeout")
        case anthropic.APIConnectionError() | httpx2.TransportError():
            return ProviderError(f"The connection to Anthropic broke: {_cause(exc)}", "connection")
        case anthropic.RetryableError():
            return ProviderError(f"Anthropic could not answer: {exc}", "server")
        case WorkloadIdentityError():
            passing = exc.status_code is not None and exc.status_code >= 500
            return ProviderError(f"Anthropic does not accept this identity: {exc}", "server" if passing else "auth")
        case anthropic.CredentialsError():
            return ProviderError(f"{NO_KEY} Its SDK looked further and says: {exc}", "setup")
        case (
            anthropic.APIResponseValidationError()
            | anthropic.APIWebhookValidationError()
            | ValueError()
            | LookupError()
            | TypeError()
            | AttributeError()
            | httpx2.HTTPError()
            | httpx2.StreamError()
        ):
            return ProviderError(f"Anthropic's answer could not be read: {_cause(exc)}", "garbled")
        case _:
            return ProviderError(f"Anthropic could not be asked: {_cause(exc)}", "request")


def _of_status(exc: anthropic.APIStatusError) -> ProviderError:
    headers = exc.response.headers
    kind = _TYPES.get(str(exc.type)) if exc.status_code < 400 else None
    if exc.error_code in _HOPELESS:
        kind = "request"
    kind = kind or (kind_of_status(exc.status_code, headers) if exc.status_code >= 400 else "server")
    message = f"Anthropic refused: {exc.api_message or exc.message} (status {exc.status_code})"
    return ProviderError(message, kind, status=exc.status_code, retry_after=retry_after(headers))


def _cause(exc: Exception) -> str:
    cause = exc.__cause__ or exc
    return f"{type(cause).__name__}: {cause}" if str(cause) else type(cause).__name__
