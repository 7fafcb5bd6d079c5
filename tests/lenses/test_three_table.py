"""The lens three_table, field by field: compared with the files, and with what happened."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lockstitch.agents.agent import Agent
from lockstitch.agents.providers.scripted import Scripted
from lockstitch.agents.tools.function import tool
from lockstitch.engine.ports.provider import ModelRequest
from lockstitch.engine.ports.tool import ToolContext
from lockstitch.errors import Refused
from lockstitch.model import ERROR_TYPES, Entry, FakeClock, Json, Run, Thread, codec, parse_time
from lockstitch.store import Store, open_store
from tests.lenses.looking import look
from tests.lenses.story import Story, agent, calls, price, says

pytestmark = pytest.mark.anyio

CONFIG = "SELECT * FROM agent_config"
TURNS = "SELECT * FROM conversation_history"
LOG = "SELECT * FROM agent_runs ORDER BY log_id"


@pytest.fixture(scope="module")
def folders() -> dict[str, Path]:
    return {}


@pytest.fixture
async def folder(
    story_store: Store, backend: str, folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The same record as files, created once for each backend."""
    if backend not in folders:
        target = tmp_path_factory.mktemp(f"as-files-{backend}") / "files"
        async with open_store(f"file:///{target}") as files:
            await story_store.copy_to(files)
            await files.rebuild_files()
        folders[backend] = target
    return folders[backend]


def document(path: Path) -> Json:
    return codec.loads(path.read_bytes())


DOCUMENT = {
    "agent_config": """
        agent_uuid UUID, system_prompt TEXT, model VARCHAR(100), max_steps INTEGER, thinking_tokens INTEGER,
        max_tokens INTEGER, container_id VARCHAR(255), messages JSONB, tool_schemas JSONB, tool_names TEXT[],
        server_tools JSONB, beta_headers TEXT[], api_kwargs JSONB, formatter VARCHAR(50),
        stream_meta_history_and_tool_results BOOLEAN, compactor_type VARCHAR(50), memory_store_type VARCHAR(50),
        file_registry JSONB, extras JSONB, max_retries INTEGER, base_delay FLOAT, last_known_input_tokens INTEGER,
        last_known_output_tokens INTEGER, pending_frontend_tools JSONB, pending_backend_results JSONB,
        awaiting_frontend_tools BOOLEAN, current_step INTEGER, conversation_history JSONB, title VARCHAR(255),
        created_at TIMESTAMP, updated_at TIMESTAMP, last_run_at TIMESTAMP, total_runs INTEGER""",
    "conversation_history": """
        conversation_id UUID, agent_uuid UUID, run_id UUID, started_at TIMESTAMP, completed_at TIMESTAMP,
        user_message TEXT, final_response TEXT, messages JSONB, stop_reason VARCHAR(50), total_steps INTEGER,
        usage JSONB, generated_files JSONB, cost JSONB, extras JSONB, sequence_number INTEGER, created_at TIMESTAMP,
        input_tokens BIGINT, output_tokens BIGINT""",
    "agent_runs": """
        log_id BIGSERIAL, agent_uuid UUID, run_id UUID, timestamp TIMESTAMP, step_number INTEGER,
        action_type VARCHAR(100), action_data JSONB, messages_snapshot JSONB, messages_count INTEGER,
        estimated_tokens INTEGER, duration_ms INTEGER""",
}
"""The columns of the document. The last two of conversation_history are those of its pattern 4."""
POSTGRES = {
    "BIGSERIAL": "bigint",
    "FLOAT": "double precision",
    "TIMESTAMP": "timestamp with time zone",
    "VARCHAR": "character varying",
}
SQLITE = {"INTEGER": "integer", "BIGINT": "integer", "BIGSERIAL": "integer", "BOOLEAN": "integer", "FLOAT": "real"}
NULLABLE = {
    *("container_id", "title", "last_run_at", "completed_at", "final_response", "stop_reason"),
    *("messages_snapshot", "messages_count", "estimated_tokens", "duration_ms", "step_number"),
}


@pytest.mark.req("S0-002", "S0-003", "S0-084", "X0-10", "X0-13")
@pytest.mark.parametrize("table", DOCUMENT)
async def test_columns_are_those_of_the_document(story_store: Store, story: Story, backend: str, table: str) -> None:
    """PostgreSQL has its types. In SQLite, UUID, JSONB, TEXT[] and TIMESTAMP are text."""
    columns = dict(column.split() for column in DOCUMENT[table].replace("\n", " ").split(", "))
    answer = await story_store.sql(f"SELECT * FROM {table}", lens="three_table", limit=10_000)
    assert answer.columns == list(columns)
    if backend == "postgres":
        sql = f"""SELECT format_type(atttypid, atttypmod) FROM pg_attribute
                  WHERE attrelid = 'three_table.{table}'::regclass ORDER BY attnum"""
        types = [kind for (kind,) in (await story_store.sql(sql)).rows]
        # With a length, conditions on it could not use the index. Stitches limit it to 100 characters.
        columns.update({"action_type": "VARCHAR"} if table == "agent_runs" else {})
        expected = (POSTGRES.get(kind, kind.replace("VARCHAR(", "character varying(")) for kind in columns.values())
        assert types == [kind.lower() for kind in expected]
    else:
        kinds = ", ".join(f"typeof({name})" for name in columns)
        for row in (await story_store.sql(f"SELECT DISTINCT {kinds} FROM {table}", lens="three_table")).rows:
            for (name, kind), stored in zip(columns.items(), row, strict=True):
                assert stored in (SQLITE.get(kind, "text"), "null"), name
    for row in await look(story_store, "three_table", f"SELECT * FROM {table}"):
        assert {name for name, value in row.items() if value is None} <= NULLABLE
        times = [value for name, value in row.items() if columns[name] == "TIMESTAMP" and value]
        assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", value) for value in times)
    with pytest.raises(Refused, match="type"):
        Entry(type="t" * 101)
    # The history of a paused run is a column here. The core computes it.
    assert "conversation_history" not in {*Thread.model_fields, *Run.model_fields}


@pytest.mark.req("X0-25")
async def test_tables_of_the_same_name_are_in_separate_schemas(story_store: Store, story: Story) -> None:
    log = await story_store.sql("SELECT * FROM agent_runs", lens="three_table", limit=1)
    runs = await story_store.sql("SELECT * FROM agent_runs", lens="langsmith", limit=1)
    assert ("action_type" in log.columns, "action_type" in runs.columns) == (True, False)
    assert ("start_time" in log.columns, "start_time" in runs.columns) == (False, True)


@pytest.mark.req("S0-002", "S0-003")
async def test_agent_config_equals_files(story_store: Store, story: Story, folder: Path) -> None:
    rows = {row["agent_uuid"]: row for row in await look(story_store, "three_table", CONFIG)}
    files = {path.stem: document(path) for path in (folder / "agent_config").glob("*.json")}
    assert rows.keys() == files.keys()
    for agent_uuid, file in files.items():
        row = rows[agent_uuid]
        if agent_uuid == str(story.archived.id):
            # The messages are in the archive.
            row = {**row, "messages": file["messages"]}
        assert row == file, agent_uuid


@pytest.mark.req("S0-055", "S0-057", "S0-058", "S0-065", "X0-23")
async def test_conversation_history_equals_files(story_store: Store, story: Story, folder: Path) -> None:
    rows = {(row["agent_uuid"], row["sequence_number"]): row for row in await look(story_store, "three_table", TURNS)}
    paths = (folder / "conversation_history").glob("*/*.json")
    files = {(path.parent.name, int(path.stem)): document(path) for path in paths if path.stem.isdigit()}
    assert rows.keys() == files.keys()
    for key, file in files.items():
        # Pattern 4 of the document queries these two columns. Its files do not have them.
        tokens = {name: rows[key].pop(name) for name in ("input_tokens", "output_tokens")}
        assert tokens.items() <= file["usage"].items()
        if key[0] == str(story.archived.id):
            # The copy has no record of the turn: its stitches were archived before. See the next test.
            file = {**file, **{name: rows[key][name] for name in ("user_message", "final_response", "messages")}}
        assert rows[key] == file, key
    # Each row has the log of its run, and each run has one row.
    logs = {row["run_id"] for row in await look(story_store, "three_table", "SELECT DISTINCT run_id FROM agent_runs")}
    run_ids = [row["run_id"] for row in rows.values()]
    assert len(set(run_ids)) == len(run_ids)
    assert set(run_ids) <= logs
    assert all(row["conversation_id"] == row["run_id"] for row in rows.values())


@pytest.mark.req("S0-067", "S0-069")
async def test_cost_of_unpriced_run_is_empty(store: Store) -> None:
    unpriced = Agent("helper", model=Scripted(["Hello.", "Hello."]), title=False)
    result = await unpriced.run("Hi", store=store, thread="unpriced")
    (run,) = await store.runs("unpriced")
    assert (result.status, result.cost, result.total_cost, run.cost) == ("completed", {}, None, {"unpriced": 1})
    prices = {"scripted": {"input": 1.0, "output": 1.0}}
    priced = Agent("helper", model=Scripted(["Hello."]), title=False, prices=prices)
    assert (await priced.run("Hi", store=store, thread="priced")).cost["total_cost"] > 0
    for head, shown in (("unpriced", {}), ("priced", (await store.runs("priced"))[0].cost)):
        (turn,) = (await store.history(head)).turns
        (row,) = await look(store, "three_table", f"{TURNS} WHERE run_id = '{turn.run.id}'")
        assert row["cost"] == turn.as_json()["cost"] == shown
    assert (await store.statistics.usage()).total.unpriced == 1


@pytest.mark.req("S0-080", "S0-081", "S0-083", "S0-084", "X0-09")
async def test_agent_runs_equals_files(story_store: Store, story: Story, folder: Path, backend: str) -> None:
    rows: dict[tuple[str, str], list[Json]] = {}
    log = await look(story_store, "three_table", LOG)
    for row in log:
        if row["agent_uuid"] == str(story.archived.id):
            # The copy has its lines in an archive.
            continue
        rows.setdefault((row["agent_uuid"], row["run_id"]), []).append(row)
    # The store numbers its whole log, a file numbers its own lines. Both have the order of the run.
    numbers = [row["log_id"] for run_rows in rows.values() for row in run_rows]
    if backend != "files":
        numbers = [row["log_id"] for row in log]
    assert len(set(numbers)) == len(numbers)
    paths = [path for path in (folder / "agent_runs").glob("*/*.jsonl") if path.stem != "thread"]
    assert rows.keys() == {(path.parent.name, path.stem) for path in paths}
    for path in paths:
        lines = [codec.loads(line) for line in path.read_bytes().splitlines()]
        shown_row = rows[path.parent.name, path.stem]
        assert len(shown_row) == len(lines)
        assert [line["log_id"] for line in lines] == list(range(1, len(lines) + 1))
        assert [line["position"] for line in lines] == sorted(line["position"] for line in lines)
        for row, line in zip(shown_row, lines, strict=True):
            for name in ("agent_uuid", "run_id", "timestamp", "step_number", "action_type"):
                assert row[name] == line[name]
            for name in ("messages_count", "estimated_tokens", "duration_ms"):
                assert row[name] == line.get(name)
            action_data = {name: value for name, value in row["action_data"].items() if name != "messages_sent"}
            assert {**line.get("data", {}), **line["action_data"], **_nulls(action_data)} == action_data


def _nulls(action_data: Json) -> Json:
    """Return the values that a line of a file omits, because they are null."""
    return {name: value for name, value in action_data.items() if value is None}


PATTERN_3 = """SELECT timestamp, step_number, action_type, action_data, duration_ms
FROM agent_runs
WHERE run_id = 'run-001'
ORDER BY timestamp ASC;"""
PATTERN_4 = """SELECT agent_uuid, AVG(input_tokens + output_tokens) as avg_tokens
FROM conversation_history
WHERE started_at > NOW() - INTERVAL '7 days'
GROUP BY agent_uuid;"""
NAMES = {"llm_call": "api_response_received", "tool_call": "tool_execution", **dict.fromkeys(ERROR_TYPES, "error")}


@pytest.mark.req("S0-147", "S0-082", "S0-091", "X0-11")
async def test_pattern_3_of_document_shows_log_in_order(story_store: Store, story: Story) -> None:
    heads = (story.shop, story.paused, story.continued, story.compacted, story.boss, story.cancelled, story.everything)
    runs = [run for head in heads for run in await story_store.runs(head)]
    for run in runs:
        rows = await look(story_store, "three_table", PATTERN_3.replace("run-001", str(run.id)))
        log = await story_store.log(run.id)
        assert [row["action_type"] for row in rows] == [NAMES.get(stitch.type, stitch.type) for stitch in log]
        times = [row["timestamp"] for row in rows]
        assert times == sorted(set(times))


@pytest.mark.req("S0-148", "X0-01")
async def test_pattern_4_of_document_averages_tokens(story_store: Store, story: Story, backend: str) -> None:
    sql = PATTERN_4
    if backend != "postgres":
        sql = sql.replace("NOW() - INTERVAL '7 days'", "strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-7 days')")
    averages = {row["agent_uuid"]: row["avg_tokens"] for row in await look(story_store, "three_table", sql)}
    assert averages[str(story.shop.id)] == pytest.approx((2305 + 350 + 230) / 3)
    for row in await look(story_store, "three_table", TURNS):
        assert (row["input_tokens"], row["output_tokens"]) == (
            row["usage"]["input_tokens"],
            row["usage"]["output_tokens"],
        )


@pytest.mark.req("S0-092", "S0-093", "S0-102", "S0-103")
async def test_log_shows_time_and_content_of_every_action(timed_store: Store, clock: FakeClock) -> None:
    """A model call takes two seconds, a tool one. The last response is in one commit with the end of the run."""

    @tool(effect="safe")
    def weigh(what: str, ctx: ToolContext) -> str:
        """Weigh."""
        clock.advance(1.0)
        ctx.save_file("scale.csv", b"3", file_id="file_scale")
        return f"{what}: 3"

    def reply(request: ModelRequest) -> Json:
        clock.advance(2.0)
        if request.step == 1:
            return {"calls": [{"name": "weigh", "input": {"what": "tea"}}], "text": "Wait."}
        return {"fail": "overloaded", "times": 1, "text": "It weighs 3."}

    helper = Agent("helper", model=Scripted(reply), tools=[weigh], log="full", title=False, base_delay=0.0)
    began = clock.now()
    result = await helper.run("What does it weigh?", store=timed_store, thread="t")
    rows = await look(timed_store, "three_table", PATTERN_3.replace("run-001", str(result.run_id)))
    seconds = [
        (row["action_type"], round((parse_time(row["timestamp"]) - began).total_seconds(), 2))
        for row in rows
        if row["action_type"] not in ("compaction", "context_transformation")
    ]
    assert seconds == [
        *(("run_started", 0), ("input", 0), ("api_call_started", 0), ("api_response_received", 2)),
        *(("file_generated", 3), ("tool_execution", 3), ("api_call_started", 3), ("api_retry", 5)),
        *(("api_response_received", 7), ("run_completed", 7)),
    ]
    action_data = {row["action_type"]: row["action_data"] for row in rows}
    assert action_data["run_started"]["user_message"] == "What does it weigh?"
    started = action_data["run_started"]
    assert (started["queue_present"], started["formatter"], rows[0]["step_number"]) == (False, "json", 0)
    executed = action_data["tool_execution"]
    context = await timed_store.context("t")
    assert executed == {
        "tool_name": "weigh",
        "tool_use_id": context[1]["content"][1]["id"],
        "input": {"what": "tea"},
        "result": "tea: 3",
        "success": True,
        "execution_time_ms": 1000,
        "files": [{"file_id": "file_scale", "filename": "scale.csv"}],
    }
    calls_started = [row["action_data"] for row in rows if row["action_type"] == "api_call_started"]
    sent_messages = [call.pop("messages_sent") for call in calls_started]
    assert sent_messages == [context[:1], context[:3]]
    request = {"model": "scripted", "max_tokens": 2048, "thinking_tokens": 0, "tools_count": 1}
    assert calls_started == [request, request]
    answers = [row["action_data"] for row in rows if row["action_type"] == "api_response_received"]
    assert [answer["stop_reason"] for answer in answers] == ["tool_use", "end_turn"]
    assert [answer["content"] for answer in answers] == [context[1]["content"], context[3]["content"]]
    names = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    assert all(answer["usage"].keys() == set(names) for answer in answers)
    completed = action_data["run_completed"]
    assert completed == {
        "stop_reason": "end_turn",
        "total_steps": 2,
        "final_response": "It weighs 3.",
        "total_input_tokens": sum(answer["usage"]["input_tokens"] for answer in answers),
        "total_output_tokens": sum(answer["usage"]["output_tokens"] for answer in answers),
        "files_generated": 1,
    }
    durations = {row["action_type"]: row["duration_ms"] for row in rows}
    assert (durations["tool_execution"], durations["run_completed"]) == (1000, 7000)
    assert [row["duration_ms"] for row in rows if row["action_type"] == "api_response_received"] == [2000, 4000]


@pytest.mark.req("S0-106")
async def test_result_of_code_execution_is_an_object(store: Store) -> None:
    result = {"stdout": "ok", "stderr": "", "return_code": 0, "files": [{"file_id": "file_1", "filename": "a.png"}]}

    @tool(effect="safe")
    def bash_code_execution(command: str) -> Json:
        """Run a command."""
        return result

    calls = [{"name": "bash_code_execution", "input": {"command": "plot"}}]
    agent = Agent("helper", model=Scripted([{"calls": calls}, "Done."]), tools=[bash_code_execution], title=False)
    await agent.run("Plot it.", store=store, thread="t")
    query = "SELECT action_data, duration_ms FROM agent_runs WHERE action_type = 'tool_execution'"
    (row,) = await look(store, "three_table", query)
    executed = row["action_data"]
    (block,) = (await store.context("t"))[2]["content"]
    assert executed == {
        "tool_name": "bash_code_execution",
        "tool_use_id": block["tool_use_id"],
        "input": {"command": "plot"},
        "result": result,
        "success": True,
        "execution_time_ms": row["duration_ms"],
    }
    assert codec.loads(block["content"]) == result, "the model gets a text"


@pytest.mark.req("S0-092", "S0-093", "S0-087", "S0-080")
async def test_lines_of_files_repeat_content_of_other_lines(tmp_path: Path) -> None:
    @tool(effect="safe")
    def weigh(what: str) -> str:
        """Weigh."""
        return f"{what}: 3"

    tool_call = {"name": "weigh", "input": {"what": "tea"}}
    helper = Agent("helper", model=Scripted([{"calls": [tool_call]}, "It weighs 3."]), tools=[weigh], title=False)
    async with open_store(f"file:///{tmp_path}") as store:
        result = await helper.run("What does it weigh?", store=store, thread="t")
        path = tmp_path / "agent_runs" / str(result.thread_id) / f"{result.run_id}.jsonl"
        lines = [codec.loads(line) for line in path.read_bytes().splitlines()]
        stitches = await store.stitches("t")
    action_data = {line["action_type"]: line["action_data"] for line in lines}
    started = action_data["run_started"]
    assert (started["user_message"], started["queue_present"], started["formatter"]) == (
        *("What does it weigh?", False, "json"),
    )
    executed = action_data["tool_execution"]
    assert executed.keys() == {"tool_name", "tool_use_id", "input", "result", "success", "execution_time_ms"}
    assert (executed["tool_name"], executed["input"], executed["result"], executed["success"]) == (
        *("weigh", {"what": "tea"}, "tea: 3", True),
    )
    completed = action_data["run_completed"]
    assert (completed["final_response"], completed["stop_reason"]) == ("It weighs 3.", "end_turn")
    assert (completed["total_steps"], completed["files_generated"]) == (2, 0)
    assert completed["total_input_tokens"] == result.usage["input_tokens"] > 0
    assert completed["total_output_tokens"] == result.usage["output_tokens"] > 0
    assert lines[-1]["duration_ms"] is not None
    assert [line["log_id"] for line in lines] == list(range(1, 7))
    # They are not part of the stitches.
    assert all(stitch.data.keys().isdisjoint({"user_message", "input", "final_response"}) for stitch in stitches)


@pytest.mark.req("S0-030", "S0-031", "S0-032", "S0-033", "S0-034")
async def test_agent_config_shows_wait_for_frontend_tools(story_store: Store, story: Story) -> None:
    rows = {row["agent_uuid"]: row for row in await look(story_store, "three_table", CONFIG)}
    paused = rows[str(story.paused.id)]
    assert paused["awaiting_frontend_tools"] is True
    assert paused["pending_frontend_tools"] == [
        {"tool_use_id": "call_2_1_0", "name": "confirm", "input": {"question": "Sure?"}},
        {"tool_use_id": "call_2_1_2", "name": "confirm", "input": {"question": "Really?"}},
    ]
    assert [result["tool_use_id"] for result in paused["pending_backend_results"]] == ["call_2_1_1"]
    assert paused["current_step"] == 1
    question, calls, results = paused["conversation_history"]
    assert (question["content"], calls["role"], len(results["content"])) == ("I want rum.", "assistant", 1)
    # Not before all are present.
    assert paused["messages"][-1]["role"] == "assistant"
    for head in (story.continued, story.shop, story.cancelled):
        row = rows[str(head.id)]
        assert (row["awaiting_frontend_tools"], row["current_step"]) == (False, 0)
        assert row["pending_frontend_tools"] == row["pending_backend_results"] == row["conversation_history"] == []


@pytest.mark.req("S0-025", "S0-027", "S0-035", "S0-036", "S0-037")
async def test_agent_config_shows_settings_of_chat(story_store: Store, story: Story) -> None:
    (row,) = await look(story_store, "three_table", f"{CONFIG} WHERE agent_uuid = '{story.shop.id}'")
    assert (row["title"], row["total_runs"], row["api_kwargs"]) == ("Prices of drinks", 3, {"temperature": 0.5})
    assert row["server_tools"] == [{"type": "web_search_20250305", "name": "web_search"}]
    head = await story_store.thread(story.shop)
    (chart,) = row["file_registry"].items()
    runs = {run.turn: run for run in await story_store.runs(head)}
    assert (chart[0], chart[1]["filename"]) == ("file_chart", "chart.png")
    assert chart[1]["created_in_run"] == chart[1]["last_updated_run"] == str(runs[2].id)
    fields = head.as_json()
    assert (row["created_at"], row["updated_at"], row["last_run_at"]) == (
        fields["created_at"],
        fields["updated_at"],
        fields["last_run_at"],
    )


@pytest.mark.req("S0-060", "S0-063", "S0-064", "S0-073", "X0-19")
async def test_finished_turns_are_shown_with_any_outcome(story_store: Store, story: Story) -> None:
    rows = await look(story_store, "three_table", f"{TURNS} ORDER BY sequence_number")

    def of(head: Any) -> list[tuple[Any, ...]]:
        names = ("sequence_number", "user_message", "final_response", "stop_reason", "total_steps")
        return [tuple(row[name] for name in names) for row in rows if row["agent_uuid"] == str(head.id)]

    assert of(story.shop) == [
        (1, "What do tea and coffee cost?", "Tea costs 3, coffee 6.", "end_turn", 2),
        (2, "Draw it.", "One of them broke.", "end_turn", 2),
        (3, "Thank you.", "Good bye.", "end_turn", 1),
    ]
    assert of(story.paused) == [(1, "Hello?", "Hello.", "end_turn", 1)]
    assert of(story.failed) == [(1, "Can you?", None, "error", 0)]
    ((_, question, answer, stopped, _),) = of(story.cancelled)
    assert (question, answer, stopped) == ("Ask somebody", None, "cancelled")
    assert [(number, stopped) for number, _, _, stopped, _ in of(story.everything)] == [
        (1, "end_turn"),
        (2, "max_steps"),
        (3, "error"),
    ]
    assert of(story.archived) == [(1, "Something old", "Done long ago.", "end_turn", 2)]


@pytest.mark.req("S0-153", "S0-061", "S0-147")
async def test_archived_run_is_unpacked(store: Store) -> None:
    """The tables show the same rows before and after, except the messages that were sent."""
    helper = agent("helper", [calls(("price", {"of": "tea"})), says("It costs 3.")], tools=[price], log="full")
    head = await helper.start(store=store, goal="Find the price", key="old")
    await helper.resume("old", store=store)
    turns, log = await look(store, "three_table", TURNS), await look(store, "three_table", LOG)
    assert [row["action_type"] for row in log][:2] == ["run_started", "input"]
    assert await store.archive(store.clock.now() + timedelta(seconds=1)) == 1
    assert (await store.thread(head)).first_position > 1
    assert await look(store, "three_table", TURNS) == turns
    for row in log:
        row["messages_snapshot"] = None
        row["action_data"].pop("messages_sent", None)
    assert await look(store, "three_table", LOG) == log
    run_id = log[0]["run_id"]
    assert [row["action_type"] for row in await look(store, "three_table", PATTERN_3.replace("run-001", run_id))] == [
        row["action_type"] for row in log
    ]
    assert not await look(store, "three_table", PATTERN_3.replace("run-001", str(head.id)))


@pytest.mark.req("S0-059")
async def test_user_message_is_the_text_of_the_prompt(store: Store) -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    blocks = [{"type": "text", "text": "Look "}, image, {"type": "text", "text": "here."}]
    helper = agent("helper", *[[says("I see.")]] * 3)
    for prompt in ("Plain", blocks, [image]):
        await helper.run(prompt, store=store, thread="t")
    rows = await look(store, "three_table", f"{TURNS} ORDER BY sequence_number")
    assert [row["user_message"] for row in rows] == ["Plain", "Look here.", ""]
    assert [turn.user_message for turn in (await store.history("t")).turns] == ["", "Look here.", "Plain"]


@pytest.mark.req("S0-060", "X0-21")
async def test_final_response_is_the_text_after_the_last_tool_block(store: Store) -> None:
    search = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
    found = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}
    blocks = [{"type": "text", "text": "Let me look."}, search, found, {"type": "text", "text": "It is "}]
    blocks.append({"type": "text", "text": "3."})
    helper = agent("helper", [calls(("price", {"of": "tea"}), text="Wait."), {"blocks": blocks}], tools=[price])
    result = await helper.run("What?", store=store, thread="t")
    (row,) = await look(store, "three_table", TURNS)
    assert row["messages"][-1]["content"] == blocks
    assert row["final_response"] == result.output_text == "It is 3."
    assert (await store.history("t")).turns[0].final_response == "It is 3."


@pytest.mark.req("S0-067", "S0-072", "X0-16")
async def test_cost_of_turn_is_shown(story_store: Store, story: Story) -> None:
    (row,) = await look(
        story_store, "three_table", f"{TURNS} WHERE agent_uuid = '{story.shop.id}' AND sequence_number = 1"
    )
    # 1000 and 1200 of the loop, 10 and 5 of the title.
    assert row["usage"] == {
        "input_tokens": 2210,
        "output_tokens": 95,
        "cache_creation_input_tokens": 200,
        "cache_read_input_tokens": 400,
    }
    assert row["cost"]["total_cost"] == pytest.approx((1610 * 2 + 200 * 2.5 + 400 * 0.2 + 95 * 10) / 1_000_000)
    assert row["cost"].keys() >= {
        *("input_cost", "output_cost", "cache_write_cost", "cache_read_cost", "total_cost", "total_input_tokens"),
        *("total_output_tokens", "total_cache_creation_tokens", "total_cache_read_tokens", "model_id"),
        *("long_context_applied", "currency"),
    }
    parts = ("input_cost", "output_cost", "cache_write_cost", "cache_read_cost")
    assert sum(row["cost"][part] for part in parts) == pytest.approx(row["cost"]["total_cost"])
    assert (row["cost"]["model_id"], row["cost"]["currency"]) == ("scripted", "USD")
    totals = ("input_tokens", "output_tokens", "cache_creation_tokens", "cache_read_tokens")
    assert [row["cost"][f"total_{name}"] for name in totals] == [2210, 95, 200, 400]
    assert row["extras"] == {"credits": 42}
    rest = await look(story_store, "three_table", f"{TURNS} WHERE agent_uuid = '{story.shop.id}'")
    assert [other["extras"] for other in rest if other["sequence_number"] > 1] == [{}, {}]


@pytest.mark.req("S0-085")
async def test_messages_of_request_are_computed_at_query_time(story_store: Store, story: Story) -> None:
    """At the full level. The log has compactions, and requests before and after them."""
    rows = [row for row in await look(story_store, "three_table", LOG) if row["agent_uuid"] == str(story.everything.id)]
    snapshots = [row for row in rows if row["action_type"] == "api_call_started"]
    log = await story_store.stitches(story.everything)
    model_calls = [stitch for stitch in log if stitch.type == "llm_call" and stitch.data.get("request")]
    assert len(snapshots) >= 8
    assert all(row["action_data"]["messages_sent"] == row["messages_snapshot"] for row in snapshots)
    sent_messages = [(await story_store.request(stitch.id))["messages"] for stitch in model_calls]
    row_messages = [row["messages_snapshot"] for row in snapshots]
    assert all(messages in row_messages for messages in sent_messages)
    assert all(row["messages_snapshot"] is None for row in rows if row not in snapshots)


@pytest.mark.req("S0-056", "S0-006")
async def test_deleted_thread_is_in_no_table(store: Store) -> None:
    await agent("helper", [says("Here.")]).run("There?", store=store, thread="gone")
    for table in ("agent_config", "conversation_history", "agent_runs"):
        assert await look(store, "three_table", f"SELECT agent_uuid FROM {table}")
    await store.delete("gone")
    for table in ("agent_config", "conversation_history", "agent_runs"):
        assert not await look(store, "three_table", f"SELECT agent_uuid FROM {table}")


@pytest.mark.req("S0-009", "S0-010")
async def test_imported_traces_are_not_shown(store: Store) -> None:
    await store.create(kind="trace", key="theirs")
    thread = await store.create(key="mine")
    (row,) = await look(store, "three_table", CONFIG)
    assert (row["agent_uuid"], row["system_prompt"], row["model"]) == (str(thread.id), "", "")
    for kind in ("goal", "task"):
        await store.create(kind=kind, goal="g", key=kind, settings={"model": "anthropic:claude-sonnet-4-5"})
    models = {row["model"] for row in await look(store, "three_table", CONFIG) if row["agent_uuid"] != str(thread.id)}
    assert models == {"claude-sonnet-4-5"}
    await store.delete("goal")
    await store.delete("task")
    assert [row["id"] for row in await look(store, "agentic_threads", "SELECT id FROM threads")] == [str(thread.id)]


async def test_settings_of_other_writers_do_not_break_view(store: Store) -> None:
    odd = {"max_steps": "many", "max_tokens": 1e300, "model": 5, "tool_schemas": {}, "server_tools": None, "texts": []}
    await store.create(settings=odd, extras={"a": "\x00"})
    (row,) = await look(store, "three_table", "SELECT max_steps, server_tools, tool_names, model FROM agent_config")
    assert row == {"max_steps": 50, "server_tools": [], "tool_names": [], "model": "5"}
