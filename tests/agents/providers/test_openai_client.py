"""Every failure of a request to either API of OpenAI becomes one kind of error."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import openai
import pytest

from lockstitch.agents.providers.openai_chat import OpenAIChatProvider
from lockstitch.agents.providers.openai_client import stream_error, translated
from lockstitch.agents.providers.openai_responses import OpenAIResponsesProvider
from lockstitch.engine.ports.provider import Provider
from tests.agents.fake_api import Answer, FakeApi
from tests.agents.providers.asking import answer, failure, request

pytestmark = pytest.mark.anyio

KINDS = {
    "OpenAIError": "request",
    "APIError": "server",
    "APIStatusError": "request",
    "APITimeoutError": "timeout",
    "APIConnectionError": "connection",
    "APIResponseValidationError": "garbled",
    "BadRequestError": "request",
    "AuthenticationError": "auth",
    "OAuthError": "auth",
    "PermissionDeniedError": "auth",
    "NotFoundError": "request",
    "ConflictError": "server",
    "UnprocessableEntityError": "request",
    "RateLimitError": "rate_limit",
    "InternalServerError": "server",
    "LengthFinishReasonError": "request",
    "ContentFilterFinishReasonError": "request",
    "InvalidWebhookSignatureError": "garbled",
    "WebSocketConnectionClosedError": "connection",
    "WebSocketQueueFullError": "request",
}

REQUEST = httpx2.Request("POST", "http://127.0.0.1/v1/responses")
CONTENT = {
    "chat": [{"type": "text", "text": "Hello there."}],
    "responses": [
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "Hello there.", "annotations": []}],
        }
    ],
}


@pytest.fixture(params=["chat", "responses"])
async def provider(api: FakeApi, request: pytest.FixtureRequest) -> AsyncIterator[Provider]:
    make = OpenAIChatProvider if request.param == "chat" else OpenAIResponsesProvider
    provider = make(api_key="key", base_url=f"{api.url}/v1")
    yield provider
    await provider.close()


@pytest.fixture
def content(provider: Provider) -> list[Any]:
    return CONTENT["chat" if isinstance(provider, OpenAIChatProvider) else "responses"]


def build_error(error: type[Exception]) -> Exception:
    """Return an exception of a class, as the SDK creates it."""
    if issubclass(error, openai.APIStatusError):
        status = getattr(error, "status_code", 500 if error is openai.InternalServerError else 418)
        response = httpx2.Response(status, request=REQUEST)
        if error.__name__ == "OAuthError":
            return error(response=response, body=None)  # type: ignore[call-arg]
        return error("no", response=response, body=None)
    if issubclass(error, openai.APIResponseValidationError):
        return error(httpx2.Response(200, request=REQUEST), None)
    if issubclass(error, openai.APIConnectionError):
        return error(request=REQUEST)
    if issubclass(error, openai.APIError):
        return error("no", REQUEST, body=None)
    if issubclass(error, openai.WebSocketConnectionClosedError):
        return error("no", unsent_messages=[])
    return error.__new__(error, "no")


def test_every_exception_of_sdk_has_a_kind() -> None:
    members: dict[str, Any] = {name: getattr(openai, name) for name in dir(openai) if name[0] != "_"}
    # Some names are lazy clients. isinstance would create them and load the complete SDK.
    classes = {name: member for name, member in members.items() if issubclass(type(member), type)}
    errors = {name: member for name, member in classes.items() if issubclass(member, Exception)}
    assert {name: translated(build_error(error)).kind for name, error in errors.items()} == KINDS


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, "request"), (401, "auth"), (404, "request"), (429, "rate_limit"), (500, "server"), (503, "overloaded")],
)
async def test_maps_statuses(api: FakeApi, provider: Provider, status: int, kind: str) -> None:
    error = {"message": "Not like this.", "type": "some_error", "code": None}
    api.answer(Answer(status=status, body={"error": error}, headers={"retry-after": "3"}))
    failed = await failure(provider, request("Hi"))
    assert (failed.kind, failed.status, failed.retry_after) == (kind, status, 3)
    assert "Not like this." in str(failed)
    # The runtime retries. The SDK does not.
    assert len(api.requests) == 1


async def test_spent_budget_is_permanent_error(api: FakeApi, provider: Provider) -> None:
    error = {"message": "You exceeded your quota.", "type": "insufficient_quota", "code": "insufficient_quota"}
    api.answer(Answer(status=429, body={"error": error}))
    assert not (await failure(provider, request("Hi"))).retryable


async def test_translates_errors_in_mid_stream(api: FakeApi, provider: Provider, content: list[Any]) -> None:
    line = 'data: {"error": {"message": "Sorry", "type": "server_error", "code": "rate_limit_exceeded"}}\n\n'
    api.answer(Answer(content, change=lambda lines: [*lines[:3], line]))
    failed = await failure(provider, request("Hi"))
    assert failed.kind == "rate_limit"
    assert "Sorry" in str(failed)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("server_error", "server"),
        ("rate_limit_exceeded", "rate_limit"),
        ("vector_store_timeout", "timeout"),
        ("invalid_image_format", "request"),
        ("image_too_large", "request"),
        ("of_tomorrow", "server"),
        (None, "server"),
    ],
)
async def test_translates_failed_response(api: FakeApi, code: str | None, kind: str) -> None:
    provider = OpenAIResponsesProvider(api_key="key", base_url=f"{api.url}/v1")
    api.answer(Answer([], more={"error": {"code": code, "message": "Sorry"}}))
    assert (await failure(provider, request("Hi"))).kind == kind
    line = 'event: error\ndata: {"type": "error", "code": "server_error", "message": "Sorry"}\n\n'
    api.answer(Answer([], change=lambda lines: [lines[0], line]))
    assert (await failure(provider, request("Hi"))).kind == "server"
    await provider.close()


def test_maps_error_codes_without_status() -> None:
    assert stream_error("invalid_prompt", "no").kind == "request"


@pytest.mark.parametrize("events", [0, 1, 4])
async def test_translates_cut_connection(api: FakeApi, provider: Provider, content: list[Any], events: int) -> None:
    api.answer(Answer(content, cut_after=events, stop="stop"), Answer(content, stop="stop"))
    assert (await failure(provider, request("Hi"))).kind == "connection"
    assert (await answer(provider, request("Hi"))).message["content"][0]["text"] == "Hello there."


@pytest.mark.parametrize("events", [0, 1, 4])
async def test_silent_provider_times_out(api: FakeApi, provider: Provider, content: list[Any], events: int) -> None:
    api.answer(Answer(content, hang_after=events))
    assert (await failure(provider, request("Hi", timeout=0.3))).kind == "timeout"
    await asyncio.wait_for(api.hung_up.wait(), 60)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda lines: lines[:-3], id="no end"),
        pytest.param(lambda lines: [*lines[:3], 'data: {"type": "mess\n\n'], id="half JSON"),
        pytest.param(lambda lines: [*lines[:3], "data: 3\n\n"], id="a number"),
        pytest.param(lambda lines: [*lines[:3], 'data: {"a": 1}\n\n'], id="neither type nor choices"),
        pytest.param(lambda lines: [*lines[:3], "data: \udcff\n\n"], id="no UTF-8"),
        pytest.param(lambda lines: ["<html>Welcome to the hotel</html>"], id="a page"),
        pytest.param(lambda lines: ["data: [DONE]\n\n"], id="nothing"),
    ],
)
async def test_translates_invalid_stream(api: FakeApi, provider: Provider, content: list[Any], change: Any) -> None:
    api.answer(Answer(content, change=change))
    assert (await failure(provider, request("Hi"))).kind == "garbled"


async def test_does_not_retry_request_that_cannot_be_sent(api: FakeApi, provider: Provider) -> None:
    assert (await failure(provider, request("Hi", api_kwargs={"metadata": object()}))).kind == "request"
    assert (await failure(provider, request([{"type": "tool_result", "content": "of no call"}]))).kind == "request"
    assert api.requests == []
