"""Sessions of real agents of ADK, on SQLite, PostgreSQL and files. `test_suite.py` runs it in environments with ADK."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.adk.tools.tool_context import ToolContext
from google.genai import types

from lockstitch import open_store
from lockstitch.integrations.adk import LockstitchSessionService
from lockstitch.integrations.adk.service import StaleSessionError
from tests.servers import PostgresServer

NAME = {"app_name": "shop", "user_id": "ada"}
USAGE = types.GenerateContentResponseUsageMetadata(prompt_token_count=10, candidates_token_count=3)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    started = PostgresServer()
    yield started
    started.close()


@pytest.fixture(params=["sqlite", "files", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return request.getfixturevalue("server").create_database()
    return f"{'sqlite' if request.param == 'sqlite' else 'file'}:///{tmp_path}/store"


@pytest.fixture
def on_store(url: str) -> Callable[[Any], None]:
    """Run a coroutine function with a service on an open store, and the store."""

    def run(test: Any) -> None:
        async def inside() -> None:
            async with open_store(url) as store:
                await test(LockstitchSessionService(store), store)

        asyncio.run(inside())

    return run


class Scripted(BaseLlm):
    """Calls the tool twice at once, then answers."""

    model: str = "gemini-2.5-flash"

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        answered = any(part.function_response for item in llm_request.contents[-1:] for part in item.parts or [])
        calls = [types.Part.from_function_call(name="add", args={"a": 1, "b": b}) for b in (2, 3)]
        parts = [types.Part(text="Three and four.")] if answered else [types.Part(text="Let me see."), *calls]
        content = types.Content(role="model", parts=parts)
        yield LlmResponse(content=content, usage_metadata=USAGE, model_version=self.model)


def add(a: int, b: int, tool_context: ToolContext) -> int:
    """Add two numbers."""
    tool_context.state["user:sums"] = tool_context.state.get("user:sums", 0) + 1
    tool_context.state["temp:last"] = a + b
    return a + b


def runner(service: Any) -> Runner:
    agent = LlmAgent(name="helper", model=Scripted(), tools=[add])
    return Runner(app_name="shop", agent=agent, session_service=service)


async def ask(service: Any) -> list[Event]:
    message = types.UserContent("Add.")
    return [event async for event in runner(service).run_async(user_id="ada", session_id="1", new_message=message)]


def plain(event: Event) -> Any:
    """Return an event without the values that differ between two runs."""
    values = event.model_dump(mode="json", exclude={"id", "timestamp", "invocation_id"}, exclude_none=True)
    for part in values.get("content", {}).get("parts", []):
        for kind in ("function_call", "function_response"):
            part.get(kind, {}).pop("id", None)
    return values


def test_agent_gets_what_the_service_in_memory_gives(on_store: Any) -> None:
    async def test(service: Any, store: Any) -> None:
        memory = InMemorySessionService()
        for sessions in (memory, service):
            await sessions.create_session(**NAME, session_id="1", state={"app:greeting": "Hi"})
            for _ in range(2):
                await ask(sessions)
        ours, theirs = [await sessions.get_session(**NAME, session_id="1") for sessions in (service, memory)]
        assert [plain(event) for event in ours.events] == [plain(event) for event in theirs.events]
        assert ours.state == theirs.state
        types_of = [stitch.type for stitch in await store.stitches("adk:shop/ada/1")]
        assert types_of == ["input", "llm_call", "tool_call", "tool_call", "llm_call"] * 2
        runs = await store.runs("adk:shop/ada/1")
        assert [(run.status, run.steps, run.input_tokens) for run in runs] == [("completed", 2, 20)] * 2
        assert (await store.history("adk:shop/ada/1")).turns[0].final_response == "Three and four."

    on_store(test)


def test_events_of_an_agent_are_returned_equal(on_store: Any) -> None:
    async def test(service: Any, store: Any) -> None:
        created = await service.create_session(**NAME, session_id="1")
        assert await service.get_session(**NAME, session_id="1") == created
        yielded = await ask(service)
        session = await service.get_session(**NAME, session_id="1")
        assert session.events[1:] == yielded
        rich = Event(
            invocation_id="i",
            author="user",
            content=types.Content(
                role="user",
                parts=[
                    types.Part.from_bytes(data=bytes(range(256)) * 300, mime_type="image/png"),
                    types.Part(text="See.", thought_signature=b"\xff\xfe"),
                    types.Part.from_uri(file_uri="gs://a/b", mime_type="video/mp4"),
                ],
            ),
            actions=EventActions(artifact_delta={"file": 0}, transfer_to_agent="other", escalate=True),
            long_running_tool_ids={"tool"},
            error_code="code",
            grounding_metadata=types.GroundingMetadata(
                search_entry_point=types.SearchEntryPoint(sdk_blob=b"\x00\xff"), web_search_queries=["q"]
            ),
            usage_metadata=USAGE,
            custom_metadata={"key": [1.5, None]},
            timestamp=1700000000.123,
        )
        await service.append_event(session, rich)
        assert await service.get_session(**NAME, session_id="1") == session
        newest = await service.get_session(**NAME, session_id="1", config=GetSessionConfig(num_recent_events=1))
        assert newest.events == [rich]
        later = GetSessionConfig(after_timestamp=yielded[-1].timestamp)
        assert (await service.get_session(**NAME, session_id="1", config=later)).events == [yielded[-1]]

    on_store(test)


def test_one_of_four_concurrent_appends_succeeds(on_store: Any) -> None:
    async def test(service: Any, store: Any) -> None:
        await service.create_session(**NAME, session_id="1")
        session = await service.get_session(**NAME, session_id="1")
        copies = [session.model_copy(deep=True) for _ in range(4)]
        # Also with times that do not rise, which a comparison of times does not notice.
        for start in (datetime.now(UTC).timestamp(), 1.0):
            results = await asyncio.gather(
                *(service.append_event(copy, Event(author="user", timestamp=start)) for copy in copies),
                return_exceptions=True,
            )
            errors = [result for result in results if isinstance(result, Exception)]
            assert [type(error) for error in errors] == [StaleSessionError] * 3
            copies = [await service.get_session(**NAME, session_id="1") for _ in range(4)]
        # One session object that tasks share is appended to in turn.
        await asyncio.gather(*(service.append_event(copies[0], Event(author="user")) for _ in range(4)))
        assert len((await service.get_session(**NAME, session_id="1")).events) == 6

    on_store(test)


def test_state_has_the_scopes_of_adk(on_store: Any) -> None:
    async def test(service: Any, store: Any) -> None:
        moment = datetime(2026, 1, 1, tzinfo=UTC)
        state = {"app:a": 1, "user:u": {"deep": [1]}, "own": moment, "temp:t": 1, "object": test}
        first = await service.create_session(**NAME, session_id=" 1 ", state=state)
        assert (first.id, first.state["own"]) == ("1", "2026-01-01T00:00:00Z")
        assert "temp:t" not in first.state
        with pytest.raises(AlreadyExistsError):
            await service.create_session(**NAME, session_id="1")
        event = Event(author="helper", actions=EventActions(state_delta={"user:u": None, "temp:t": 2, "own": 2}))
        await service.append_event(first, event)
        assert first.state["temp:t"] == 2
        second = await service.create_session(app_name="shop", user_id="grace")
        assert second.state == {"app:a": 1}
        third = await service.create_session(**NAME)
        assert third.state == {"app:a": 1, "user:u": None}
        assert await service.get_user_state(**NAME) == {"u": None}
        listed = (await service.list_sessions(app_name="shop", user_id=None)).sessions
        assert [session.id for session in listed] == [first.id, second.id, third.id]
        await service.delete_session(**NAME, session_id="1")
        assert await service.get_session(**NAME, session_id="1") is None
        with pytest.raises(ValueError, match="not found"):
            await service.append_event(first, Event(author="user"))
        await service.flush()

    on_store(test)


def test_runner_without_a_loop_uses_a_service_that_opens_its_store(url: str) -> None:
    with LockstitchSessionService.open(url) as service:
        asyncio.run(service.create_session(**NAME, session_id="1"))
        events = [*runner(service).run(user_id="ada", session_id="1", new_message=types.UserContent("Add."))]
        session = asyncio.run(service.get_session(**NAME, session_id="1"))
        assert [event.id for event in session.events[1:]] == [event.id for event in events]
