"""`export`: files that other programs can read."""

import asyncio
import json
import sqlite3
import zipfile
from collections.abc import Callable
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from lockstitch.errors import Refused
from lockstitch.integrations.export.bundle import import_bundle
from lockstitch.model import Stitch
from lockstitch.store import Store, open_store
from tests.cli.calling import Call
from tests.lenses import story
from tests.lenses.mirror import Mirror, research
from tests.servers import Databases


def fill(url: str, *mirrors: Mirror, folder: Path | None = None) -> None:
    async def write() -> None:
        async with open_store(url) as store:
            if folder is not None:
                await story.tell(store, folder)
            for mirror in mirrors:
                await mirror.put(store)

    asyncio.run(write())


@pytest.fixture(scope="module")
def filled_stores(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Callable[[str], str]:
    """The URL of a store with the story and an imported trace. Written once, because an export only reads."""
    urls: dict[str, str] = {}
    folder = tmp_path_factory.mktemp("filled")

    def url_of(backend: str) -> str:
        if backend not in urls:
            if backend == "postgres":
                databases: Databases = request.getfixturevalue("databases")
                url = databases.take()
                request.addfinalizer(lambda: databases.give_back(url))
            else:
                url = f"file:///{folder}/store" if backend == "files" else f"sqlite:///{folder}/store.db"
            fill(url, research(), folder=folder / backend)
            urls[backend] = url
        return urls[backend]

    return url_of


@pytest.fixture
def filled_url(filled_stores: Callable[[str], str], backend: str) -> str:
    return filled_stores(backend)


@pytest.fixture
def filled_lockstitch(call: Call, filled_url: str, monkeypatch: pytest.MonkeyPatch) -> Call:
    """`lockstitch` on a store that tests share and only read."""
    monkeypatch.setenv("LOCKSTITCH_STORE", filled_url)
    return call


def rows(path: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


JSON_COLUMNS = [
    *(("agent_runs", name) for name in ("input_messages", "output_messages", "tags", "langgraph_metadata")),
    *(("llm_calls", name) for name in ("usage_metadata", "tool_call_requests")),
    ("tool_calls", "tool_args"),
]


@pytest.mark.req("S2-037", "S2-038", "S2-039", "X2-04")
def test_lens_export_has_tables_keys_and_indexes(filled_lockstitch: Call, tmp_path: Path) -> None:
    out = tmp_path / "out.db"
    result = filled_lockstitch("export", "--lens", "langsmith", str(out), "--json")
    assert result.code == 0
    counts = {table: rows(out, f"SELECT count(*) FROM {table}")[0][0] for table in result.json["rows"]}
    assert counts == result.json["rows"]
    assert min(counts.values()) > 10
    assert rows(out, "PRAGMA foreign_key_check") == []
    assert {(row[3], row[2]) for row in rows(out, "PRAGMA foreign_key_list(tool_calls)")} == {
        ("run_id", "agent_runs"),
        ("llm_call_id", "llm_calls"),
    }
    indexed = {
        (table, column)
        for table in counts
        for index in rows(out, f"PRAGMA index_list({table})")
        for (_, _, column) in rows(out, f"PRAGMA index_info({index[1]})")
    }
    assert indexed >= {
        *(
            ("llm_calls", "run_id"),
            ("tool_calls", "run_id"),
            ("tool_calls", "llm_call_id"),
            ("tool_calls", "tool_name"),
        ),
        *(("agent_runs", "session_id"), ("agent_runs", "thread_id"), ("agent_runs", "start_time")),
    }
    assert rows(out, "SELECT json_extract(tags, '$[0]') FROM agent_runs WHERE thread_id = 'lg-7'") == [
        ("langsmith:nostream",)
    ]
    with closing(sqlite3.connect(out)) as connection:
        connection.execute("PRAGMA foreign_keys = ON")
        for table, column in JSON_COLUMNS:
            valid_json = f"json_valid({column}) AND json_extract({column}, '$') IS NOT NULL"
            values, valid = connection.execute(f"SELECT count({column}), sum({valid_json}) FROM {table}").fetchone()
            assert values == valid > 0, (table, column)
        with pytest.raises(sqlite3.IntegrityError):
            connection.execute("INSERT INTO agent_runs (run_id, tags, langgraph_metadata) VALUES (NULL, '[]', '{}')")
        for key, run, call in (
            ("NULL", "run_id", "NULL"),
            ("'new'", "'unknown'", "NULL"),
            ("'new'", "run_id", "'unknown'"),
        ):
            with pytest.raises(sqlite3.IntegrityError):
                connection.execute(
                    f"INSERT INTO tool_calls (tool_call_id, run_id, llm_call_id, is_tool_error) "
                    f"SELECT {key}, {run}, {call}, 0 FROM agent_runs LIMIT 1"
                )
        for key, run in (("NULL", "run_id"), ("'new'", "'unknown'")):
            with pytest.raises(sqlite3.IntegrityError):
                connection.execute(
                    f"INSERT INTO llm_calls (llm_call_id, run_id, tool_call_requests, error_flag) "
                    f"SELECT {key}, {run}, '[]', 0 FROM agent_runs LIMIT 1"
                )


@pytest.mark.req("S2-014", "S2-025", "S2-026")
def test_export_makes_duplicate_ids_unique_and_updates_references(
    lockstitch: Call, store_url: str, tmp_path: Path
) -> None:
    def trace(name: str) -> Mirror:
        mirror = Mirror(name).root().answers(f"{name}-l", "", ("call_0", "look", {"of": name}), call_id="msg")
        return mirror.tool(f"{name}-t", "call_0", "look", f"seen {name}")

    fill(store_url, trace("one"), trace("two"), trace("three"))
    first, second_path = tmp_path / "first.db", tmp_path / "again.db"
    assert lockstitch("export", "--lens", "langsmith", str(first), "--json").json["renamed"] == 4
    lockstitch("export", "--lens", "langsmith", str(second_path))
    query = """SELECT r.run_id, l.llm_call_id, t.tool_call_id, t.tool_response, l.tool_call_requests
               FROM agent_runs r JOIN llm_calls l ON l.run_id = r.run_id
               JOIN tool_calls t ON t.llm_call_id = l.llm_call_id AND t.run_id = r.run_id ORDER BY r.run_id"""
    found_rows = rows(first, query)
    assert [(row[0], row[3], json.loads(row[4])[0]["args"]) for row in found_rows] == [
        (name, f"seen {name}", {"of": name}) for name in ("one", "three", "two")
    ]
    keys = sorted(row[1] for row in found_rows)
    assert keys[0] == "msg"
    assert all(key.startswith("msg:") for key in keys[1:])
    assert found_rows == rows(second_path, query), "the same record gives the same keys"


@pytest.mark.req("S2-037", "S2-039", "S2-048", "X2-11", "X2-12")
def test_export_updates_file_only_with_update_option(lockstitch: Call, store_url: str, tmp_path: Path) -> None:
    out = tmp_path / "out.db"
    lone = Mirror("lone").root().answers("lone-l", "Hello.")
    fill(store_url, research(), lone)
    assert lockstitch("export", "--lens", "langsmith", str(out)).code == 0
    before = out.read_bytes()
    result = lockstitch("export", "--lens", "langsmith", str(out))
    assert (result.code, out.read_bytes()) == (2, before)
    assert "--update" in result.err

    async def change() -> None:
        async with open_store(store_url) as store:
            mirror = research()
            removed = mirror.stitches[-1].changed(type="removed", message=None, calls=None)
            named = mirror.stitches[1].changed(data={**mirror.stitches[1].data, "finish_reason": "length"})
            await store._backend.put([removed, named])
            await store.delete(lone.thread_id)

    asyncio.run(change())
    result = lockstitch("export", "--lens", "langsmith", str(out), "--update", "--json")
    assert (result.code, result.json["removed"]) == (0, 1), "the call that its run no longer has"
    trace = research().trace_id
    assert rows(out, f"SELECT finish_reason FROM llm_calls WHERE run_id = '{trace}' ORDER BY step_index") == [
        ("length",),
        ("tool_calls",),
    ]
    assert rows(out, "SELECT count(*) FROM llm_calls WHERE run_id = 'lone'") == [(1,)], "purged rows stay"


def test_export_leaves_foreign_file_unchanged(lockstitch: Call, store_url: str, tmp_path: Path) -> None:
    fill(store_url, research())
    text, other_path = tmp_path / "notes.txt", tmp_path / "other.db"
    text.write_text("Not a database. " * 100)
    with closing(sqlite3.connect(other_path)) as connection:
        connection.execute("CREATE TABLE agent_runs (run_id TEXT PRIMARY KEY, mine TEXT)")
    for path in (text, other_path):
        before = path.read_bytes()
        assert lockstitch("export", "--lens", "langsmith", str(path), "--update").code == 2
        assert path.read_bytes() == before
    assert lockstitch("export", "--lens", "langsmith", str(tmp_path / "no" / "out.db")).code == 2
    assert lockstitch("export", "--lens", "nobody", str(tmp_path / "out.db")).code == 2
    assert not list(tmp_path.glob("out.db*"))


@pytest.mark.parametrize("lens", ["three_table", "reasoning", "agentic_threads", "agno"])
def test_every_lens_can_be_exported(filled_lockstitch: Call, tmp_path: Path, lens: str) -> None:
    out = tmp_path / "out.db"
    result = filled_lockstitch("export", "--lens", lens, str(out), "--json")
    assert result.code == 0, result.err
    assert rows(out, "PRAGMA foreign_key_check") == []
    table = {"three_table": "agent_config", "agentic_threads": "stitches", "agno": "agno_sessions"}.get(lens)
    assert table is None or result.json["rows"][table] >= 10
    assert filled_lockstitch("export", "--lens", lens, str(out), "--update", "--json").json["removed"] == 0


@pytest.mark.req("S2-059")
def test_export_of_imported_trace_equals_its_source(lockstitch: Call, store_url: str, tmp_path: Path) -> None:
    mirror = research()
    fill(store_url, mirror)
    out = tmp_path / "run.json"
    assert lockstitch("export", "--run", mirror.trace_id, "--as", "langsmith", str(out)).code == 0
    runs = json.loads(out.read_text())
    assert len(runs) == len(mirror.stitches)
    root = runs[0]
    assert (root["id"], root["trace_id"], root["parent_run_id"]) == (mirror.trace_id, mirror.trace_id, None)
    stored_data = mirror.stitches[0].data
    assert {name: root[name] for name in ("inputs", "outputs", "tags", "name")} == {
        name: stored_data[name] for name in ("inputs", "outputs", "tags", "name")
    }
    assert (root["run_type"], root["start_time"], root["dotted_order"]) == (
        "chain",
        stored_data["start"],
        "20250304T1Z",
    )
    assert {run["parent_run_id"] for run in runs[1:]} == {mirror.trace_id}
    assert lockstitch("export", "--run", mirror.trace_id, str(out)).code == 2, "an existing file stays"
    piped = lockstitch("export", "--run", str(mirror.run_id), "-")
    assert json.loads(piped.out) == runs, "the id of the record works too"


@pytest.mark.req("S2-059", "S2-058")
def test_exported_native_run_can_be_imported(
    filled_lockstitch: Call, filled_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = "(SELECT run_id FROM agent_runs WHERE session_id = 'shop' AND user_id = 'ada' ORDER BY start_time LIMIT 1)"
    exported = exported_rows(filled_url, f"WHERE run_id = {first}")
    out = tmp_path / "run.json"
    filled_lockstitch("export", "--run", exported["agent_runs"][0]["run_id"], str(out))
    monkeypatch.setenv("LOCKSTITCH_STORE", f"sqlite:///{tmp_path / 'elsewhere.db'}")
    imported = filled_lockstitch("import", "langsmith", str(out), "--json")
    assert (imported.code, imported.json["llm_calls"], imported.json["tool_calls"]) == (0, 3, 2)
    reimported = exported_rows(f"sqlite:///{tmp_path / 'elsewhere.db'}", "")
    same = ("run_id", "start_time", "end_time", "status", "error", "user_id", "thread_id", "model_name", "total_tokens")
    for name in same:
        assert reimported["agent_runs"][0][name] == exported["agent_runs"][0][name], name
    assert reimported["agent_runs"][0]["total_cost"] == pytest.approx(exported["agent_runs"][0]["total_cost"])
    for name in ("llm_call_id", "step_index", "finish_reason", "model_name", "usage_metadata", "llm_output_text"):
        assert [_read(row[name]) for row in reimported["llm_calls"]] == [
            _read(row[name]) for row in exported["llm_calls"]
        ], name
    for name in ("tool_call_id", "llm_call_id", "tool_name", "tool_args", "tool_status", "tool_response"):
        assert [_read(row[name]) for row in reimported["tool_calls"]] == [
            _read(row[name]) for row in exported["tool_calls"]
        ], name


def exported_rows(url: str, where: str) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of the lens langsmith."""

    async def ask() -> dict[str, list[dict[str, Any]]]:
        async with open_store(url) as store:
            tables: dict[str, list[dict[str, Any]]] = {}
            for view, order in (("agent_runs", "run_id"), ("llm_calls", "step_index"), ("tool_calls", "tool_call_id")):
                answer = await store.sql(f"SELECT * FROM {view} {where} ORDER BY {order}", lens="langsmith")
                tables[view] = [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]
            return tables

    return asyncio.run(ask())


def _read(value: Any) -> Any:
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value


def test_bundle_export_and_import_restore_tree(filled_lockstitch: Call, filled_url: str, tmp_path: Path) -> None:
    out, second_path = tmp_path / "boss.zip", tmp_path / "again.zip"
    report = filled_lockstitch("export", "--thread", "boss", str(out), "--json").json
    assert (report["threads"], report["runs"]) == (3, 3)
    filled_lockstitch("export", "--thread", "boss", str(second_path))
    assert out.read_bytes() == second_path.read_bytes(), "the same tree, the same bytes"
    with zipfile.ZipFile(out) as bundle:
        manifest = json.loads(bundle.read("manifest.json"))
        assert {name: sha256(bundle.read(name)).hexdigest() for name in manifest["files"]} == {
            name: entry["sha256"] for name, entry in manifest["files"].items()
        }
        assert sorted(bundle.namelist()) == sorted(["manifest.json", *manifest["files"]])
    assert filled_lockstitch("export", "--thread", "boss", str(out)).code == 2

    async def both_logs() -> list[list[Stitch]]:
        async with open_store(filled_url) as here, open_store(f"sqlite:///{tmp_path / 'home.db'}") as home:
            copied = await import_bundle(home, out)
            assert (copied.threads, copied.stitches) == (report["threads"], report["stitches"])
            return [[stitch async for stitch in _log(store)] for store in (here, home)]

    here, home = asyncio.run(both_logs())
    assert [stitch.changed(log_id=None) for stitch in here] == [stitch.changed(log_id=None) for stitch in home]


def test_import_command_reads_bundle(filled_lockstitch: Call, call: Call, tmp_path: Path) -> None:
    out, home = tmp_path / "boss.zip", f"sqlite:///{tmp_path / 'home.db'}"
    report = filled_lockstitch("export", "--thread", "boss", str(out), "--json").json

    first, second = (call("import", "bundle", str(out), "--store", home, "--json").json for _ in range(2))

    assert (first["threads"], first["stitches"]) == (report["threads"], report["stitches"])
    assert (second["stitches"], second["records"]) == (0, 0)
    assert call("show", "boss", "--store", home).code == 0
    assert call("import", "bundle", str(tmp_path / "none.zip"), "--store", home).code == 3


async def _log(store: Store) -> Any:
    for thread in await store.tree("boss"):
        for run in await store.runs(thread):
            for stitch in await store.log(run.id):
                yield stitch


@pytest.mark.parametrize("trouble", ["outside", "damaged", "longer", "no zip", "no bundle"])
def test_import_rejects_invalid_bundle(tmp_path: Path, trouble: str) -> None:
    path = tmp_path / "bundle.zip"
    content, name = b"x" * 10, "../outside.txt" if trouble == "outside" else "store/a.txt"
    entry = {"sha256": sha256(b"y").hexdigest() if trouble == "damaged" else sha256(content).hexdigest()}
    manifest = {
        "format": "other" if trouble == "no bundle" else "lockstitch-bundle",
        "version": 2,
        "thread": "t",
        "files": {name: {**entry, "size": 5 if trouble == "longer" else 10}},
    }
    if trouble == "no zip":
        path.write_bytes(b"nothing")
    else:
        with zipfile.ZipFile(path, "w") as bundle:
            bundle.writestr("manifest.json", json.dumps(manifest))
            bundle.writestr(name, content)

    async def take() -> None:
        async with open_store("sqlite:///:memory:") as store:
            await import_bundle(store, path)

    with pytest.raises(Refused):
        asyncio.run(take())
    assert not (tmp_path.parent / "outside.txt").exists()


def test_export_rejects_invalid_usage(lockstitch: Call, store_url: str, tmp_path: Path) -> None:
    fill(store_url, research())
    out = str(tmp_path / "out")
    for arguments in (
        [],
        ["--lens", "agno", "--run", "x"],
        ["--run", "x", "--as", "otel"],
        ["--run", "x", "--update"],
    ):
        assert lockstitch("export", *arguments, out).code == 2
    assert lockstitch("export", "--run", "nobody", out).code == 3
    assert lockstitch("export", "--thread", "nobody", out).code == 3
    assert not Path(out).exists()
