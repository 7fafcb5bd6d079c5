"""Sessions of Agno with their runs in a store."""

import asyncio
import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from lockstitch import Refused, open_store
from lockstitch.integrations.agno.records import StoredRow, StoredRun, StoredSession
from lockstitch.integrations.agno.rows import Rows
from lockstitch.integrations.agno.sessions import SessionLog, of_component
from lockstitch.store import Store, Where
from tests.integrations.agno.runs import KEY, TOKENS, message, part_of, run, session, sum_of

pytestmark = pytest.mark.anyio


def log_of(store: Store) -> SessionLog:
    return SessionLog(store.in_namespace("agno"))


async def put(log: SessionLog, *runs: dict[str, Any], session_id: str = "s") -> None:
    for values in runs:
        await log.put_run(values, session_id, run_type="agent", user_id="ada")


async def runs_in(log: SessionLog, session_id: str = "s") -> list[dict[str, Any]]:
    stored = await log.get(session_id)
    return [] if stored is None else [json.loads(text.text) for text in await log.runs(stored)]


async def test_runs_are_turns_in_history_search_context_and_costs(store: Store) -> None:
    log = log_of(store)
    await log.put(session(data={"session_name": "Sums"}))
    wanted = [sum_of("1"), sum_of("2")]
    await put(log, *wanted, wanted[0])
    assert await runs_in(log) == wanted
    turns = [(turn.user_message, turn.final_response) for turn in (await store.history(KEY)).turns]
    assert turns == [("Add 2.", "Three."), ("Add 1.", "Three.")]
    first, second = await store.runs(KEY)
    assert (first.metadata, first.status, first.agent) == ({"run_id": "run-1"}, "completed", "helper")
    assert (second.steps, second.input_tokens, second.output_tokens, second.cache_read_tokens) == (2, 20, 8, 4)
    assert second.total_cost
    # The system message is recorded once, as long as it does not change.
    types = [stitch.type for stitch in await store.stitches(KEY)]
    turn = ["input", "llm_call", "tool_call", "tool_call", "llm_call"]
    assert types == ["agno_message", *turn, *turn]
    results = [stitch for stitch in await store.stitches(KEY) if stitch.type == "tool_call"]
    assert [(stitch.reply_to, stitch.call_index, stitch.status) for stitch in results[:2]] == [
        (3, 0, "ok"),
        (3, 1, "error"),
    ]
    assert [hit.position for hit in await store.search("three")] == [6, 11]
    assert [entry["role"] for entry in await store.context(KEY)] == ["user", "assistant", "user", "assistant"] * 2
    thread = await store.thread(KEY)
    assert (thread.agent, thread.user_id, thread.title, thread.status) == ("helper", "ada", "Sums", "waiting")


async def test_run_that_is_stored_again_adds_only_its_new_messages(store: Store) -> None:
    log = log_of(store)
    await log.put(session())
    whole = sum_of()
    await put(log, part_of(whole, 3, "RUNNING"))
    assert [run.status for run in await store.runs(KEY)] == ["running"]
    tools = [{"tool_call_id": "1a", "tool_name": "add", "requires_confirmation": True}]
    await put(log, part_of(whole, 4, "PAUSED", tools=tools))
    paused = (await store.stitches(KEY))[-1]
    waiting = [{"kind": "approval", "id": "1a", "name": "add"}]
    assert (paused.type, paused.data["waiting_for"]) == ("run_paused", waiting)
    # Another process continues the run.
    other = log_of(store)
    await put(other, part_of(whole, 5, "RUNNING"), whole, whole)
    expected = ["agno_message", "input", "llm_call", "run_paused", "tool_call", "run_resumed", "tool_call", "llm_call"]
    assert [stitch.type for stitch in await store.stitches(KEY)] == expected
    (record,) = await store.runs(KEY)
    assert (record.status, record.steps, record.input_tokens, record.output_position) == ("completed", 2, 20, 8)
    assert await runs_in(log) == [whole]
    assert await runs_in(other) == [whole]


async def test_runs_end_with_their_status(store: Store) -> None:
    log = log_of(store)
    await log.put(session())
    await put(log, run("r-1", message("1", "user", "Hi."), status="ERROR", content="Down."))
    await put(log, run("r-2", message("2", "user", "Hi."), status="PENDING", content=None))
    row = await log.patch_run("r-2", "s", lambda run, values: {**values, "status": "CANCELLED"})
    assert row is not None
    assert row.status == "CANCELLED"
    assert await log.patch_run("r-2", "s", lambda run, values: None) is None
    # The run of a workflow has no messages.
    workflow = {"agent_id": None, "workflow_id": "flow", "input": {"input_content": {"n": 1}}, "content": "Done."}
    await put(log, run("r-3", **workflow))
    found = [(run.status, run.stop_reason, run.error, run.role) for run in await store.runs(KEY)]
    assert found == [
        ("failed", "error", "Down.", "agent"),
        ("cancelled", "cancelled", None, "agent"),
        ("completed", "end_turn", None, "workflow"),
    ]
    turns = [(turn.user_message, turn.final_response) for turn in (await store.history(KEY)).turns]
    assert turns[0] == ('{"n":1}', "Done.")
    with pytest.raises(Refused, match="Session ghost not found"):
        await put(log, sum_of(), session_id="ghost")
    await log.put(session("t"))
    with pytest.raises(Refused, match="another session"):
        await put(log, run("r-1"), session_id="t")


async def test_runs_of_members_are_below_the_run_of_their_team(store: Store) -> None:
    log = log_of(store)
    await log.put(session())
    leader = run("r-1", message("1", "user", "Ask Bo."), status="RUNNING", agent_id=None, team_id="team")
    member = run("r-2", message("2", "user", "Bo?"), message("3", "assistant", "Bo.", **TOKENS), parent_run_id="r-1")
    await put(log, leader, member)
    await put(
        log, {**leader, "messages": [*leader["messages"], message("4", "assistant", "Ok.")], "status": "COMPLETED"}
    )
    # A member may be stored before its leader.
    await put(log, {**member, "run_id": "r-3", "parent_run_id": "r-4", "messages": [message("5", "user", "Early?")]})
    first, second, third = await store.runs(KEY)
    assert (first.role, second.parent_run_id, third.parent_run_id) == ("team", first.id, None)
    texts = [str(entry["content"]) for entry in await store.context(KEY)]
    assert len(texts) == 2, "the messages of members are in other lanes"
    stored = await log.get("s")
    assert stored is not None
    assert [text.is_nested for text in await log.runs(stored)] == [False, True, True]


async def test_concurrent_writers_lose_nothing(store: Store, store_url: str) -> None:
    async with open_store(store_url) as second:
        logs = [log_of(store), log_of(second)] * 3
        stored = await asyncio.gather(*(log.put(session()) for log in logs))
        assert len({row.thread_id for row in stored if row}) == 1
        await asyncio.gather(*(put(log, sum_of(f"{number}")) for number, log in enumerate(logs)))
        rows, total = await logs[0].find_runs(order=("run_index",), limit=100)
        assert ([row.run_index for row in rows], total) == ([*range(6)], 6)
        for log in logs[:2]:
            assert {values["run_id"] for values in await runs_in(log)} == {f"run-{number}" for number in range(6)}
        # A session without an owner belongs to the first user that stores it.
        await logs[0].put(session("free", None))
        names = [f"user-{number}" for number in range(6)]
        owners = await asyncio.gather(*(log.put(session("free", name)) for log, name in zip(logs, names, strict=True)))
        (owner,) = [row.user_id for row in owners if row is not None]
        assert (await second.thread("agno:free")).user_id == owner


async def test_sessions_belong_to_users(store: Store) -> None:
    log = log_of(store)
    await log.put_all([session(), session("t", "bo", agent_id="other", created_at=1_700_000_050)], [None, 9])
    assert await log.put(session(user_id="bo")) is None
    assert await log.get("s", "bo") is None
    assert not await log.delete("s", "bo")
    await log.put_all([session(data={"session_name": "Ädas"}), session("u", None)], [None, None])
    rows, total = await log.find(order=("-created_at",), limit=1, page=1)
    assert ([row.session_id for row in rows], total) == (["t"], 3)
    rows, _ = await log.find(of_component("other", None), Where("updated_at", "=", 9))
    assert [row.session_id for row in rows] == ["t"]
    named, total = await log.find(accept=lambda row: "session_name" in row.content["session_data"], limit=5)
    assert ([row.session_id for row in named], total) == (["s"], 1)
    assert (await store.thread(KEY)).title == "Ädas"
    await put(log, run("open", message("1", "user", "Hi."), status="PAUSED"))
    assert not await log.reassign("s", "ada", "eve")
    await put(log, run("open", message("1", "user", "Hi.")))
    assert await log.reassign("s", "ada", "eve")
    assert not await log.reassign("s", "ada", "eve")
    assert (await store.thread(KEY)).user_id == "eve"


async def test_deleted_runs_leave_the_context_and_deleted_threads_everything(store: Store) -> None:
    log = log_of(store)
    await log.put(session())
    await put(log, *map(sum_of, "123"))
    assert len(await runs_in(log)) == 3
    other = log_of(store)
    assert await other.delete_runs(["run-2", "none"]) == 1
    assert [values["run_id"] for values in await runs_in(log)] == ["run-1", "run-3"]
    asked = [str(entry["content"]) for entry in await store.context(KEY) if entry["role"] == "user"]
    assert [text for text in asked if text.startswith("Add")] == ["Add 1.", "Add 3."]
    assert len((await store.history(KEY)).turns) == 3
    await put(log, sum_of("4"))
    assert len(await runs_in(other)) == 3
    await store.delete(KEY)
    assert await log.get("s") is None
    assert await runs_in(log) == []
    for kind in (StoredSession, StoredRun):
        assert await store.table(kind).count() == 0
    await log.put(session())
    assert await runs_in(log) == []


async def test_copy_carries_sessions_to_another_backend_and_back(store: Store, tmp_path: Path) -> None:
    log, rows = log_of(store), Rows(store, "trace")
    await log.put(session())
    await put(log, sum_of("1"))
    await rows.put([("t", {"a": [1, None]}, {"created_at": "2026", "user_id": "ada"})])
    async with open_store(f"sqlite:///{tmp_path}/copy.db") as copy:
        assert (await store.copy_to(copy)).skipped_extensions == []
        await put(log_of(copy), sum_of("2"))
        assert await Rows(copy, "trace").get("t") == {"a": [1, None]}
        await store.delete(KEY)
        await copy.copy_to(store)
    assert await runs_in(log_of(store)) == [sum_of("1"), sum_of("2")]
    await store.purge(user_id="ada")
    assert await store.table(StoredRun).count() == 0
    assert await store.table(StoredRow).count() == 0


async def test_rows_change_once_per_writer(store: Store, store_url: str) -> None:
    async with open_store(store_url) as second:
        rows = [Rows(store, "counter"), Rows(second, "counter")] * 4

        def raised(row: dict[str, Any] | None) -> tuple[dict[str, Any], dict[str, Any]]:
            return {"n": (row or {"n": 0})["n"] + 1}, {"created_at": ""}

        await asyncio.gather(*(table.change("a", raised) for table in rows))
    assert await rows[0].get("a") == {"n": 8}
    assert await rows[0].change("a", lambda _: None) is None
    assert await rows[0].count() == 1
    assert await Rows(store.in_project("other"), "counter").get("a") is None
    assert await rows[0].delete(Where("id", "=", "a")) == 1


async def test_unknown_forms_of_messages_are_recorded(store: Store) -> None:
    log = log_of(store)
    await log.put(session())
    image = {"id": "i", "url": "https://example.org/a.png"}
    sound = {"id": "x", "content": "AAAA", "mime_type": "audio/wav"}
    odd = run(
        "odd",
        message("1", "user", [{"n": 1}], images=[image], audio=[sound], videos=[{"id": "v"}]),
        {"role": "assistant", "content": "Hm.\x00", "tool_calls": [{"id": "", "function": {"name": "f"}}, 7]},
        message("3", "tool", "lost", tool_call_id="none"),
        message("4", "alien", "?"),
        message("5", "assistant", "Ok.", tool_calls=[{"id": "c", "function": {"name": "g", "arguments": "{"}}]),
        message("6", "tool", None, tool_call_id="c"),
        metrics=None,
        created_at="soon",
    )
    await put(log, odd)
    stitches = await store.stitches(KEY)
    types = ["input", "llm_call", "agno_message", "agno_message", "llm_call", "tool_call"]
    assert [stitch.type for stitch in stitches] == types
    kinds = [block["type"] for block in (stitches[0].message or {})["content"]]
    assert kinds == ["text", "image", "document", "text"]
    assert (stitches[4].message or {})["content"][1]["input"] == {"arguments": "{"}
    assert await runs_in(log) == [odd]
    assert isinstance((await log.run("odd")) and (await store.runs(KEY))[0].id, UUID)
