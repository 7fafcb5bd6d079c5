"""`LockstitchSessionStore`: transcripts of Claude as threads, without the SDK."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from lockstitch import Conflict, Refused, Run, open_store
from lockstitch.integrations.claude_agents import LockstitchSessionStore
from lockstitch.model.message import text_of
from lockstitch.store import Store
from tests.integrations.claude_agents.transcripts import KEY, MODEL, SUB, Transcript, conversation

pytestmark = pytest.mark.anyio

THREAD = f"claude:{KEY['project_key']}/{KEY['session_id']}"


async def stored(store: Store, key: Any = KEY) -> list[str]:
    """Return the entries of a transcript as JSON texts, with their keys in the stored order."""
    return [json.dumps(entry) for entry in await LockstitchSessionStore(store).load(key) or ()]


def texts(entries: list[Any]) -> list[str]:
    return [json.dumps(entry) for entry in entries]


async def context(store: Store) -> list[str]:
    return [text_of(message) for message in await store.context(THREAD)]


def outcome(run: Run) -> tuple[Any, ...]:
    return run.status, run.stop_reason, run.steps, run.input_tokens, run.output_tokens, run.cache_read_tokens


async def test_records_the_turns_of_a_session(store: Store) -> None:
    talk = conversation()
    sessions = LockstitchSessionStore(store)
    assert await sessions.load(KEY) is None
    await sessions.append(KEY, talk.entries)
    assert await stored(store) == texts(talk.entries)

    log = await store.stitches(THREAD)
    messages = [stitch for stitch in log if stitch.message is not None]
    assert [stitch.type for stitch in messages] == [
        *("input", "llm_call", "tool_call", "tool_call", "llm_call"),
        *("input", "llm_call"),
    ]
    response, result, failure = messages[1:4]
    assert (response.name, response.status, response.calls) == (MODEL, "tool_use", 2)
    assert (response.input_tokens, response.output_tokens, response.cache_read_tokens) == (123, 31, 100)
    assert (result.name, result.call_id, result.status, result.reply_to) == ("Read", "toolu_1", "ok", response.position)
    assert (failure.call_index, failure.status) == (1, "error")

    first, second = await store.runs(THREAD)
    assert outcome(first) == ("completed", "end_turn", 2, 246, 36, 200)
    assert outcome(second) == ("completed", "end_turn", 1, 123, 4, 100)
    assert (first.model, first.provider, first.started_at.isoformat()) == (
        MODEL,
        "anthropic",
        "2026-11-01T10:00:02.250000+00:00",
    )
    assert first.total_cost is not None
    turns = (await store.history(THREAD)).turns
    assert [(turn.user_message, turn.final_response) for turn in turns] == [
        ("Thanks", "You are welcome."),
        ("Why is the sum wrong?", "It subtracts."),
    ]
    assert [message["role"] for message in await store.context(THREAD)] == ["user", "assistant"] * 3
    assert [hit.position for hit in await store.search("subtracts")] == [messages[4].position]
    assert (await store.thread(THREAD)).status == "waiting"


@pytest.mark.parametrize("size", [1, 2, 5])
async def test_parts_of_a_transcript_record_the_same_turns(store: Store, size: int) -> None:
    entries = conversation().entries
    for first in range(0, len(entries), size):
        # A new object has no memory of the earlier parts.
        await LockstitchSessionStore(store).append(KEY, entries[first : first + size])
    assert await stored(store) == texts(entries)
    assert [outcome(run)[3:] for run in await store.runs(THREAD)] == [(246, 36, 200), (123, 4, 100)]
    assert [run.status for run in await store.runs(THREAD)] == ["completed"] * 2
    assert [turn.final_response for turn in (await store.history(THREAD)).turns] == [
        "You are welcome.",
        "It subtracts.",
    ]
    assert (await context(store))[-3:] == ["It subtracts.", "Thanks", "You are welcome."]


async def test_a_repeated_import_adds_nothing(store: Store, store_url: str) -> None:
    talk = conversation()
    await LockstitchSessionStore(store).append(KEY, talk.entries[:9])
    async with open_store(store_url) as other:
        sessions = LockstitchSessionStore(other)
        await sessions.append(KEY, talk.entries)
        await sessions.append(KEY, [talk.entries[-2], talk.entries[-2]])
        # Two equal entries without a uuid are two entries.
        await sessions.append(KEY, [talk.entries[-1]])
    assert await stored(store) == texts([*talk.entries, talk.entries[-1]])
    assert len(await store.runs(THREAD)) == 2


async def test_two_processes_append_at_once(store: Store, store_url: str) -> None:
    def answers(name: str) -> list[Any]:
        talk = Transcript(name)
        return [talk.answer(f"{name}{number}", f"{name} {number}") for number in range(8)]

    async with open_store(store_url) as other:
        both = {"a": LockstitchSessionStore(store), "b": LockstitchSessionStore(other)}

        async def write(name: str) -> None:
            for entry in answers(name):
                await both[name].append(KEY, [entry])

        await asyncio.gather(write("a"), write("b"))
    loaded = await stored(store)
    assert sorted(loaded) == sorted(texts([*answers("a"), *answers("b")]))
    for name in both:
        own = texts(answers(name))
        assert [entry for entry in loaded if entry in own] == own


async def test_sub_agent_is_a_child_thread(store: Store) -> None:
    sessions = LockstitchSessionStore(store)
    below = Transcript("sub", sidechain=True)
    below.plain("agent_metadata", agentType="Explore", description="Read the shop", toolUseId="toolu_1")
    below.prompt("Read the shop")
    below.answer("msg_s", "It is small.")
    await sessions.append(SUB, below.entries)
    assert await sessions.load(KEY) is None
    assert await sessions.list_sessions(KEY["project_key"]) == []
    await sessions.append(KEY, conversation().entries)
    assert await stored(store, SUB) == texts(below.entries)
    (child,) = await store.children(THREAD)
    assert (child.title, child.depth, child.key) == ("Read the shop", 1, f"{THREAD}/subagents/agent-a1")
    assert [turn.final_response for turn in (await store.history(child)).turns] == ["It is small."]
    assert await sessions.list_subkeys(KEY) == [SUB["subpath"]]
    assert [session["session_id"] for session in await sessions.list_sessions(KEY["project_key"])] == [
        KEY["session_id"]
    ]
    assert await sessions.list_session_summaries("other") == []

    await sessions.delete(SUB)
    assert await sessions.list_subkeys(KEY) == []
    assert (await store.thread(THREAD)).delivered == 0
    await sessions.append(SUB, below.entries)
    await sessions.delete(KEY)
    assert await store.threads() == []
    assert (await sessions.load(SUB), await sessions.load(KEY)) == (None, None)


async def test_deleted_and_purged_sessions_start_again(store: Store) -> None:
    sessions = LockstitchSessionStore(store)
    entries = conversation().entries
    await sessions.append(KEY, entries)
    await store.fork(THREAD)
    assert len(await sessions.list_sessions(KEY["project_key"])) == 1
    await store.delete(THREAD)
    await sessions.append(KEY, entries[:4])
    assert await stored(store) == texts(entries[:4])
    await store.purge(before=store.clock.now())
    assert await sessions.load(KEY) is None


async def test_context_follows_the_branch_and_the_compaction(store: Store) -> None:
    sessions = LockstitchSessionStore(store)
    talk = Transcript()
    talk.prompt("one")
    kept = talk.answer("msg_1", "First.")["uuid"]
    talk.prompt("two")
    talk.answer("msg_2", "Second.")
    await sessions.append(KEY, talk.entries)
    talk.prompt("three", parent=kept)
    last = talk.answer("msg_3", "Third.")["uuid"]
    await sessions.append(KEY, talk.entries)
    assert await context(store) == ["one", "First.", "three", "Third."]

    preserved = {"uuids": [last], "allUuids": [last]}
    talk.system("compact_boundary", parent=None, compactMetadata={"trigger": "auto", "preservedMessages": preserved})
    talk.prompt("Summary.", isCompactSummary=True)
    talk.prompt("four")
    talk.answer("msg_4", "Fourth.")
    await sessions.append(KEY, talk.entries)
    assert await context(store) == ["Third.", "Summary.", "four", "Fourth."]
    talk.prompt("five", parent=None)
    await sessions.append(KEY, talk.entries)
    assert await context(store) == ["five"]
    assert await stored(store) == texts(talk.entries)
    assert [turn.user_message for turn in (await store.history(THREAD)).turns] == ["four", "three", "two", "one"]


async def test_interrupted_and_failed_turns(store: Store) -> None:
    talk = Transcript()
    talk.prompt("one")
    talk.call("msg_1", "toolu_1")
    talk.prompt([{"type": "text", "text": "[Request interrupted by user for tool use]"}])
    talk.prompt("<local-command-stdout>ok</local-command-stdout>", isMeta=True)
    talk.prompt("two")
    talk.block("x", {"type": "text", "text": "API Error: 529"}, model="<synthetic>", isApiErrorMessage=True)
    talk.prompt("three")
    talk.answer("msg_3", "Third.", stop=None)
    talk.prompt("four")
    talk.answer("msg_4", "Fourth.", stop=None)
    talk.system("turn_duration")
    talk.prompt("five")
    await LockstitchSessionStore(store).append(KEY, talk.entries)
    runs = await store.runs(THREAD)
    assert [(run.status, run.error) for run in runs] == [
        ("cancelled", None),
        ("failed", "API Error: 529"),
        ("completed", None),
        ("completed", None),
        ("running", None),
    ]
    assert [(error.type, error.data["message"]) for error in await store.errors()] == [("run_failed", "API Error: 529")]
    assert await stored(store) == texts(talk.entries)


async def test_keeps_entries_that_are_no_plain_messages(store: Store) -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBO" * 10_000}}
    talk = Transcript()
    talk.prompt([{"type": "text", "text": "Look"}, image])
    talk.call("msg_1", "toolu_1")
    talk.call("msg_1", "toolu_2")
    mixed = talk.result("toolu_1", "half of a face: \ud83d, \x00")
    mixed["message"]["content"] += [
        {"type": "text", "text": "and"},
        {"type": "tool_result", "tool_use_id": "toolu_2", "content": [image]},
    ]
    talk.answer("msg_2", "Seen.")
    talk.result("unknown", "late")
    talk.prompt("aside", isSidechain=True)
    talk.prompt([])
    talk.plain("numbers", big=2**70, small=1e-7, none=None, nan=[float("inf")], message="text")
    talk.plain("", uuid=7, message={"content": [{"type": 3}]})
    sessions = LockstitchSessionStore(store)
    await sessions.append(KEY, talk.entries)
    assert await stored(store) == texts(talk.entries)
    results = [stitch for stitch in await store.stitches(THREAD) if stitch.type == "tool_call"]
    assert [stitch.call_id for stitch in results] == ["toolu_1", "toolu_2"]
    assert "\ufffd" in results[0].message["content"]
    await sessions.append(KEY, talk.entries[:-2])
    assert len(await stored(store)) == len(talk.entries)


async def test_keys_are_separate(store: Store) -> None:
    keys = [
        {"project_key": "a", "session_id": "b", "subpath": "c"},
        {"project_key": "a/b", "session_id": "c"},
        {"project_key": "a", "session_id": "b/c"},
        {"project_key": "a", "session_id": "b%2Fc"},
        {"project_key": "ä %", "session_id": "B"},
        {"project_key": "p" * 300, "session_id": "b"},
        {"project_key": "p" * 300, "session_id": "c"},
    ]
    for sessions in (LockstitchSessionStore(store), LockstitchSessionStore(store.in_project("other"))):
        for number, key in enumerate(keys):
            await sessions.append(key, [{"type": "x", "n": number}])
        for number, key in enumerate(keys):
            assert await sessions.load(key) == [{"type": "x", "n": number}]
        assert {session["session_id"] for session in await sessions.list_sessions("p" * 300)} == {"b", "c"}
    with pytest.raises(Refused, match="NUL"):
        await LockstitchSessionStore(store).append({"project_key": "\x00", "session_id": "b"}, [{"type": "x"}])


async def test_an_ended_thread_accepts_no_entries(store: Store) -> None:
    sessions = LockstitchSessionStore(store)
    entries = conversation().entries
    await sessions.append(KEY, entries[:4])
    await store.append(await store.thread(THREAD), fields={"status": "cancelled"})
    with pytest.raises(Conflict):
        await sessions.append(KEY, entries)
    assert await stored(store) == texts(entries[:4])


async def test_copy_carries_sessions_to_another_backend_and_back(store: Store, tmp_path: Path) -> None:
    entries = conversation().entries
    await LockstitchSessionStore(store).append(KEY, entries[:9])
    async with open_store(f"sqlite:///{tmp_path}/copy.db") as copy:
        await store.copy_to(copy)
        await LockstitchSessionStore(copy).append(KEY, entries[:12])
        await store.delete(THREAD)
        await copy.copy_to(store)
    await LockstitchSessionStore(store).append(KEY, entries)
    assert await stored(store) == texts(entries)
    assert [outcome(run)[3:] for run in await store.runs(THREAD)] == [(246, 36, 200), (123, 4, 100)]
