"""`import_messages`: a conversation of another system becomes a thread that can continue."""

from typing import Any

import pytest

from lockstitch.errors import KeyTaken, Refused
from lockstitch.model import tool_result
from lockstitch.store import Store
from tests.samples import turn

pytestmark = pytest.mark.anyio


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(content)}


def assistant(*content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(content)}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def call(id: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": f"tool_{id}", "input": {"of": id}}


CONVERSATION = [
    {"role": "user", "content": "plain text"},
    {"role": "assistant", "content": "plain answer"},
    user(text("look"), {"type": "image", "source": {"type": "url", "url": "x"}}),
    assistant({"type": "thinking", "thinking": "hm", "signature": "s"}, text("I look"), call("a"), call("b")),
    user(tool_result("a", "found"), tool_result("b", [text("no")], is_error=True)),
    assistant(call("c")),
    user(tool_result("c", {"z": 2**70})),
    assistant(text("Here it is.")),
    user(text("Thanks")),
]


async def test_context_equals_imported_messages(store: Store) -> None:
    thread = await store.import_messages(CONVERSATION, key="k", user_id="ada", title="t")

    assert await store.context(thread) == CONVERSATION
    assert await store.thread("k") == thread
    assert (thread.kind, thread.status, thread.user_id, thread.title) == ("chat", "waiting", "ada", "t")
    assert (await store.verify()).ok


async def test_user_message_starts_a_turn(store: Store) -> None:
    thread = await store.import_messages(CONVERSATION)

    runs = await store.runs(thread)
    assert [(run.sequence, run.turn, run.status, run.source, run.steps) for run in runs] == [
        (1, 1, "completed", "adopted", 1),
        (2, 2, "completed", "adopted", 3),
        (3, 3, "completed", "adopted", 0),
    ]
    turns_shown = [(turn.user_message, turn.final_response) for turn in (await store.history(thread)).turns]
    assert turns_shown == [("Thanks", None), ("look", "Here it is."), ("plain text", "plain answer")]
    assert [await store.messages(run.id) for run in runs] == [CONVERSATION[:2], CONVERSATION[2:8], CONVERSATION[8:]]
    assert (thread.total_runs, thread.last_turn) == (3, 3)


async def test_imports_results_as_stitches_of_their_calls(store: Store) -> None:
    thread = await store.import_messages(CONVERSATION)

    calls = [stitch for stitch in await store.stitches(thread) if stitch.type == "tool_call"]
    assert [(s.call_id, s.name, s.reply_to, s.call_index, s.status) for s in calls] == [
        ("a", "tool_a", 4, 0, "ok"),
        ("b", "tool_b", 4, 1, "error"),
        ("c", "tool_c", 7, 0, "ok"),
    ]


async def test_continues_imported_thread(store: Store) -> None:
    thread = await store.import_messages(CONVERSATION)
    head = await turn(store, thread, "And now?", "Now this.")

    assert (head.last_turn, head.total_runs) == (4, 4)
    assert (await store.context(head))[: len(CONVERSATION)] == CONVERSATION


async def test_imports_empty_conversation_as_empty_thread(store: Store) -> None:
    thread = await store.import_messages([])

    assert (await store.context(thread), thread.status, thread.position) == ([], "waiting", 0)


@pytest.mark.parametrize(
    "messages",
    [
        [assistant(text("How can I help?")), user(text("So"))],
        [user(text("a")), user(text("b")), assistant(text("c")), assistant(text("d"))],
        [user(), assistant(), user(text("x"))],
        [{"role": "user", "content": ""}, {"role": "assistant", "content": None}],
        [user({"type": "document", "source": {"type": "text", "data": "d"}})],
    ],
    ids=["assistant first", "twice", "empty", "nothing", "document"],
)
async def test_imports_unusual_conversations_unchanged(store: Store, messages: list[Any]) -> None:
    thread = await store.import_messages(messages)

    assert await store.context(thread) == messages
    assert (await store.verify()).ok


async def test_adds_error_results_for_open_calls(store: Store) -> None:
    thread = await store.import_messages(
        [user(text("go")), assistant(call("a"), call("b")), user(tool_result("a", "x"))]
    )

    messages = await store.context(thread)
    assert len(messages) == 3
    first, second = messages[2]["content"]
    assert first == tool_result("a", "x")
    assert (second["tool_use_id"], second["is_error"]) == ("b", True)
    stopped = await store.import_messages([user(text("go")), assistant(call("a")), user(text("never mind"))])
    assert [message["role"] for message in await store.context(stopped)] == ["user", "assistant", "user", "user"]
    assert (await store.context(stopped))[3] == user(text("never mind"))


async def test_text_next_to_results_becomes_a_separate_message(store: Store) -> None:
    mixed = user(tool_result("a", "x"), text("and hurry"))
    thread = await store.import_messages([user(text("go")), assistant(call("a")), mixed, assistant(text("done"))])

    assert (await store.context(thread))[2:] == [
        user(tool_result("a", "x")),
        user(text("and hurry")),
        assistant(text("done")),
    ]
    assert len(await store.runs(thread)) == 1


async def test_same_call_id_in_later_turn_is_another_call(store: Store) -> None:
    repeated = [user(text("1")), assistant(call("a")), user(tool_result("a", "x")), assistant(text("ok"))] * 2
    thread = await store.import_messages(repeated)

    assert await store.context(thread) == repeated


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([*CONVERSATION, {"role": "system", "content": "s"}], "role 'system'"),
        ([*CONVERSATION, {"content": "s"}], "role None"),
        ([*CONVERSATION, user(tool_result("x", "y"))], "answers no call"),
        ([user(tool_result("x", "y"))], "answers no call"),
        ([user(text("go")), assistant(call("a")), user(tool_result("a", 1), tool_result("a", 2))], "answers no call"),
        ([user(text("go")), assistant({"type": "tool_use", "name": "n", "input": {}})], "no id or no name"),
        ([user(text("go")), assistant({"type": "tool_use", "id": "a", "input": {}})], "no id or no name"),
        ([*CONVERSATION, user({"type": "text", "text": "\ud800"})], "surrogate"),
        ([*CONVERSATION, user({"type": "text", "n": float("nan")})], "JSON number"),
    ],
)
async def test_rejects_invalid_conversation_and_writes_nothing(store: Store, messages: list[Any], why: str) -> None:
    with pytest.raises(Refused, match=why):
        await store.import_messages(messages, key="k")

    # Not half of it, and not an empty thread that has the key now.
    assert await store.count() == 0


async def test_rejects_import_when_key_is_in_use(store: Store) -> None:
    first = await store.import_messages(CONVERSATION, key="k")
    with pytest.raises(KeyTaken):
        await store.import_messages(CONVERSATION, key="k")
    assert await store.threads() == [first]


async def test_imports_conversations_with_repeated_call_ids(store: Store) -> None:
    """In several responses, and within one response; also where an earlier call has no result."""

    def use(id: str, name: str) -> dict[str, Any]:
        return {"type": "tool_use", "id": id, "name": name, "input": {}}

    messages = [
        user(text("go")),
        assistant(use("call_0", "a")),
        user(tool_result("call_0", "of a")),
        assistant(use("call_0", "b"), use("call_0", "c")),
        user(tool_result("call_0", "of b"), tool_result("call_0", "of c")),
        assistant(use("call_0", "lost")),
        assistant(use("call_0", "d")),
        user(tool_result("call_0", "of d")),
        assistant(text("done")),
    ]
    head = await store.import_messages(messages)
    results = [stitch for stitch in await store.stitches(head) if stitch.type == "tool_call"]
    body = {str(stitch.name): (stitch.message or {})["content"] for stitch in results}
    assert {name: body[name] for name in "abcd"} == {name: f"of {name}" for name in "abcd"}
    assert "no result in the imported conversation" in body["lost"]
    context = await store.context(head)
    assert [message for message in context if message["role"] == "assistant"] == [
        message for message in messages if message["role"] == "assistant"
    ]
    assert not (await store.verify()).problems
