"""Every failure of a request to Anthropic becomes one kind of error."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import anthropic
import httpx2
import pytest
from anthropic._error_classes import ERROR_CLASSES

from lockstitch.agents.providers.anthropic import AnthropicProvider, translated
from lockstitch.engine.ports.provider import ProviderError
from tests.agents.fake_api import Answer, FakeApi
from tests.agents.providers.asking import answer, failure, request

pytestmark = pytest.mark.anyio

TEXT = {"type": "text", "text": "Hello there."}

KINDS = {
    "AnthropicError": "request",
    "APIError": "request",
    "APIStatusError": "request",
    "APITimeoutError": "timeout",
    "APIConnectionError": "connection",
    "APIResponseValidationError": "garbled",
    "APIWebhookValidationError": "garbled",
    "BadRequestError": "request",
    "AuthenticationError": "auth",
    "PermissionDeniedError": "auth",
    "NotFoundError": "request",
    "RequestTimeoutError": "timeout",
    "ConflictError": "server",
    "PreconditionFailedError": "request",
    "ContentTooLargeError": "request",
    "RequestTooLargeError": "request",
    "UnprocessableEntityError": "request",
    "RateLimitError": "rate_limit",
    "RequestHeaderFieldsTooLargeError": "request",
    "ClientClosedRequestError": "connection",
    "InternalServerError": "server",
    "HTTPNotImplementedError": "server",
    "ServiceUnavailableError": "overloaded",
    "GatewayTimeoutError": "timeout",
    "DeadlineExceededError": "timeout",
    "OverloadedError": "overloaded",
    "RetryableError": "server",
    "CredentialsError": "setup",
    "IdentityTokenFileError": "setup",
    "WorkloadIdentityError": "auth",
    # Named like in the API. Their status defines the kind.
    "ClaudeCodeKeyCreatorNotMemberError": "request",
    "ClaudeCodeVersionTooOldError": "request",
    "CMEKKeyDisabledError": "request",
    "CMEKKeyNetworkBlockedError": "request",
    "OrganizationOnHoldError": "request",
    "OrganizationTypeNotSupportedError": "request",
    "RequestBodyEncodingInvalidError": "request",
    "RequestBodyEncodingUnsupportedError": "request",
    "RequestBodyTooLargeAfterDecodingError": "request",
    "SandboxEgressRestrictedError": "auth",
    "EnforcedSpendLimitReachedError": "request",
    "RampLimitExceededError": "rate_limit",
    "CMEKContextUnavailableError": "overloaded",
    "CMEKKeyUnreachableError": "overloaded",
}

REQUEST = httpx2.Request("POST", "http://127.0.0.1/v1/messages")
STATUSES = {error: (status, code) for (status, code), error in ERROR_CLASSES.items()}


@pytest.fixture
async def provider(api: FakeApi) -> AsyncIterator[AnthropicProvider]:
    provider = AnthropicProvider(api_key="key", base_url=api.url)
    yield provider
    await provider.close()


def build_error(error: type[Exception]) -> Exception:
    """Return an exception of a class, as the SDK creates it."""
    if issubclass(error, anthropic.APIStatusError):
        status, code = STATUSES.get(error, (500 if issubclass(error, anthropic.InternalServerError) else 418, None))
        body = {"error": {"type": "api_error", "message": "no", "details": {"error_code": code}}}
        return error("no", response=httpx2.Response(status, request=REQUEST), body=body)
    if issubclass(error, anthropic.APIResponseValidationError):
        return error(httpx2.Response(200, request=REQUEST), None)
    if issubclass(error, anthropic.APIConnectionError):
        return error(request=REQUEST)
    if issubclass(error, anthropic.APIError):
        return error("no", REQUEST, body=None)
    return error("no")


def exported() -> list[str]:
    members: dict[str, Any] = {name: getattr(anthropic, name) for name in dir(anthropic)}
    return [name for name, member in members.items() if isinstance(member, type) and issubclass(member, Exception)]


def test_every_exception_of_sdk_has_a_kind() -> None:
    kinds = {name: translated(build_error(getattr(anthropic, name))).kind for name in exported()}
    assert kinds == KINDS


def test_translates_every_named_error_of_api() -> None:
    for error in STATUSES:
        assert isinstance(translated(build_error(error)), ProviderError)


@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (400, "request", False),
        (401, "auth", False),
        (402, "request", False),
        (403, "auth", False),
        (404, "request", False),
        (408, "timeout", True),
        (413, "request", False),
        (429, "rate_limit", True),
        (500, "server", True),
        (502, "server", True),
        (503, "overloaded", True),
        (504, "timeout", True),
        (529, "overloaded", True),
    ],
)
async def test_maps_statuses(
    api: FakeApi, provider: AnthropicProvider, status: int, kind: str, retryable: bool
) -> None:
    body = {"type": "error", "error": {"type": "some_error", "message": "Not like this."}}
    api.answer(Answer(status=status, body=body))
    error = await failure(provider, request("Hi"))
    assert (error.kind, error.status, error.retryable) == (kind, status, retryable)
    assert "Not like this." in str(error)
    assert isinstance(error.__cause__, anthropic.APIStatusError)
    # The runtime retries. The SDK does not.
    assert len(api.requests) == 1


async def test_reads_retry_after(api: FakeApi, provider: AnthropicProvider) -> None:
    http_date = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    for headers, low, high in (
        ({"retry-after": "7"}, 7, 7),
        ({"retry-after": "1.5"}, 1.5, 1.5),
        ({"retry-after-ms": "250", "retry-after": "7"}, 0.25, 0.25),
        ({"retry-after": http_date}, 20, 30),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0, 0),
    ):
        api.answer(Answer(status=429, body={}, headers=headers))
        error = await failure(provider, request("Hi"))
        assert error.retry_after is not None
        assert low <= error.retry_after <= high
    for headers in ({"retry-after": "soon"}, {"retry-after": "inf"}, {"retry-after": "nan"}, {}):
        api.answer(Answer(status=429, body={}, headers=headers))
        assert (await failure(provider, request("Hi"))).retry_after is None


async def test_header_of_provider_decides_about_retry(api: FakeApi, provider: AnthropicProvider) -> None:
    api.answer(Answer(status=429, body={}, headers={"x-should-retry": "false"}))
    assert not (await failure(provider, request("Hi"))).retryable


@pytest.mark.parametrize(
    ("error_type", "kind"),
    [
        ("overloaded_error", "overloaded"),
        ("rate_limit_error", "rate_limit"),
        ("api_error", "server"),
        ("timeout_error", "timeout"),
        ("invalid_request_error", "request"),
        ("authentication_error", "auth"),
        ("error_of_tomorrow", "server"),
    ],
)
async def test_translates_errors_in_mid_stream(
    api: FakeApi, provider: AnthropicProvider, error_type: str, kind: str
) -> None:
    line = f'event: error\ndata: {{"type": "error", "error": {{"type": "{error_type}", "message": "Sorry"}}}}\n\n'
    api.answer(Answer([TEXT], change=lambda lines: [*lines[:4], line]))
    error = await failure(provider, request("Hi"))
    assert error.kind == kind
    assert "Sorry" in str(error)


@pytest.mark.parametrize("events", [0, 1, 5])
async def test_translates_cut_connection(api: FakeApi, provider: AnthropicProvider, events: int) -> None:
    api.answer(Answer([TEXT], cut_after=events), Answer([TEXT]))
    assert (await failure(provider, request("Hi"))).kind == "connection"
    assert (await answer(provider, request("Hi"))).message["content"] == [TEXT]


async def test_translates_missing_server(api: FakeApi) -> None:
    provider = AnthropicProvider(api_key="key", base_url="http://127.0.0.1:1")
    assert (await failure(provider, request("Hi"))).kind == "connection"
    await provider.close()


@pytest.mark.parametrize("events", [0, 2, 5])
async def test_silent_provider_times_out(api: FakeApi, provider: AnthropicProvider, events: int) -> None:
    api.answer(Answer([TEXT], hang_after=events))
    assert (await failure(provider, request("Hi", timeout=0.3))).kind == "timeout"
    await asyncio.wait_for(api.hung_up.wait(), 60)


async def test_pings_without_content_time_out(api: FakeApi, provider: AnthropicProvider) -> None:
    ping = 'event: ping\ndata: {"type": "ping"}\n\n'
    api.answer(Answer([TEXT], change=lambda lines: [*lines[:4], *([ping] * 20), *lines[4:]], pause=0.1))
    assert (await failure(provider, request("Hi", timeout=0.3))).kind == "timeout"


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda lines: lines[:-1], id="no message_stop"),
        pytest.param(lambda lines: lines[1:], id="no message_start"),
        pytest.param(lambda lines: [*lines[:2], *lines[3:]], id="no content_block_start"),
        pytest.param(lambda lines: [*lines[:-3], *lines[-2:]], id="no content_block_stop"),
        pytest.param(lambda lines: [*lines[:3], 'event: message_delta\ndata: {"type": "mess\n\n'], id="half JSON"),
        pytest.param(lambda lines: [*lines[:3], "event: message_delta\ndata: 3\n\n"], id="a number"),
        pytest.param(lambda lines: [*lines[:3], 'event: x\ndata: {"a": 1}\n\n'], id="no type"),
        pytest.param(lambda lines: [*lines[:3], "event: x\ndata: \udcff\n\n"], id="no UTF-8"),
        pytest.param(lambda lines: ["<html>Welcome to the hotel</html>"], id="a page"),
        pytest.param(lambda lines: [], id="nothing"),
    ],
)
async def test_translates_invalid_stream(api: FakeApi, provider: AnthropicProvider, change: Any) -> None:
    api.answer(Answer([TEXT], change=change))
    error = await failure(provider, request("Hi"))
    assert error.kind == "garbled"
    assert error.retryable


async def test_does_not_retry_request_that_cannot_be_sent(api: FakeApi, provider: AnthropicProvider) -> None:
    assert (await failure(provider, request("Hi", api_kwargs={"metadata": object()}))).kind == "request"
    assert (await failure(provider, request({"content": "no role"}))).kind == "request"
    assert api.requests == []


async def test_translates_missing_file(api: FakeApi, provider: AnthropicProvider) -> None:
    with pytest.raises(ProviderError, match="no such file") as caught:
        await provider.download("file_9")
    assert (caught.value.kind, caught.value.status) == ("request", 404)
