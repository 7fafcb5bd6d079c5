"""Projections: agent_config and conversation_history."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lockstitch.backend import Commit, Find, ThreadEdit, Where
from lockstitch.backends.files import FilesBackend, disk
from lockstitch.errors import Refused
from lockstitch.model import Entry, FakeClock, File, Json, Run, Stitch, Thread, codec, tool_result
from tests.backends.files.writing import (
    START,
    append,
    asked,
    begin,
    create,
    finish,
    head_of,
    next_run,
    opened,
    result,
    turn,
)
from tests.waits import waiting

pytestmark = pytest.mark.anyio

CONFIG_KEYS = [
    *("agent_uuid", "system_prompt", "model", "max_steps", "thinking_tokens", "max_tokens", "container_id", "messages"),
    *("tool_schemas", "tool_names", "server_tools", "beta_headers", "api_kwargs", "formatter"),
    *("stream_meta_history_and_tool_results", "compactor_type", "memory_store_type", "file_registry", "max_retries"),
    *("base_delay", "last_known_input_tokens", "last_known_output_tokens", "pending_frontend_tools"),
    *("pending_backend_results", "awaiting_frontend_tools", "current_step", "conversation_history", "title", "extras"),
    *("created_at", "updated_at", "last_run_at", "total_runs"),
]
HISTORY_KEYS = [
    *("conversation_id", "agent_uuid", "run_id", "started_at", "completed_at", "user_message", "final_response"),
    *("messages", "stop_reason", "total_steps", "usage", "generated_files", "cost", "extras", "sequence_number"),
    "created_at",
]


def config(root: Path, head: Thread) -> Json:
    return codec.loads((root / "agent_config" / f"{head.id}.json").read_bytes())


def record(root: Path, head: Thread, turn: int) -> Json:
    return codec.loads((root / "conversation_history" / str(head.id) / f"{turn:03d}.json").read_bytes())


def file(head: Thread, run: Run | None = None, **fields: Any) -> File:
    run_id = run.id if run else None
    generated = {"filename": "chart.png", "storage_path": "s3://b/chart.png", "size": 45231, "mime_type": "image/png"}
    when = {"created_at": START, "last_updated_at": START, "created_in_run": run_id, "last_updated_run": run_id}
    return File(**{"thread_id": head.id, "file_id": "file_abc", "step": 2, **generated, **when, **fields})


@pytest.mark.req("S0-008", "S0-009", "S0-039")
async def test_agent_config_has_all_keys_and_defaults(files: FilesBackend, root: Path) -> None:
    head = await turn(files, await create(files), "hello", "world")
    shown_config = config(root, head)
    assert list(shown_config) == CONFIG_KEYS
    assert shown_config["agent_uuid"] == str(head.id)
    assert (
        shown_config["system_prompt"],
        shown_config["model"],
        shown_config["container_id"],
        shown_config["title"],
    ) == ("", "", None, None)
    assert (shown_config["max_steps"], shown_config["thinking_tokens"], shown_config["max_tokens"]) == (50, 0, 2048)
    assert (shown_config["formatter"], shown_config["max_retries"], shown_config["base_delay"]) == ("json", 5, 1.0)
    assert (shown_config["created_at"], shown_config["total_runs"]) == ("2026-01-01T00:00:00.000000Z", 1)
    assert (
        shown_config["awaiting_frontend_tools"],
        shown_config["current_step"],
        shown_config["conversation_history"],
    ) == (False, 0, [])


@pytest.mark.req("S0-015", "S0-016", "S0-017", "S0-027")
async def test_agent_config_shows_settings_context_and_extras(files: FilesBackend, root: Path) -> None:
    schemas = [{"name": name, "description": "", "input_schema": {}} for name in ("web_search", "calculator")]
    settings = {
        "system_prompt": "You help.",
        "model": "anthropic:claude-sonnet-4-5",
        "tool_schemas": schemas,
        "max_steps": 9,
    }
    head = await create(files, settings=settings, extras={"user_id": "user_123"}, title="T")
    head, run = await begin(files, head, "one")
    head = await finish(files, head, run, "two")
    head, run = await begin(files, head, "three")
    compaction = {"applied": True, "keep": [[2, 2]], "replace": {"1": {"role": "user", "content": "(short)"}}}
    await append(files, head, Entry(type="compaction", run_id=run.id, data=compaction), fields={"context_from": 4})
    head = await finish(files, await head_of(files, head.id), run, "four")
    shown_config = config(root, head)
    assert [text(message) for message in shown_config["messages"]] == ["(short)", "two", "four"]
    assert (shown_config["system_prompt"], shown_config["model"], shown_config["max_steps"]) == (
        "You help.",
        "claude-sonnet-4-5",
        9,
    )
    assert shown_config["tool_schemas"] == schemas
    assert shown_config["tool_names"] == ["web_search", "calculator"]
    assert (shown_config["extras"], shown_config["title"]) == ({"user_id": "user_123"}, "T")


def text(message: Json) -> str:
    content = message["content"]
    return content if isinstance(content, str) else content[0]["text"]


@pytest.mark.req("S0-055", "S0-057", "S0-058", "S0-059", "S0-060")
async def test_conversation_record_has_all_keys(files: FilesBackend, root: Path) -> None:
    head = await create(files)
    head, run = await begin(files, head, "ignored")
    blocks = [{"type": "text", "text": "Create "}, {"type": "image", "source": {}}, {"type": "text", "text": "a chart"}]
    head, second = await begin(files, await finish(files, head, run, "done"), "x", extras={"credits_used": 42})
    await append(files, head, Entry(type="input", run_id=second.id, message={"role": "user", "content": blocks}))
    head = await finish(files, await head_of(files, head.id), second, "I've created a chart", input_position=4)
    shown_record = record(root, head, 2)
    assert list(shown_record) == HISTORY_KEYS
    assert (shown_record["conversation_id"], shown_record["run_id"], shown_record["agent_uuid"]) == (
        str(second.id),
        str(second.id),
        str(head.id),
    )
    assert (shown_record["user_message"], shown_record["final_response"]) == ("Create a chart", "I've created a chart")
    assert (shown_record["started_at"], shown_record["completed_at"]) == (
        "2026-01-01T00:00:00.000000Z",
        "2026-01-01T00:01:00.000000Z",
    )
    log = root / "agent_runs" / str(head.id) / f"{second.id}.jsonl"
    assert len(log.read_text().splitlines()) == 3


@pytest.mark.req("S0-061", "S0-062", "S0-063", "S0-064", "S0-065")
async def test_conversation_record_contains_messages_and_outcome(files: FilesBackend, root: Path) -> None:
    head, run = await begin(files, await create(files), "look")
    await append(
        files,
        head,
        asked("c1", "c2", run_id=run.id),
        Entry(type="memory_retrieval", run_id=run.id, message={"role": "user", "content": "remembered"}),
    )
    head = await head_of(files, head.id)
    await append(files, head, result("c2", 2, 1, "second", run_id=run.id), result("c1", 2, 0, "first", run_id=run.id))
    counts = {"input_tokens": 1500, "output_tokens": 800, "cache_write_tokens": 20, "cache_read_tokens": 10}
    head = await head_of(files, head.id)
    head = await finish(files, head, run, "done", steps=2, stop_reason="max_steps", cost={"total_cost": 0.5}, **counts)
    shown_record = record(root, head, 1)
    assert [message["role"] for message in shown_record["messages"]] == ["user", "assistant", "user", "assistant"]
    assert shown_record["messages"][0] == {"role": "user", "content": "look"}
    assert shown_record["messages"][2]["content"] == [tool_result("c1", "first"), tool_result("c2", "second")]
    assert (shown_record["stop_reason"], shown_record["total_steps"], shown_record["cost"]) == (
        "max_steps",
        2,
        {"total_cost": 0.5},
    )
    assert shown_record["usage"] == {
        "input_tokens": 1500,
        "output_tokens": 800,
        "cache_creation_input_tokens": 20,
        "cache_read_input_tokens": 10,
    }


@pytest.mark.req("S0-025", "S0-066")
async def test_files_are_listed_with_the_run_that_created_them(files: FilesBackend, root: Path) -> None:
    head, first = await begin(files, await create(files), "one")
    await files.put([file(head, first)])
    head, second = await begin(files, await finish(files, head, first, "two"), "three")
    later = START + timedelta(hours=1)
    await files.put(
        [file(head, first, last_updated_run=second.id, last_updated_at=later), file(head, first, file_id="../other")]
    )
    head = await finish(files, head, second, "four")
    registry = config(root, head)["file_registry"]
    assert set(registry) == {"file_abc", "../other"}
    assert registry["file_abc"] == {
        "filename": "chart.png",
        "storage_path": "s3://b/chart.png",
        "size": 45231,
        "mime_type": "image/png",
        "created_in_run": str(first.id),
        "last_updated_run": str(second.id),
        "last_updated_at": "2026-01-01T01:00:00.000000Z",
    }
    (generated,) = record(root, head, 2)["generated_files"]
    assert list(generated) == ["file_id", "filename", "storage_path", "size", "mime_type", "step", "timestamp"]
    assert (generated["file_id"], generated["step"]) == ("file_abc", 2)
    assert [generated_file["file_id"] for generated_file in record(root, head, 1)["generated_files"]] == ["file_abc"]


@pytest.mark.req("S0-072", "S0-073", "S0-074", "S0-078", "X0-06")
async def test_records_are_numbered_by_turn_and_indexed(files: FilesBackend, root: Path) -> None:
    heads = [await create(files), await create(files)]
    for number in range(3):
        head, run = await begin(files, heads[0], str(number), extras={"credits_used": number})
        member = next_run(head, turn=run.turn, parent_run_id=run.id)
        final_fields = {"status": "completed", "completed_at": START}
        await append(
            files, head, new_runs=[member], runs=[(member.id, final_fields)], fields={"last_sequence": member.sequence}
        )
        heads[0] = await finish(files, await head_of(files, head.id), run, "answer")
    heads[1] = await turn(files, heads[1], "q", "a")
    directory = root / "conversation_history" / str(heads[0].id)
    assert sorted(path.name for path in directory.iterdir()) == ["001.json", "002.json", "003.json", "index.json"]
    assert codec.loads((directory / "index.json").read_bytes()) == {"last_sequence": 3, "total_conversations": 3}
    shown_records = [record(root, heads[0], number) for number in (1, 2, 3)]
    assert [
        (record_json["sequence_number"], record_json["extras"], record_json["created_at"])
        for record_json in shown_records
    ] == [(number + 1, {"credits_used": number}, "2026-01-01T00:01:00.000000Z") for number in range(3)]
    assert record(root, heads[1], 1)["sequence_number"] == 1
    # The record of a run is found by its turn.
    run_document = root / "runs" / str(heads[0].id) / f"{shown_records[1]['run_id']}.json"
    assert codec.loads(run_document.read_bytes())["turn"] == 2


@pytest.mark.req("X0-05")
async def test_turns_are_ordered_as_numbers(files: FilesBackend, root: Path) -> None:
    head = await create(files, last_turn=998)
    head = await turn(files, head, "q", "999")
    head = await turn(files, head, "q", "1000")
    assert record(root, head, 1000)["final_response"] == "1000"
    index = root / "conversation_history" / str(head.id) / "index.json"
    assert codec.loads(index.read_bytes()) == {"last_sequence": 1000, "total_conversations": 2}
    assert sorted(path.name for path in index.parent.iterdir()) == ["1000.json", "999.json", "index.json"]
    head = await turn(files, head, "q", "1001")
    assert codec.loads(index.read_bytes()) == {"last_sequence": 1001, "total_conversations": 3}


@pytest.mark.req("S0-030", "S0-031", "S0-032", "S0-033", "S0-034")
async def test_agent_config_shows_awaited_frontend_tools(files: FilesBackend, root: Path) -> None:
    head, run = await begin(files, await create(files), "buy", state={"container_id": "container_xyz"})
    await append(files, head, asked("c1", "c2", run_id=run.id, input_tokens=12345, output_tokens=678))
    head = await head_of(files, head.id)
    waits = [waiting("frontend_tools", START, "c2")]
    entry = result("c1", 2, 0, "in stock", run_id=run.id)
    paused = {"status": "waiting", "waiting_for": waits}
    await append(files, head, entry, runs=[(run.id, {"status": "waiting", "steps": 1})], fields=paused)
    shown_config = config(root, head)
    assert shown_config["awaiting_frontend_tools"] is True
    assert shown_config["pending_frontend_tools"] == [{"tool_use_id": "c2", "name": "look", "input": {"of": "c2"}}]
    assert shown_config["pending_backend_results"] == [tool_result("c1", "in stock")]
    assert (shown_config["current_step"], shown_config["container_id"]) == (1, "container_xyz")
    assert [message["role"] for message in shown_config["conversation_history"]] == ["user", "assistant", "user"]
    assert [message["role"] for message in shown_config["messages"]] == ["user", "assistant"]
    assert (shown_config["last_known_input_tokens"], shown_config["last_known_output_tokens"]) == (12345, 678)
    assert not (root / "conversation_history").exists()
    # The run continues, and nothing of the pause is left.
    head = await head_of(files, head.id)
    await append(files, head, result("c2", 2, 1, "yes", run_id=run.id), fields={"status": "running", "waiting_for": []})
    head = await finish(files, await head_of(files, head.id), run, "bought")
    shown_config = config(root, head)
    assert (shown_config["awaiting_frontend_tools"], shown_config["pending_frontend_tools"]) == (False, [])
    assert (
        shown_config["pending_backend_results"],
        shown_config["conversation_history"],
        shown_config["current_step"],
    ) == ([], [], 0)
    assert len(record(root, head, 1)["messages"]) == 4


@pytest.mark.req("S0-039", "S0-079", "X0-04")
async def test_rebuild_restores_lost_and_damaged_projections(files: FilesBackend, root: Path) -> None:
    head = await create(files)
    for number in range(3):
        head = await turn(files, head, str(number), "answer")
    before = {path: path.read_bytes() for path in projections(root)}
    assert len(before) == 5
    directory = root / "conversation_history" / str(head.id)
    (directory / "index.json").write_text('{"last_seq')
    (directory / "002.json").unlink()
    (directory / "007.json").write_text("{}")
    (directory / "notes.json").write_text("{}")
    (root / "agent_config" / f"{head.id}.json").write_text("")
    (root / "agent_config" / "unknown.json").write_text("{}")
    assert await files.rebuild_projections() == 1
    (directory / "notes.json").unlink()
    assert {path: path.read_bytes() for path in projections(root)} == before
    # The next turn rewrites it, because of the index.
    (directory / "index.json").unlink()
    (directory / "notes.json").write_text("{}")
    (directory / "9999x.json").write_text("{}")
    await turn(files, head, "four", "answer")
    index = codec.loads((directory / "index.json").read_bytes())
    assert index == {"last_sequence": 4, "total_conversations": 4}, "only numeric names are records"


def projections(root: Path) -> list[Path]:
    return [path for name in ("agent_config", "conversation_history") for path in sorted((root / name).rglob("*.json"))]


@pytest.mark.req("S0-040")
async def test_projections_are_replaced_atomically(
    files: FilesBackend, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every file is complete while another one is half written, so a crash leaves the old or the new one."""
    head = await turn(files, await create(files), "one", "two")
    write, halves = disk.write, 0

    def interrupted(file: int, content: bytes, offset: int) -> None:
        nonlocal halves
        middle = len(content) // 2
        write(file, content[:middle], offset)
        assert config(root, head)["agent_uuid"] == str(head.id)
        for path in projections(root):
            codec.loads(path.read_bytes())
        write(file, content[middle:], offset + middle)
        halves += 1

    monkeypatch.setattr(disk, "write", interrupted)
    before = config(root, head)
    head = await turn(files, head, "three", "four")
    assert halves >= 3, "agent_config, conversation_history and the index"
    assert len(config(root, head)["messages"]) == len(before["messages"]) + 2
    assert len(projections(root)) == 4


async def test_rebuild_restores_index_of_keys(files: FilesBackend, root: Path) -> None:
    head = await create(files, key="../k")
    for path in (root / "keys").iterdir():
        path.rename(path.with_name("unknown.json"))
    query = Find(Thread, (Where("project", "=", "default"), Where("key", "=", "../k")))
    assert await files.find(query) == []
    await files.rebuild_projections()
    assert await files.find(query) == [head]
    assert len(list((root / "keys").iterdir())) == 1


async def test_store_works_when_projection_fails(files: FilesBackend, root: Path) -> None:
    odd = {"tool_schemas": [7], "model": 7, "max_steps": None, "api_kwargs": []}
    head, run = await begin(files, await create(files, settings=odd), "q")
    await append(files, head, Entry(type="compaction", data={"applied": True, "keep": "nonsense", "replace": [1]}))
    head = await finish(files, await head_of(files, head.id), run, "a")
    assert head.position == 3
    other_backend = await opened(root)
    await turn(other_backend, await head_of(other_backend, head.id), "q", "a")
    assert len(await files.read(head.id, [(1, None)])) == 5
    await turn(files, await create(files), "q", "a")
    assert await files.rebuild_projections() == 1


async def test_traces_have_no_projections(files: FilesBackend, root: Path) -> None:
    await turn(files, await create(files, kind="trace"), "q", "a")
    assert not (root / "agent_config").exists()
    assert await files.rebuild_projections() == 0


@pytest.mark.req("S0-036")
async def test_edit_of_resting_thread_updates_projection(files: FilesBackend, root: Path, clock: FakeClock) -> None:
    head = await turn(files, await create(files), "q", "a")
    before = config(root, head)
    clock.advance(60)
    await files.append(Commit([ThreadEdit(head.id, {"title": "A title"})]))
    after = config(root, head)
    assert after["title"] == "A title"
    assert (before["updated_at"], after["updated_at"]) == (before["created_at"], "2026-01-01T00:01:00.000000Z")
    assert after["created_at"] == before["created_at"]


@pytest.mark.req("S0-010")
async def test_model_is_shown_without_provider(files: FilesBackend, root: Path) -> None:
    head, run = await begin(files, await create(files), "q", model="claude-sonnet-4-5", provider="anthropic")
    await finish(files, head, run, "a")
    assert config(root, head)["model"] == "claude-sonnet-4-5"
    with pytest.raises(Refused, match="model"):
        next_run(head, model="x" * 101)


async def test_close_writes_projections_of_put_records(root: Path, tmp_path: Path) -> None:
    source, target = await opened(tmp_path / "source"), await opened(root)
    await turn(source, await create(source, key="k"), "q", "a")
    for kind in (Thread, Run, Stitch):
        await target.put(await source.find(Find(kind)))
    await source.close()
    await target.close()
    assert {path.relative_to(root): path.read_bytes() for path in projections(root)} == {
        path.relative_to(tmp_path / "source"): path.read_bytes() for path in projections(tmp_path / "source")
    }
