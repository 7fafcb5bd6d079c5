"""Sessions of ADK with their events and their state in a store."""

import asyncio
from json import loads
from pathlib import Path
from typing import Any

import pytest

from lockstitch import KeyTaken, Refused, open_store
from lockstitch.integrations.adk.records import SharedValue, StoredSession
from lockstitch.integrations.adk.sessions import Name, SessionChanged, SessionLog, SessionMissing
from lockstitch.model.message import text_of
from lockstitch.store import Store
from tests.integrations.adk.events import KEY, NAME, answered, event, response, said, sum_of

pytestmark = pytest.mark.anyio


def log_of(store: Store) -> SessionLog:
    return SessionLog(store.in_namespace("adk"))


async def append(log: SessionLog, *events: dict[str, Any], name: Name = NAME) -> None:
    """Append events as one caller does that reads the session first."""
    stored = await log.get(name)
    assert stored is not None
    position = stored[0].position
    for item in events:
        position = (await log.append(name, item, position, 0.0)).position


async def events_in(log: SessionLog, limit: int | None = None) -> list[str]:
    stored = await log.get(NAME, limit)
    assert stored is not None
    return [item["id"] for item in map(loads, stored[2])]


async def test_conversation_is_in_history_search_context_and_costs(store: Store) -> None:
    log = log_of(store)
    await log.create(*NAME, {"lang": "en", "app:version": 1, "temp:x": 1})
    events = [*sum_of(), said("Thanks.", "i-2"), answered("Bye.", "i-2")]
    await append(log, *events)
    stored = await log.get(NAME)
    assert stored is not None
    session, state, found = stored
    assert [*map(loads, found)] == events
    assert state == {"lang": "en", "asked": 2, "app:version": 1, "user:sums": 1}
    assert (session.update_time, session.position) == (events[-1]["timestamp"], 7)

    turns = [(turn.user_message, turn.final_response) for turn in (await store.history(KEY)).turns]
    assert turns == [("Thanks.", "Bye."), ("Add.", "Three.")]
    assert [run.metadata["invocation_id"] for run in await store.runs(KEY)] == ["i-1", "i-2"]
    run = (await store.runs(KEY))[0]
    assert (run.status, run.steps, run.input_tokens, run.output_tokens) == ("completed", 2, 30, 7)
    assert run.total_cost
    assert [hit.position for hit in await store.search("three")] == [5]
    roles = [message["role"] for message in await store.context(KEY)]
    assert roles == ["user", "assistant", "user", "assistant", "user", "assistant"]
    thread = await store.thread(KEY)
    assert (thread.agent, thread.user_id, thread.status) == ("shop", "ada", "waiting")


async def test_returns_the_newest_events(store: Store) -> None:
    log = log_of(store)
    await log.create(*NAME, {})
    events = [item for number in range(6) for item in sum_of(f"i-{number}")]
    await append(log, *events)
    ids = [item["id"] for item in events]
    for limit in (0, 1, 2, 7, 24, 100):
        assert await events_in(log, limit) == (ids[-limit:] if limit else [])


async def test_one_of_concurrent_appends_succeeds(store: Store, store_url: str) -> None:
    log = log_of(store)
    await log.create(*NAME, {})
    async with open_store(store_url) as second:
        results = await asyncio.gather(
            *(log.append(NAME, said("Hi."), 0, 0.0) for _ in range(2)),
            *(log_of(second).append(NAME, said("Hi."), 0, 0.0) for _ in range(2)),
            return_exceptions=True,
        )
    assert [type(result) for result in results if isinstance(result, BaseException)] == [SessionChanged] * 3
    assert len(await events_in(log)) == 1
    with pytest.raises(SessionChanged):
        # A session without a position is compared by its time.
        await log.append(NAME, said("Hi."), None, 1.0)
    await log.append(NAME, said("Hi."), None, 2e9)


async def test_concurrent_sessions_of_a_user_keep_all_values(store: Store, store_url: str) -> None:
    log = log_of(store)
    names = [NAME._replace(session_id=f"{number}") for number in range(4)]
    async with open_store(store_url) as second:
        logs = [log, log_of(second)] * 2
        for number, name in enumerate(names):
            await logs[number].create(*name, {f"app:{number}": number})
        await asyncio.gather(
            *(
                logs[number].append(name, said("Hi.", state={f"user:{number}": number, "own": number}), 0, 0.0)
                for number, name in enumerate(names)
            )
        )
    shared = {f"app:{number}": number for number in range(4)} | {f"user:{number}": number for number in range(4)}
    assert [state for _, state in await log.all("shop", "ada")] == [{"own": number, **shared} for number in range(4)]
    assert await log.user_state("shop", "ada") == {f"{number}": number for number in range(4)}
    await log.create("shop", "grace", "1", {"user:a": None})
    assert await log.user_state("shop", "grace") == {"a": None}
    assert await log.user_state("other", "ada") == {}
    assert [session.user_id for session, _ in await log.all("shop", None)].count("grace") == 1


async def test_names_of_sessions_do_not_collide(store: Store) -> None:
    log = log_of(store)
    for name in (Name("a/b", "c", "d"), Name("a", "b/c", "d"), Name("a", "b", "c/d"), Name("a%2Fb", "c", "d")):
        await log.create(*name, {})
    with pytest.raises(KeyTaken):
        await log.create("a", "b", "c/d", {})
    with pytest.raises(Refused, match="key"):
        await log.create("a", "b", "c" * 300, {})


async def test_deleted_session_is_gone_and_shared_values_stay(store: Store) -> None:
    log = log_of(store)
    await log.create(*NAME, {"user:a": 1})
    await append(log, *sum_of())
    await log.delete(NAME)
    await log.delete(NAME)
    assert await log.get(NAME) is None
    with pytest.raises(SessionMissing):
        await log.append(NAME, said("Hi."), 7, 0.0)
    await log.create(*NAME, {})
    assert await events_in(log) == []
    await store.delete(KEY)
    assert await store.table(StoredSession).count() == 0
    assert await log.user_state("shop", "ada") == {"a": 1, "sums": 1}
    await store.purge(user_id="ada")
    assert await store.table(SharedValue).count() == 0


async def test_interrupted_and_failed_invocations_end_their_runs(store: Store) -> None:
    log = log_of(store)
    await log.create(*NAME, {})
    await append(log, *sum_of("i-1")[:2], said("Again.", "i-2"), event("helper", invocation="i-2", error_code="500"))
    await append(log, *sum_of("i-3"), answered("A second agent answers.", "i-3"))
    runs = await store.runs(KEY)
    assert [(run.status, run.stop_reason) for run in runs] == [
        ("cancelled", "interrupted"),
        ("failed", "error"),
        ("completed", "end_turn"),
    ]
    last = await store.stitches(KEY, runs[2].output_position or 0)
    assert text_of(last[0].message) == "A second agent answers."
    assert (runs[2].steps, runs[2].output_tokens) == (3, 12)
    # A tool that takes long answers in a later invocation.
    await append(log, event("user", response("add", "a", {"n": 1}), response("add", "b", {"n": 2}), invocation="i-4"))
    assert (await store.stitches(KEY))[-1].type == "adk_event"


async def test_result_of_a_long_call_arrives_in_a_later_invocation(store: Store) -> None:
    log = log_of(store)
    await log.create(*NAME, {})
    wanted = [*sum_of("i-1")[:2], event("user", response("add", "b", {"n": 2}), invocation="i-2")]
    await append(log, *wanted)
    result = (await store.stitches(KEY))[-1]
    assert (result.type, result.reply_to, result.call_index) == ("tool_call", 2, 1)
    stored = await log.get(NAME)
    assert stored is not None
    assert [*map(loads, stored[2])] == wanted


async def test_copy_carries_sessions_to_another_backend_and_back(store: Store, tmp_path: Path) -> None:
    log = log_of(store)
    await log.create(*NAME, {"own": 1})
    events = sum_of()
    await append(log, *events)
    async with open_store(f"sqlite:///{tmp_path}/copy.db") as copy:
        assert (await store.copy_to(copy)).skipped_extensions == []
        events.append(said("More.", "i-2"))
        await append(log_of(copy), events[-1])
        await store.delete(KEY)
        await copy.copy_to(store)
    stored = await log.get(NAME)
    assert stored is not None
    assert (stored[1], [*map(loads, stored[2])]) == ({"own": 1, "asked": 2, "user:sums": 1}, events)
