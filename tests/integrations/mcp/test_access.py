"""Tokens, scopes and projects of the MCP server, and the purity of its output."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from lockstitch.server import Settings
from lockstitch.store import Store, open_store
from tests.cli.story import Story, write_story
from tests.integrations.mcp.sessions import on_http
from tests.server.serving import caller, serving

pytestmark = pytest.mark.anyio


@pytest.fixture
async def story(store_url: str) -> Story:
    return await write_story(store_url)


@pytest.fixture
async def store(story: Story) -> AsyncIterator[Store]:
    async with open_store(story.url) as opened:
        yield opened


async def test_token_of_other_project_finds_nothing(story: Story, store: Store) -> None:
    _, token = await store.in_project("empty").tokens.create("reader", ["read"])
    ids = [str(story.chat.id), str(story.goal.id)]
    runs = [str(story.charge.id), str(story.failed.id)]
    stitch = str((await store.stitches(story.chat, 8, 8))[0].id)
    async with serving(store, settings=Settings(tokens_needed=True)) as url, on_http(url, token) as session:
        assert (await session.call("list_threads"))["threads"] == []
        assert (await session.call("search", text="Graz"))["matches"] == []
        assert (await session.call("errors"))["failures"] == 0
        assert (await session.call("stats"))["total"]["runs"] == 0
        assert await session.rows("stats", "rows", by="agent") == []
        assert (await session.call("waiting"))["count"] == 0
        for name in ("customer-42", *ids):
            assert "NotFound" in await session.rejected("read_thread", thread=name)
            assert "NotFound" in await session.rejected("read_stitch", stitch=f"{name}:8")
            with pytest.raises(Exception, match="NotFound"):
                await session.client.read_resource(f"lockstitch://thread/{name}")
        for name in (*runs, *ids):
            assert "NotFound" in await session.rejected("run_log", run=name)
            assert "NotFound" in await session.rejected("compare_runs", a=name, b=name)
            with pytest.raises(Exception, match="NotFound"):
                await session.client.get_prompt("why_did_it_fail", {"run": name})
        assert "NotFound" in await session.rejected("read_stitch", stitch=stitch)


async def test_token_needs_scope(store: Store) -> None:
    _, reader = await store.tokens.create("reader", ["read"])
    _, sender = await store.tokens.create("sender", ["ingest"])
    _, admin = await store.tokens.create("admin", ["admin"])
    async with serving(store, settings=Settings(tokens_needed=True)) as url, caller(url) as http:
        assert (await http.post("/mcp", json={})).status_code == 401
        assert (await http.post("/mcp", json={}, headers={"Authorization": f"Bearer {sender}"})).status_code == 403
        assert (await http.get("/mcp", headers={"Authorization": f"Bearer {reader}"})).status_code == 405
        async with on_http(url, reader) as session:
            assert "sql" not in await session.tools()
            assert "Unknown tool" in await session.rejected("sql", query="SELECT 1")
        async with on_http(url, admin) as session:
            assert (await session.call("sql", query="SELECT 1 AS one"))["rows"] == [[1]]
        audits = [audit for audit in await store.audits.latest() if audit.actor == "admin"]
        assert [audit.data["query"] for audit in audits] == ["SELECT 1 AS one"]


async def test_stdout_has_only_messages_of_the_protocol(story: Story) -> None:
    client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    lines: list[Any] = [
        {"id": 1, "method": "initialize", "params": client},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "read_thread", "arguments": {"thread": "nope"}}},
        {"id": 3, "method": "tools/call", "params": {"name": "sql", "arguments": {"query": "not SQL"}}},
        {"id": 4, "method": "unknown"},
    ]
    received = await asyncio.to_thread(conversation, story.url, lines)
    assert {message["jsonrpc"] for message in received} == {"2.0"}
    assert {message.get("id") for message in received} >= {1, 2, 3, 4}


def conversation(url: str, lines: list[Any]) -> list[Any]:
    """Send lines to `lockstitch mcp`, and a line that is not JSON. Return all lines of stdout, parsed."""
    received: list[Any] = []
    with subprocess.Popen(command(url), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for line in lines:
            process.stdin.write("not JSON\n" + json.dumps({"jsonrpc": "2.0", **line}) + "\n")
            process.stdin.flush()
            # The end of stdin cancels open calls, so wait for each answer.
            while "id" in line and line["id"] not in [message.get("id") for message in received]:
                received.append(json.loads(process.stdout.readline()))
        process.stdin.close()
        received += [json.loads(line) for line in process.stdout]
    assert process.returncode == 0
    return received


def test_missing_store_and_server_are_errors(tmp_path: Path) -> None:
    missing = run(f"sqlite:///{tmp_path}/none.db")
    assert (missing.returncode, missing.stdout) == (5, "")
    assert "none.db" in missing.stderr
    remote = run("http://127.0.0.1:1")
    assert (remote.returncode, remote.stdout) == (2, "")
    assert "http://127.0.0.1:1/mcp" in remote.stderr


def run(url: str) -> "subprocess.CompletedProcess[str]":
    """Run `lockstitch mcp` until stdin ends."""
    return subprocess.run(command(url), check=False, input="", capture_output=True, text=True, timeout=120)


def command(url: str) -> list[str]:
    return [sys.executable, "-m", "lockstitch", "mcp", "--store", url]
