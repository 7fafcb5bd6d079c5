"""Requests of user interfaces: the messages and the replies that clients of the AI SDK and of AG-UI send."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from lockstitch.agents import answer, approve, deny, settle, submit_results
from lockstitch.errors import NotFound, Refused
from lockstitch.model import (
    ApprovalWait,
    FrontendToolWait,
    InDoubtWait,
    Json,
    QuestionWait,
    Thread,
    as_id,
    codec,
)
from lockstitch.model.message import blocks
from lockstitch.model.wait import CallWait
from lockstitch.server.auth import Caller

_BLOCKS: Final = {"image": "image", "document": "document", "application": "document", "text": "document"}
"""Type of the block of a file, by the first part of its media type."""


@dataclass
class Replies:
    """The replies of a client to the waits of a thread, by the key of the wait or the id of its call."""

    approvals: dict[str, Any] = field(default_factory=dict[str, Any])
    """The reply to an approval, a question or a call with an unknown outcome."""
    results: dict[str, Json] = field(default_factory=dict[str, Json])
    """{"content", "is_error"} of calls that the client has executed."""


async def find_thread(caller: Caller, chat_id: str) -> Thread | None:
    """Return the thread of a chat, or None if it does not exist."""
    for ref in (chat_id, thread_key(chat_id)):
        try:
            return await caller.store.thread(ref)
        except NotFound:
            pass
    return None


def thread_key(chat_id: str) -> str:
    """Return the key of the thread that a chat creates. Keys are never UUIDs, which are ids of threads."""
    return chat_id if as_id(chat_id) is None else f"chat-{chat_id}"


async def reply(caller: Caller, head: Thread, replies: Replies) -> bool:
    """Store the replies to the waits of a thread. Return False if there is none."""
    calls = [wait for wait in head.waits if isinstance(wait, CallWait)]
    frontend = [wait for wait in calls if isinstance(wait, FrontendToolWait)]
    results = [
        {"tool_use_id": wait.key, **found} for wait in frontend if (found := _of(replies.results, wait)) is not None
    ]
    if results:
        await submit_results(caller.store, head, results)
    replied = bool(results)
    for wait in calls:
        value = _of(replies.approvals, wait)
        if value is not None and wait not in frontend:
            await _reply_to(caller, head, wait, value)
            replied = True
    return replied


def _of(values: Mapping[str, Any], wait: CallWait) -> Any:
    return values.get(wait.key or "", values.get(wait.call_id or ""))


async def _reply_to(caller: Caller, head: Thread, wait: CallWait, value: Any) -> None:
    store, key, actor = caller.store, str(wait.key), caller.actor
    given: Json = cast("Json", value) if isinstance(value, dict) else {}
    match wait:
        case ApprovalWait():
            approved = given.get("approved", value)
            if not isinstance(approved, bool):
                raise Refused('The reply to an approval is true, false or {"approved": …, "reason": …}.')
            if approved:
                await approve(store, head, key, by=actor)
            else:
                reason = given.get("reason")
                await deny(store, head, key, reason=str(reason) if reason else None, by=actor)
        case QuestionWait():
            text = given.get("text", value)
            if not isinstance(text, str):
                raise Refused('The reply to a question is a text or {"text": …}.')
            await answer(store, head, text, call_id=key, by=actor)
        case InDoubtWait():
            done = given.get("done")
            await settle(
                store,
                head,
                key,
                done=str(done) if done is not None else None,
                redo=given.get("redo") is True,
                unknown=given.get("unknown") is True,
                by=actor,
            )
        case _:
            pass


# The AI SDK


def ai_sdk_content(message: Json) -> list[Json]:
    """Return the content of a UI message of a user."""
    content: list[Json] = []
    for part in _parts(message.get("parts")):
        match part:
            case {"type": "text", "text": str(text)}:
                content.append({"type": "text", "text": text})
            case {"type": "file", "mediaType": str(media_type), "url": str(url)}:
                content.append(_file(media_type, url))
            case _:
                pass
    return content


def ai_sdk_replies(message: Json) -> Replies:
    """Return the approvals and the results of tools that a UI message of an assistant has."""
    replies = Replies()
    for part in _parts(message.get("parts")):
        call_id = part.get("toolCallId")
        match part:
            case {"state": "approval-responded", "approval": {"id": str(key), "approved": bool(approved)} as approval}:
                replies.approvals[key] = {"approved": approved, "reason": approval.get("reason")}
            case {"state": "output-available", "output": output} if isinstance(call_id, str):
                replies.results[call_id] = {"content": _as_text(output), "is_error": False}
            case {"state": "output-error", "errorText": str(text)} if isinstance(call_id, str):
                replies.results[call_id] = {"content": text, "is_error": True}
            case _:
                pass
    return replies


# AG-UI


def ag_ui_content(message: Json) -> list[Json]:
    """Return the content of an AG-UI message of a user."""
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    found: list[Json] = []
    for part in _parts(content):
        match part:
            case {"type": "text", "text": str(text)}:
                found.append({"type": "text", "text": text})
            case {"type": str(kind), "source": {"type": "data", "value": str(value), "mimeType": str(media_type)}}:
                found.append(_base64(media_type or kind, value))
            case {"type": str(kind), "source": {"type": "url", "value": str(url)} as source}:
                found.append(_file(str(source.get("mimeType") or kind), url))
            case {"type": "binary", "mimeType": str(media_type), "data": str(value)}:
                found.append(_base64(media_type, value))
            case {"type": "binary", "mimeType": str(media_type), "url": str(url)}:
                found.append(_file(media_type, url))
            case _:
                pass
    return found


def ag_ui_replies(later_messages: Iterable[Json], resume: Sequence[Json]) -> Replies:
    """Return the replies to interrupts, and the results of tools after the last message of the user."""
    replies = Replies()
    for message in later_messages:
        match message:
            case {"role": "tool", "toolCallId": str(call_id), "content": content}:
                failed = message.get("error") is not None
                replies.results[call_id] = {"content": _as_text(content), "is_error": failed}
            case _:
                pass
    for entry in resume:
        match entry:
            case {"interruptId": str(key), "status": "cancelled"}:
                replies.approvals[key] = False
            case {"interruptId": str(key), "status": "resolved"}:
                replies.approvals[key] = entry.get("payload")
            case _:
                raise Refused("An entry of resume has an interruptId, and the status resolved or cancelled.")
    return replies


def _parts(parts: Any) -> list[Json]:
    return blocks({"content": parts}) if isinstance(parts, list) else []


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else codec.dumps(value).decode()


def _file(media_type: str, url: str) -> Json:
    if url.startswith("data:"):
        head, _, data = url.partition(",")
        if not head.endswith(";base64"):
            raise Refused("A file in a data URL must be base64.")
        return _base64(media_type, data)
    return {"type": _block(media_type), "source": {"type": "url", "url": url}}


def _base64(media_type: str, data: str) -> Json:
    return {"type": _block(media_type), "source": {"type": "base64", "media_type": media_type, "data": data}}


def _block(media_type: str) -> str:
    kind = _BLOCKS.get(media_type.partition("/")[0])
    if kind is None:
        raise Refused(f"Files of the type {media_type} cannot be sent to an agent.")
    return kind
