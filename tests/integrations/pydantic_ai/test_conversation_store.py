"""`LockstitchConversationStore`: conversations of pydantic-ai as threads, and the contract of a `ConversationStore`."""

import asyncio
from pathlib import Path

import pytest
from pydantic_ai import BinaryContent, BinaryImage, Conversation, ImageUrl
from pydantic_ai.conversation_store import ConversationConflict, ConversationEntry, ConversationRecord
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart

from lockstitch import open_store
from lockstitch.integrations.pydantic_ai import LockstitchConversationStore
from lockstitch.integrations.pydantic_ai.records import StoredConversation, StoredMessage
from lockstitch.model.message import text_of
from lockstitch.store import Store
from tests.integrations.pydantic_ai.agents import SUM, agent, texts, turn

pytestmark = pytest.mark.anyio

KEY = "pydantic-ai:1"
ANSWERS = ["add 2 3", "Let me see.", "The result is 5."]


async def context_texts(store: Store, thread: str = KEY) -> list[str]:
    """Return the texts of the context of a thread. A tool result has none."""
    return [text for message in await store.context(thread) if (text := text_of(message))]


async def records(store: Store) -> int:
    return await store.table(StoredConversation).count() + await store.table(StoredMessage).count()


async def test_records_runs_as_turns_and_returns_equal_messages(store: Store, store_url: str) -> None:
    conversations = LockstitchConversationStore(store)
    result = await turn(conversations, "add 2 3", scope="ada")
    loaded = await conversations.load("1")
    assert loaded is not None
    assert texts(loaded) == SUM
    assert (loaded.messages, loaded.usage) == (result.all_messages(), result.usage)
    stitches = await store.stitches(KEY)
    assert [stitch.type for stitch in stitches] == ["input", "llm_call", "tool_call", "llm_call"]
    assert (stitches[2].reply_to, stitches[2].status, stitches[2].name) == (2, "ok", "add")
    (run,) = await store.runs(KEY)
    assert (run.status, run.input_tokens, run.output_tokens, run.steps) == ("completed", 40, 10, 2)
    (first,) = (await store.history(KEY)).turns
    assert (first.user_message, first.final_response) == ("add 2 3", "The result is 5.")
    assert [hit.position for hit in await store.search("result")] == [4]
    thread = await store.thread(KEY)
    assert (thread.status, thread.user_id) == ("waiting", "ada")

    async with open_store(store_url) as other:
        await turn(LockstitchConversationStore(other), "hi")
    await turn(conversations, "bye")
    said = ["hi", "You said hi.", "bye", "You said bye."]
    assert texts(await conversations.load("1")) == [*SUM, *said]
    assert await context_texts(store) == [*ANSWERS, *said]
    assert [run.status for run in await store.runs(KEY)] == ["completed"] * 3
    assert (await store.verify()).problems == []


async def test_one_of_two_concurrent_saves_gets_a_conflict(store: Store, store_url: str) -> None:
    conversations = LockstitchConversationStore(store)
    async with open_store(store_url) as other:
        for text in ("new", "again"):
            both = (turn(conversations, text), turn(LockstitchConversationStore(other), text))
            results = await asyncio.gather(*both, return_exceptions=True)
            assert [type(result) for result in results].count(ConversationConflict) == 1
    assert texts(await conversations.load("1")) == ["new", "You said new.", "again", "You said again."]

    # A save that adds no message is compared, too.
    first, second = await conversations.load("1"), await conversations.load("1")
    assert first is not None
    assert second is not None
    assert await conversations.save(first) == []
    with pytest.raises(ConversationConflict):
        await conversations.save(second)
    assert await conversations.save(first) == []
    stale = second.revision
    assert stale is not None
    with pytest.raises(ConversationConflict):
        await conversations.delete_record("1", expected_revision=stale)
    await conversations.delete("1")
    with pytest.raises(ConversationConflict):
        await conversations.save(first)
    assert await conversations.load("1") is None


async def test_branches_keep_the_left_history_and_change_the_context(store: Store) -> None:
    conversations = LockstitchConversationStore(store)
    for text in ("add 2 3", "two"):
        await turn(conversations, text)
    tip = (await conversations.load_entries("1", limit=1) or [])[0].id
    before = await conversations.load("1")
    assert before is not None
    branched = await conversations.branch("1", at=4, expected_revision=before.revision)
    assert texts(branched) == SUM
    assert await context_texts(store) == ANSWERS
    await conversations.save(await agent().run("three", conversation=branched))
    assert texts(await conversations.load("1")) == [*SUM, "three", "You said three."]
    assert await context_texts(store) == [*ANSWERS, "three", "You said three."]
    record = await conversations.read_record("1")
    assert record is not None
    assert record.branches == [tip]

    back = await conversations.branch("1", from_entry=tip, expected_revision=record.revision)
    assert texts(back) == [*SUM, "two", "You said two."]
    assert await context_texts(store) == [*ANSWERS, "two", "You said two."]
    with pytest.raises(ConversationConflict):
        await conversations.branch("1", at=0, expected_revision=record.revision)

    rewritten = Conversation(messages=back.messages[4:], conversation_id="1", revision=back.revision)
    await conversations.save(rewritten)
    assert texts(await conversations.load("1")) == ["two", "You said two."]
    assert await context_texts(store) == ["two", "You said two."]
    assert (await store.verify()).problems == []


async def test_fork_shares_entries_and_survives_the_deletion_of_its_origin(store: Store) -> None:
    conversations = LockstitchConversationStore(store)
    for text in ("one", "two"):
        await turn(conversations, text, scope="ada")
    entries = await conversations.load_entries("1") or []
    fork = await conversations.fork("1", at=2, new_conversation_id="2")
    assert texts(fork) == ["one", "You said one."]
    await conversations.save(await agent().run("three", conversation=fork))
    mine = await conversations.load_entries("2") or []
    assert [entry.id for entry in mine[:2]] == [entry.id for entry in entries[:2]]
    assert await context_texts(store, "pydantic-ai:2") == ["one", "You said one.", "three", "You said three."]
    turns = (await store.history("pydantic-ai:2")).turns
    assert [(turn.user_message, turn.inherited) for turn in turns] == [("three", False), ("one", True)]
    record = await conversations.read_record("2")
    assert record is not None
    assert (record.forked_from, record.forked_at, record.scope) == ("1", entries[1].id, "ada")
    with pytest.raises(ConversationConflict):
        await conversations.fork("1", new_conversation_id="2")

    await conversations.delete("1")
    assert await conversations.load("1") is None
    assert texts(await conversations.load("2")) == ["one", "You said one.", "three", "You said three."]
    assert (await conversations.read_entry(entries[0].id)).message == entries[0].message
    with pytest.raises(LookupError):
        await conversations.read_entry(entries[2].id)
    # A branch inside the inherited messages, and a fork of the fork.
    loaded = await conversations.load("2")
    assert loaded is not None
    await conversations.branch("2", at=1, expected_revision=loaded.revision)
    assert await context_texts(store, "pydantic-ai:2") == ["one"]
    assert texts(await conversations.fork("2", from_entry=mine[3].id)) == texts(loaded)
    assert (await store.verify()).problems == []


async def test_scopes_and_limits(store: Store) -> None:
    conversations = LockstitchConversationStore(store)
    for name, scope in (("1", "ada"), ("2", "ada"), ("3", "bob"), ("1", "ada")):
        await turn(conversations, "hi", name, scope)
    assert [item.conversation_id for item in await conversations.list_conversations()] == ["1", "3", "2"]
    assert [item.conversation_id for item in await conversations.list_conversations(limit=2)] == ["1", "3"]
    assert [item.conversation_id for item in await conversations.list_conversations(scope="ada")] == ["1", "2"]
    assert await conversations.list_conversations(scope="eve") == []
    other = LockstitchConversationStore(store.in_project("other"))
    assert await other.list_conversations() == []
    assert await other.load("1") is None

    assert await conversations.load("1", scope="bob") is None
    with pytest.raises(ConversationConflict):
        await turn(conversations, "mine", "1", "bob")
    await conversations.delete("3", scope="ada")
    assert await conversations.load("3") is not None

    window = await conversations.load("1", limit=1)
    assert texts(window) == ["You said hi."]
    assert window is not None
    await conversations.save(await agent().run("more", conversation=window))
    assert len(texts(await conversations.load("1"))) == 6
    assert texts(await conversations.load("1", limit=0)) == []
    assert len(await conversations.load_entries("1", limit=100) or []) == 6
    with pytest.raises(UserError):
        await conversations.load("1", limit=-1)


async def test_approved_call_continues_the_run_that_waited(store: Store) -> None:
    conversations = LockstitchConversationStore(store)
    await turn(conversations, "pay 7")
    (run,) = await store.runs(KEY)
    assert run.status == "waiting"
    paused = await conversations.load("1")
    assert paused is not None
    assert paused.deferred_tool_requests is not None
    results = paused.deferred_tool_requests.build_results(approve_all=True)
    await conversations.save(await agent().run(conversation=paused, deferred_tool_results=results))
    (run,) = await store.runs(KEY)
    assert (run.status, run.steps, run.output_tokens) == ("completed", 2, 10)
    assert [(stitch.type, stitch.status) for stitch in await store.stitches(KEY)][2] == ("tool_call", "ok")
    assert (await store.history(KEY)).turns[0].final_response == "The result is paid 7."

    # The user gives up a call: the conversation continues before it.
    await turn(conversations, "pay 8")
    paused = await conversations.load("1")
    assert paused is not None
    await conversations.branch("1", at=4, expected_revision=paused.revision)
    await turn(conversations, "hi")
    assert sorted(run.status for run in await store.runs(KEY)) == ["cancelled", "completed", "completed"]


async def test_keeps_media_and_messages_of_other_kinds(store: Store) -> None:
    conversations = LockstitchConversationStore(store)
    image = BinaryImage(b"\x89PNG" + bytes(range(256)) * 20, media_type="image/png")
    sound = BinaryContent(b"RIFF", media_type="audio/wav")
    prompt = UserPromptPart(["Look: \x00 é", image, sound, ImageUrl("https://example.org/a.png")])
    messages: list[ModelMessage] = [ModelRequest([prompt]), ModelResponse([TextPart("A cat.")])]
    await conversations.save(Conversation(messages=messages, conversation_id="1"))
    loaded = await conversations.load("1")
    assert loaded is not None
    assert loaded.messages == messages
    content = (await store.stitches(KEY))[0].message or {}
    assert [block["type"] for block in content["content"]] == ["text", "image", "text", "image"]
    entry = ConversationEntry(id="mine", parent_id="unknown", message=messages[0])
    record = ConversationRecord(conversation_id="2", head_id="mine")
    with pytest.raises(ConversationConflict):
        await conversations.write_record(record, new_entries=[entry], expected_revision=None)


async def test_deleting_purging_and_copying(store: Store, tmp_path: Path) -> None:
    conversations = LockstitchConversationStore(store)
    for name in ("1", "2", "3"):
        await turn(conversations, "add 2 3", name, f"user-{name}")
    await store.delete(KEY)
    assert await conversations.load("1") is None
    assert await store.purge(user_id="user-2") == 1
    async with open_store(f"sqlite:///{tmp_path}/copy.db") as copy:
        await store.copy_to(copy)
        copied = LockstitchConversationStore(copy)
        assert await copied.load("3") == await conversations.load("3")
        await turn(copied, "hi", "3")
        assert len(texts(await copied.load("3"))) == 6
    await conversations.delete("3")
    assert await records(store) == 0
    assert await store.threads() == []
