"""Routes for user interfaces: `useChat` of the AI SDK, and clients of AG-UI.

The clients need no adapter. A chat is a thread: its key is the id that the client has chosen. Workers execute the runs,
so a client can disconnect, and read the stream of the run again from its start, from each server.
"""

from collections.abc import AsyncGenerator, Sequence
from typing import Annotated, Any, Final, Literal

from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response, StreamingResponse

from lockstitch.agents import Event, Result
from lockstitch.agents.formatters import formats
from lockstitch.agents.formatters.ag_ui import AGUIFormatter
from lockstitch.agents.formatters.ai_sdk import AISDKFormatter
from lockstitch.engine.result import result_enqueued
from lockstitch.engine.session.start import as_message
from lockstitch.errors import NotFound, Refused
from lockstitch.model import Json, Run, Thread
from lockstitch.model.wait import person_waits
from lockstitch.server.api.events import EVENT_STREAM, STREAM
from lockstitch.server.api.formatted import frames
from lockstitch.server.api.schemas import ExactJSON, Limit, Name, TextParam
from lockstitch.server.api.ui_history import ui_messages
from lockstitch.server.api.ui_requests import (
    Replies,
    ag_ui_content,
    ag_ui_replies,
    ai_sdk_content,
    ai_sdk_replies,
    find_thread,
    reply,
    thread_key,
)
from lockstitch.server.auth import Caller, Reader, Writer
from lockstitch.server.middleware import add_log_fields
from lockstitch.server.problems import Problem
from lockstitch.server.routing import LazyRouter
from lockstitch.store.conversations import EnqueuedMessage

router = LazyRouter(prefix="/api/agents/{name}", tags=["user interfaces"], default_response_class=ExactJSON)

AgentName = Annotated[Name, Path(description="The name of an agent of the loaded app.")]
ChatId = Annotated[TextParam, Field(min_length=1, max_length=250)]
Chat = Annotated[TextParam, Path(min_length=1, max_length=250, description="The id of the chat.")]

_HEADERS: Final = {"X-Accel-Buffering": "no", "Cache-Control": "no-store"}
_AI_SDK: Final = {**_HEADERS, "x-vercel-ai-ui-message-stream": "v1"}


class ClientBody(BaseModel):
    """Base class of requests of other SDKs. Fields that a later version adds are ignored."""

    model_config = ConfigDict(extra="ignore")


class AISDKRequest(ClientBody):
    """The request of `DefaultChatTransport`."""

    id: ChatId
    messages: Annotated[list[Json], Field(min_length=1)]
    trigger: Literal["submit-message", "regenerate-message"] = "submit-message"
    messageId: TextParam | None = None  # noqa: N815 - the name that the client sends


class AGUIRequest(ClientBody):
    """`RunAgentInput` of AG-UI. The agent has its own state, context and tools, so those of the client are ignored."""

    threadId: ChatId  # noqa: N815
    runId: Annotated[TextParam, Field(min_length=1, max_length=255)]  # noqa: N815
    messages: list[Json]
    resume: list[Json] = []


@router.post("/ai-sdk", responses=STREAM, response_class=StreamingResponse)
async def ai_sdk(caller: Writer, name: AgentName, body: AISDKRequest) -> StreamingResponse:
    """Answer a request of `useChat`, as a UI message stream of the AI SDK.

    The last message decides. A message of the user starts a run; its id makes a repeated request harmless. A message
    that the user has edited, and `regenerate`, answer its turn again in a fork that takes the id of the chat. A message
    of the assistant has the approvals and the results of browser tools with which the run continues.
    """
    agent = caller.app.agent(name)
    head = await find_thread(caller, body.id)
    last = body.messages[-1]
    if last.get("role") == "assistant":
        head, after = await _replied(caller, head, ai_sdk_replies(last))
        started = Event("started", head.id, (await _last_run(caller, head)).id, agent.name)
        return _ai_sdk_stream(_prefixed(started, caller, head, after))
    if last.get("role") != "user":
        raise Problem(422, "Refused", "The last message is neither one of the user nor one of the assistant.")
    message = as_message(_content(ai_sdk_content(last)))
    regenerated = body.trigger == "regenerate-message"
    if head is not None and (regenerated or (body.messageId is not None and body.messageId == last.get("id"))):
        turn = await _turn_after(caller, body.messages[:-1])
        queued = await caller.store.regenerate(head, turn=turn, message=None if regenerated else message)
    else:
        queued = await _enqueue(caller, agent.name, head, body.id, message, last.get("id"))
    result = await _started(caller, queued)
    return _ai_sdk_stream(frames(caller, AISDKFormatter(detail=True), queued.thread, result))


@router.get(
    "/ai-sdk/{chat}/stream",
    responses={**STREAM, 204: {"description": "The chat has no run"}},
    response_class=StreamingResponse,
)
async def ai_sdk_resume(caller: Reader, name: AgentName, chat: Chat) -> Response:
    """Stream the last run of a chat from its start, for `resumeStream` and `useChat({resume: true})`.

    The message of a run that has ended is sent, too, so that a client that lost its connection gets the rest.
    """
    caller.app.agent(name)
    head = await find_thread(caller, chat)
    run = await caller.store.execution.last_run(head) if head is not None else None
    if head is None or run is None:
        return Response(status_code=204)
    add_log_fields(thread=head.id, run=run.id)
    return _ai_sdk_stream(frames(caller, AISDKFormatter(detail=True), head, run.first_position - 1))


@router.get("/ai-sdk/{chat}/messages", response_model=list[Json])
async def ai_sdk_messages(caller: Reader, name: AgentName, chat: Chat, limit: Limit = 100) -> ExactJSON:
    """Return the last turns of a chat as UI messages, oldest first, for the `messages` of `useChat`."""
    caller.app.agent(name)
    head = await find_thread(caller, chat)
    return ExactJSON(await ui_messages(caller.store, head, limit) if head is not None else [])


@router.post("/ag-ui", responses=STREAM, response_class=StreamingResponse)
async def ag_ui(caller: Writer, name: AgentName, body: AGUIRequest) -> StreamingResponse:
    """Answer a request of an AG-UI client, such as `HttpAgent`, as a stream of its events.

    The last message of the user starts a run; its id makes a repeated request harmless: the stream then first resets
    the messages of the client, and shows the run from its start. `resume` and the results of browser tools continue a
    run that waits.
    """
    agent = caller.app.agent(name)
    head = await find_thread(caller, body.threadId)
    users = [index for index, message in enumerate(body.messages) if message.get("role") == "user"]
    later = body.messages[users[-1] + 1 :] if users else body.messages
    replies = ag_ui_replies(later, body.resume)
    formatter = AGUIFormatter(detail=True, run_id=body.runId, thread_id=body.threadId)
    waits = head is not None and head.status == "waiting" and bool(person_waits(head.waits))
    repeated = (
        head is not None
        and waits
        and bool(users)
        and await _is_last_message(caller, head, body.messages[users[-1]].get("id"))
    )
    if replies.approvals or (waits and (replies.results or not repeated)):
        head, after = await _replied(caller, head, replies)
        formatter.skip(replies.results)
        return _ag_ui_stream(frames(caller, formatter, head, after))
    if not users:
        raise Problem(422, "Refused", "messages has no message of the user.")
    last = body.messages[users[-1]]
    message = as_message(_content(ag_ui_content(last)))
    queued = await _enqueue(caller, agent.name, head, body.threadId, message, last.get("id"))
    if not queued.new:
        formatter.reset_messages(body.messages[: users[-1] + 1])
        formatter.skip(str(message.get("id")) for message in later if message.get("role") == "reasoning")
    result = await _started(caller, queued)
    return _ag_ui_stream(frames(caller, formatter, queued.thread, result))


def _ai_sdk_stream(sent: AsyncGenerator[str]) -> StreamingResponse:
    return StreamingResponse(sent, headers=_AI_SDK, media_type=EVENT_STREAM)


def _ag_ui_stream(sent: AsyncGenerator[str]) -> StreamingResponse:
    return StreamingResponse(sent, headers=_HEADERS, media_type=EVENT_STREAM)


async def _prefixed(started: Event, caller: Caller, head: Thread, after: int) -> AsyncGenerator[str]:
    """Yield the rest of a run. The client has the parts before; the start names their message."""
    formatter = AISDKFormatter(detail=True)
    for frame in formatter.feed(started):
        yield formats.encode(frame)
    async for frame in frames(caller, formatter, head, after):
        yield frame


def _content(content: list[Json]) -> list[Json]:
    if not content:
        raise Problem(422, "Refused", "The last message has neither text nor files.")
    return content


async def _enqueue(
    caller: Caller, agent: str, head: Thread | None, chat_id: str, message: Json, message_id: Any
) -> EnqueuedMessage:
    if message_id is not None and not isinstance(message_id, str):
        raise Problem(422, "Refused", "The id of the message is not a text.")
    return await caller.store.enqueue(
        agent, message, thread=head if head is not None else thread_key(chat_id), message_id=message_id or None
    )


async def _started(caller: Caller, queued: EnqueuedMessage) -> Result:
    result = await result_enqueued(caller.store, queued)
    add_log_fields(thread=result.thread_id, run=result.run_id)
    return result


async def _replied(caller: Caller, head: Thread | None, replies: Replies) -> tuple[Thread, int]:
    """Store the replies of a client. Return the thread and the position at which the run started to wait."""
    if head is None:
        raise NotFound("The chat does not exist.")
    waits = head.status == "waiting" and bool(person_waits(head.waits))
    if not await reply(caller, head, replies) and waits:
        raise Problem(409, "Waiting", f"Thread {head.id} waits for a person. Reply to its open calls first.")
    run = await _last_run(caller, head)
    add_log_fields(thread=head.id, run=run.id)
    pauses = [stitch.position for stitch in await caller.store.log(run.id) if stitch.type == "run_paused"]
    return head, pauses[-1] if pauses else run.first_position - 1


async def _is_last_message(caller: Caller, head: Thread, message_id: Any) -> bool:
    """True if the last run of a thread answers the message with this id."""
    run = await caller.store.execution.last_run(head)
    if run is None or not run.input_position or message_id is None:
        return False
    stitches = await caller.store.stitches(head, run.input_position, run.input_position)
    return any(stitch.data.get("message_id") == message_id for stitch in stitches)


async def _last_run(caller: Caller, head: Thread) -> Run:
    run = await caller.store.execution.last_run(head)
    if run is None:
        raise Refused(f"Thread {head.id} has no run that could continue.")
    return run


async def _turn_after(caller: Caller, earlier_messages: Sequence[Json]) -> int:
    """Return the number of the turn after the last message of the assistant, whose id is that of its run."""
    for message in reversed(earlier_messages):
        if message.get("role") == "assistant":
            return (await caller.store.run(str(message.get("id")))).turn + 1
    return 1
