"""Routes for user interfaces. Clients of npm use them in frameworks/; here are their requests."""

from typing import Any

import httpx2
import pytest

from lockstitch.server import Settings
from lockstitch.store import Store
from tests.server.api import agents
from tests.server.api.reading import events
from tests.server.serving import serving

pytestmark = pytest.mark.anyio

UNKNOWN_FILE = {"type": "file", "mediaType": "model/obj", "url": "https://example.org/a.obj"}


@pytest.fixture
async def url(store: Store) -> Any:
    async with serving(store, agents.app(), Settings(concurrency=4)) as address:
        yield address


def user(text: str, message_id: str) -> dict[str, Any]:
    return {"id": message_id, "role": "user", "parts": [{"type": "text", "text": text}]}


async def post(http: httpx2.AsyncClient, agent: str, chat: str, *messages: Any, **fields: Any) -> list[Any]:
    body = {"id": chat, "messages": messages, "trigger": "submit-message", **fields}
    received = [item.data async for item in events(http, f"/api/agents/{agent}/ai-sdk", method="POST", json=body)]
    assert received.pop() == "[DONE]"
    return received


async def resumed(http: httpx2.AsyncClient, agent: str, chat: str) -> list[Any]:
    received = [item.data async for item in events(http, f"/api/agents/{agent}/ai-sdk/{chat}/stream")]
    return received[:-1]


def text_of(chunks: list[Any]) -> str:
    return "".join(chunk["delta"] for chunk in chunks if chunk["type"] == "text-delta")


async def test_chat_streams_repeats_and_resumes_the_same_message(store: Store, http: httpx2.AsyncClient) -> None:
    assert (await http.get("/api/agents/teller/ai-sdk/story/stream")).status_code == 204
    first = await post(http, "teller", "story", user("Tell", "u1"))
    again = await post(http, "teller", "story", user("Tell", "u1"))
    later = await resumed(http, "teller", "story")

    assert text_of(first) == text_of(again) == text_of(later) == agents.STORY + "The end."
    assert first[0]["messageId"] == again[0]["messageId"] == later[0]["messageId"]
    assert first[0]["messageMetadata"]["threadId"] == str((await store.thread("story")).id)
    assert (await store.thread("story")).total_runs == 1
    assert [chunk["output"] for chunk in first if chunk["type"] == "tool-output-available"] == ["till: there"]
    conflict = await http.post("/api/agents/teller/ai-sdk", json={"id": "story", "messages": [user("Other", "u1")]})
    assert conflict.status_code == 409


async def test_approval_and_result_of_the_browser_continue_the_message(store: Store, http: httpx2.AsyncClient) -> None:
    asked = await post(http, "payer", "pay", user("Pay", "u1"))
    (request,) = [chunk for chunk in asked if chunk["type"] == "tool-approval-request"]
    assert asked[-1] == {"type": "finish", "finishReason": "tool-calls"}
    waiting = await http.post("/api/agents/payer/ai-sdk", json={"id": "pay", "messages": [{"role": "assistant"}]})
    assert waiting.status_code == 409

    approval = {"id": request["approvalId"], "approved": True}
    replied = {
        "id": asked[0]["messageId"],
        "role": "assistant",
        "parts": [{"type": "tool-pay", "state": "approval-responded", "toolCallId": "call_0", "approval": approval}],
    }
    rest = await post(http, "payer", "pay", user("Pay", "u1"), replied)
    repeated = await post(http, "payer", "pay", user("Pay", "u1"), replied)
    assert rest == repeated
    assert rest[0]["messageId"] == asked[0]["messageId"]
    assert [chunk.get("output") for chunk in rest if chunk["type"] == "tool-output-available"] == ["paid 5"]
    assert text_of(rest) == "Done."

    shown = await post(http, "browser", "ask", user("Ask", "u1"))
    (call,) = [chunk for chunk in shown if chunk["type"] == "tool-input-available"]
    part = {"type": "tool-confirm", "state": "output-available", "toolCallId": call["toolCallId"], "output": {"ok": 1}}
    rest = await post(http, "browser", "ask", user("Ask", "u1"), {"role": "assistant", "parts": [part]})
    assert text_of(rest) == "Fine."
    (result,) = [stitch for stitch in await store.stitches("ask") if stitch.type == "tool_call"]
    assert result.message is not None
    assert result.message["content"] == '{"ok":1}'


async def test_edit_and_regenerate_keep_the_chat(store: Store, http: httpx2.AsyncClient) -> None:
    one, two = user("One", "u1"), user("Two", "u2")
    first = await post(http, "echo", "chat", one)
    said = {"id": first[0]["messageId"], "role": "assistant", "parts": []}
    await post(http, "echo", "chat", one, said, two)
    old = await store.thread("chat")

    assert text_of(await post(http, "echo", "chat", one, said, two, trigger="regenerate-message")) == "You said 3."
    assert text_of(await post(http, "echo", "chat", one, said, user("Zwei", "u2"), messageId="u2")) == "You said 3."

    messages = (await http.get("/api/agents/echo/ai-sdk/chat/messages")).json()
    assert [(message["role"], message["parts"][-1]["text"]) for message in messages] == [
        ("user", "One"),
        ("assistant", "You said 1."),
        ("user", "Zwei"),
        ("assistant", "You said 3."),
    ]
    assert (await store.thread(old.id)).key is None
    assert (await store.thread("chat")).id != old.id


async def test_history_has_the_parts_of_the_streams(http: httpx2.AsyncClient) -> None:
    await post(http, "payer", "pay", user("Pay", "u1"))
    (_, waiting) = (await http.get("/api/agents/payer/ai-sdk/pay/messages")).json()
    assert [part.get("state") for part in waiting["parts"]] == [None, "approval-requested"]
    chunks = await post(http, "teller", "story", user("Tell", "u1"))
    (sent, told) = (await http.get("/api/agents/teller/ai-sdk/story/messages")).json()
    assert sent["parts"] == [{"type": "text", "text": "Tell"}]
    assert told["id"] == chunks[0]["messageId"]
    assert [part["type"] for part in told["parts"]] == ["step-start", "text", "tool-look", "step-start", "text"]
    assert "".join(part.get("text", "") for part in told["parts"]) == agents.STORY + "The end."


async def ag_ui(http: httpx2.AsyncClient, agent: str, *messages: Any, **fields: Any) -> list[Any]:
    body = {"threadId": "chat", "runId": "r1", "messages": messages, "tools": [], "context": [], **fields}
    return [item.data async for item in events(http, f"/api/agents/{agent}/ag-ui", method="POST", json=body)]


async def test_ag_ui_runs_repeats_and_resumes(store: Store, http: httpx2.AsyncClient) -> None:
    asked = {"id": "u1", "role": "user", "content": "Pay"}
    paused = await ag_ui(http, "payer", asked)
    assert (paused[0]["type"], paused[0]["runId"], paused[0]["threadId"]) == ("RUN_STARTED", "r1", "chat")
    (interrupt,) = paused[-1]["outcome"]["interrupts"]
    shown_again = await ag_ui(http, "payer", asked)
    assert [item["type"] for item in shown_again[:2]] == ["RUN_STARTED", "MESSAGES_SNAPSHOT"]
    assert shown_again[-1] == paused[-1]
    other = {"id": "u2", "role": "user", "content": "Pay more"}
    refused = await http.post("/api/agents/payer/ag-ui", json={"threadId": "chat", "runId": "r", "messages": [other]})
    assert refused.status_code == 409

    reply = {"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}
    rest = await ag_ui(http, "payer", asked, resume=[reply])
    assert [item["content"] for item in rest if item["type"] == "TOOL_CALL_RESULT"] == ["paid 5"]
    assert rest[-1]["outcome"] == {"type": "success"}

    again = await ag_ui(http, "payer", asked, {"id": "partial", "role": "assistant", "content": "Do"})
    assert again[1] == {"type": "MESSAGES_SNAPSHOT", "messages": [asked]}
    assert "".join(item["delta"] for item in again if item["type"] == "TEXT_MESSAGE_CONTENT") == "Done."
    assert (await store.thread("chat")).total_runs == 1


@pytest.mark.parametrize("payload", ["yes", None, {"approved": "no"}, 7])
async def test_reply_of_another_type_is_refused(http: httpx2.AsyncClient, payload: Any) -> None:
    asked = {"id": "u1", "role": "user", "content": [{"type": "text", "text": "Pay"}]}
    interrupt = (await ag_ui(http, "payer", asked))[-1]["outcome"]["interrupts"][0]
    reply = {"interruptId": interrupt["id"], "status": "resolved", "payload": payload}
    body = {"threadId": "chat", "runId": "r", "messages": [asked], "resume": [reply]}
    answer = await http.post("/api/agents/payer/ag-ui", json=body)
    assert answer.status_code in (409, 422)
    assert "7" not in answer.text or answer.headers["content-type"].startswith("application/problem+json")


async def test_chat_with_the_form_of_a_uuid_keeps_its_id(store: Store, http: httpx2.AsyncClient) -> None:
    chat = "11111111-1111-4111-8111-111111111111"
    one = user("One", "u1")
    await post(http, "echo", chat, one)
    await post(http, "echo", chat, one, trigger="regenerate-message")
    assert len((await http.get(f"/api/agents/echo/ai-sdk/{chat}/messages")).json()) == 2
    assert (await store.thread(f"chat-{chat}")).agent == "echo"


@pytest.mark.parametrize(
    ("agent", "body", "status"),
    [
        ("unknown", {"id": "c", "messages": [user("Hi", "u")]}, 404),
        ("echo", {"id": "c", "messages": []}, 422),
        ("echo", {"id": "c", "messages": [{"role": "user", "parts": []}]}, 422),
        ("echo", {"id": "c", "messages": [{"role": "user", "parts": "text"}]}, 422),
        ("echo", {"id": "c", "messages": [{**user("Be brief", "s"), "role": "system"}]}, 422),
        ("echo", {"id": "c", "messages": [{"role": "assistant", "parts": []}]}, 404),
        ("echo", {"id": "c\u0000", "messages": [user("Hi", "u")]}, 422),
        ("echo", {"id": "c", "messages": [user("Hi", "u" * 5000)]}, 422),
        (
            "echo",
            {"id": "c", "messages": [{"role": "user", "parts": [{"type": "file", "mediaType": "a/b", "url": "x"}]}]},
            422,
        ),
    ],
)
async def test_other_requests_are_refused(http: httpx2.AsyncClient, agent: str, body: Any, status: int) -> None:
    answer = await http.post(f"/api/agents/{agent}/ai-sdk", json=body)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"].startswith("application/problem+json")
