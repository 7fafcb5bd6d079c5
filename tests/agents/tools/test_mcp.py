"""MCP servers as a source of tools: real servers in separate processes, over stdio and HTTP."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from lockstitch.agents.tools.mcp import McpServer
from lockstitch.engine.ports.tool import Tool, ToolFailed
from lockstitch.errors import Refused
from tests.agents.tools.calling import CONTEXT, call
from tests.agents.tools.nursery import SCRIPT, Nursery, is_alive, killed

pytestmark = pytest.mark.anyio

BY_HAND = str(Path(__file__).with_name("mcp_by_hand.py"))
PATIENCE = 60.0
"""Seconds after which a test fails."""


@pytest.fixture(scope="module")
async def tools(anyio_backend: str) -> AsyncIterator[dict[str, Tool]]:
    """The tools of a server that is started once, for tests that only call them."""
    server = started()
    async with asyncio.timeout(PATIENCE):
        offered = await tools_of(server)
    yield offered
    await server.close()


def started(**options: Any) -> McpServer:
    return McpServer.stdio(sys.executable, [SCRIPT], **options)


def by_hand(mode: str, *args: object, **options: Any) -> McpServer:
    return McpServer.stdio(sys.executable, [BY_HAND, mode, *map(str, args)], **options)


@asynccontextmanager
async def closing(server: McpServer) -> AsyncIterator[McpServer]:
    try:
        async with asyncio.timeout(PATIENCE):
            yield server
    finally:
        await server.close()


async def tools_of(server: McpServer) -> dict[str, Tool]:
    return {tool.name: tool for tool in await server.tools()}


async def pid_of(tools: dict[str, Tool]) -> int:
    """Return the id of the process that answers."""
    return int((await call(tools["tool0"])).removeprefix("tool0 by "))


class Held:
    """The listener of the tool `hold`. It reports the start of the call, and the test ends the call."""

    def __init__(self) -> None:
        self._arrived: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
        self._writers: list[asyncio.StreamWriter] = []
        self.port = 0

    async def __aenter__(self) -> "Held":
        self._server = await asyncio.start_server(self._arrive, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *problem: object) -> None:
        self._server.close()
        for writer in self._writers:
            writer.close()
        await self._server.wait_closed()

    def _arrive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        self._arrived.put_nowait((reader, writer))

    async def begun(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await self._arrived.get()


def url(port: int) -> str:
    return f"http://127.0.0.1:{port}/mcp"


# Tools


async def test_tools_match_description_of_server(tools: dict[str, Tool]) -> None:
    assert tools["add"].description == "Add two numbers."
    assert set(tools["add"].input_schema["properties"]) == {"a", "b"}
    assert tools["send"].description == "Send a letter"
    assert tools["add"].side == "backend"


async def test_hints_become_effects(tools: dict[str, Tool]) -> None:
    effects = [tools[name].effect for name in ("add", "put", "send", "weather")]
    assert effects == ["safe", "keyed", "once", "once"]
    assert {tool.approval for tool in tools.values()} == {False}


async def test_effects_option_replaces_hints(web: Nursery) -> None:
    options: Any = {
        "prefix": "test_",
        "only": ["add", "send", "files.read"],
        "effects": {"send": "keyed", "add": "once"},
        "approval": ["files.read"],
        "on_doubt": "ask",
        "timeout": PATIENCE,
    }
    async with web.server() as (port, _), closing(McpServer.http(url(port), **options)) as server:
        tools = await tools_of(server)
        assert await call(tools["test_files_read"], path="a") == "read a"
    assert sorted(tools) == ["test_add", "test_files_read", "test_send"]
    assert [tools[f"test_{name}"].effect for name in ("add", "send", "files_read")] == ["once", "keyed", "once"]
    assert [tools[f"test_{name}"].approval for name in ("add", "send", "files_read")] == [False, False, True]
    assert {(tool.timeout, tool.on_doubt) for tool in tools.values()} == {(PATIENCE, "ask")}


async def test_all_tools_can_need_approval() -> None:
    async with closing(by_hand("strict", approval=True)) as server:
        assert all(tool.approval for tool in await server.tools())


@pytest.mark.parametrize("option", [{"only": ["tol1"]}, {"effects": {"tol1": "safe"}}, {"approval": ["tol1"]}])
async def test_rejects_misspelt_tool_name(option: Any) -> None:
    async with closing(by_hand("strict", **option)) as server:
        with pytest.raises(Refused, match=r"has no tool tol1\. Tools: tool0, tool1, "):
            await server.tools()


async def test_rejects_unknown_effect() -> None:
    effects: Any = {"add": "sometimes"}
    with pytest.raises(Refused, match="safe, keyed, once"):
        started(effects=effects)


async def test_reads_all_pages_of_tool_list_after_legacy_handshake() -> None:
    async with closing(by_hand("strict")) as server:
        tools = await tools_of(server)
        assert sorted(tools) == ["tool0", "tool1", "tool2", "tool3", "tool4"]
        first = await call(tools["tool4"])
        assert first.startswith("tool4 by ")
        assert (await call(tools["tool0"])).split()[-1] == first.split()[-1]


async def test_rejects_endless_tool_list() -> None:
    async with closing(by_hand("endless")) as server:
        with pytest.raises(Refused, match="list of tools has more than 100 pages"):
            await server.tools()


async def test_server_without_tools_offers_none() -> None:
    async with closing(by_hand("bare")) as server:
        assert await server.tools() == []


# Results


async def test_results_become_text_or_blocks(tools: dict[str, Tool]) -> None:
    assert await call(tools["add"], a=1, b=2) == "3"
    assert await call(tools["put"], name="ü\n„x“") == "put ü\n„x“"
    assert await call(tools["only_structured"], city="Oslo") == '{"city":"Oslo","big":1152921504606846976}'
    assert '"degrees": 21.5' in await call(tools["weather"], city="Oslo")
    assert await call(tools["nothing"]) == ""
    source = {"type": "base64", "media_type": "image/png", "data": "cG5n"}
    assert await call(tools["picture"]) == [{"type": "image", "source": source}]


async def test_describes_content_that_models_cannot_see(tools: dict[str, Tool]) -> None:
    blocks = await call(tools["everything"])
    assert blocks == [
        {"type": "text", "text": "Look:"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": "aW1n"}},
        {"type": "text", "text": "[an image, image/svg+xml, 3 bytes: it cannot be shown here]"},
        {"type": "text", "text": "[a sound, audio/wav, 3 bytes: it cannot be shown here]"},
        {"type": "text", "text": "notes: Notes\nfile:///notes.txt"},
        {"type": "text", "text": "a text"},
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "cGRm"},
            "title": "file:///a.pdf",
        },
        {"type": "text", "text": "a,b"},
        {"type": "text", "text": "[file:///a.bin, of unknown type, 3 bytes: it cannot be shown here]"},
    ]


async def test_failures_have_message_of_tool(tools: dict[str, Tool]) -> None:
    with pytest.raises(ToolFailed, match="no more paper"):
        await call(tools["fail"], why="no more paper")
    with pytest.raises(ToolFailed, match="failed without a message"):
        await call(tools["fail_silently"])
    with pytest.raises(ToolFailed, match="integer"):
        await call(tools["add"], a="one", b=2)
    assert await call(tools["add"], a=1, b=2) == "3"


async def test_protocol_errors_fail_call_and_keep_process() -> None:
    async with closing(by_hand("strict")) as server:
        tools = await tools_of(server)
        before = await call(tools["tool0"])
        with pytest.raises(ToolFailed, match="rejected the call: not today"):
            await call(tools["tool0"], code=-32602)
        with pytest.raises(ToolFailed, match="returned no result: not today") as failure:
            await call(tools["tool0"], code=-32000)
        assert failure.value.unknown
        with pytest.raises(ToolFailed, match="rejected the call: not today"):
            await call(tools["tool0"], code=-32600)
        with pytest.raises(ToolFailed, match="cannot be used"):
            await call(tools["tool0"], nonsense=True)
        assert await call(tools["tool0"]) == before


async def test_sends_idempotency_key(tools: dict[str, Tool]) -> None:
    assert await call(tools["key"]) == CONTEXT.key


async def test_server_gets_only_its_own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OUR_SECRET", "secret")
    async with closing(by_hand("strict", env={"THEIRS": "yes"}, cwd=tmp_path)) as server:
        tools = await tools_of(server)
        assert await call(tools["tool0"], variable="THEIRS") == f"yes in {tmp_path.resolve()}"
        assert (await call(tools["tool0"], variable="OUR_SECRET")).startswith("None")


# The connection


async def test_connects_once_for_many_first_callers() -> None:
    async with closing(by_hand("strict")) as server:
        tool_lists = await asyncio.gather(*(tools_of(server) for _ in range(5)))
        answers = await asyncio.gather(*(call(tools["tool0"]) for tools in tool_lists for _ in range(10)))
    assert len(set(answers)) == 1


async def test_parallel_calls_get_their_own_answers(tools: dict[str, Tool]) -> None:
    sums = await asyncio.gather(*(call(tools["add"], a=number, b=1) for number in range(50)))
    assert sums == [str(number + 1) for number in range(50)]


async def test_calls_do_not_wait_for_each_other(tools: dict[str, Tool]) -> None:
    async with asyncio.timeout(PATIENCE), Held() as held:
        waiting = [asyncio.create_task(call(tools["hold"], port=held.port)) for _ in range(3)]
        writers = [(await held.begun())[1] for _ in waiting]
        assert await call(tools["add"], a=1, b=2) == "3"
        for number, writer in enumerate(writers):
            writer.write(f"{number}\n".encode())
        assert sorted(await asyncio.gather(*waiting)) == ["0", "1", "2"]


async def test_cancelled_call_is_cancelled_on_server_without_effect_on_others(tools: dict[str, Tool]) -> None:
    async with asyncio.timeout(PATIENCE), Held() as held:
        process = await call(tools["pid"])
        cancelled = asyncio.create_task(call(tools["hold"], port=held.port))
        reader, _ = await held.begun()
        other_task = asyncio.create_task(call(tools["hold"], port=held.port))
        _, writer = await held.begun()
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert await reader.read() == b"", "the server ended the call as well"
        writer.write(b"done\n")
        assert await other_task == "done"
        assert await call(tools["pid"]) == process


async def test_cancelled_caller_leaves_connection_to_others() -> None:
    async with closing(by_hand("strict")) as server:
        first = asyncio.create_task(server.tools())
        second = asyncio.create_task(server.tools())
        await asyncio.sleep(0)
        first.cancel()
        assert await second
        assert first.cancelled()


async def test_connection_survives_end_of_first_task() -> None:
    async with closing(by_hand("strict")) as server:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(tools_of(server))
        async with asyncio.TaskGroup() as group:
            answer = group.create_task(call(task.result()["tool0"]))
        assert answer.result().startswith("tool0 by ")
        await asyncio.create_task(server.close())
        assert (await call(task.result()["tool0"])).startswith("tool0 by ")


async def test_close_ends_process_and_next_use_reconnects() -> None:
    async with closing(by_hand("strict")) as server:
        await server.close()
        tools = await tools_of(server)
        first = await pid_of(tools)
        assert is_alive(first)
        await server.close()
        await server.close()
        assert not is_alive(first)
        second = await pid_of(tools)
        assert second != first
        assert is_alive(second)
    assert not is_alive(second)


async def test_close_before_process_starts() -> None:
    async with closing(by_hand("hang")) as server:
        waiting = asyncio.create_task(server.tools())
        await asyncio.sleep(0)
        await server.close()
        with pytest.raises(Refused, match="was closed"):
            await waiting


async def test_close_while_connecting_ends_process() -> None:
    async with Held() as held, closing(by_hand("hang", held.port)) as server:
        waiting = asyncio.create_task(server.tools())
        reader, _ = await held.begun()
        await server.close()
        with pytest.raises(Refused, match="was closed"):
            await waiting
        assert await reader.read() == b""


async def test_close_fails_open_call() -> None:
    async with closing(started()) as server, Held() as held:
        tools = await tools_of(server)
        waiting = asyncio.create_task(call(tools["hold"], port=held.port))
        await held.begun()
        await server.close()
        with pytest.raises(ToolFailed) as failure:
            await waiting
        assert failure.value.unknown


async def test_server_killed_in_mid_call_fails_call_and_restarts() -> None:
    async with closing(by_hand("strict")) as server, Held() as held:
        tools = await tools_of(server)
        process = await pid_of(tools)
        lost = [asyncio.create_task(call(tools["tool0"], hold=held.port)) for _ in range(2)]
        for _ in lost:
            await held.begun()
        os.kill(process, signal.SIGKILL)
        for waiting in lost:
            with pytest.raises(ToolFailed, match="lost during the call") as failure:
                await waiting
            assert failure.value.unknown
        assert await pid_of(tools) != process
        assert not is_alive(process)


async def test_error_contains_last_output_of_server() -> None:
    async with closing(by_hand("strict")) as server:
        tools = await tools_of(server)
        with pytest.raises(ToolFailed, match="I am out of memory"):
            await call(tools["tool0"], last_words="I am out of memory")


async def test_restarts_server_that_died_between_calls() -> None:
    async with closing(by_hand("strict")) as server:
        tools = await tools_of(server)
        (connection,) = server._connections.values()
        first = await pid_of(tools)
        os.kill(first, signal.SIGKILL)
        while not connection.over:  # noqa: ASYNC110, no event reports this
            await asyncio.sleep(0.01)
        assert await pid_of(tools) != first


def test_works_on_several_event_loops() -> None:
    server = by_hand("strict")

    async def use(tools: dict[str, Tool] | None) -> tuple[dict[str, Tool], int]:
        available = tools or await tools_of(server)
        return available, await pid_of(available)

    tools, first = asyncio.run(use(None))
    assert not is_alive(first), "the loop's end ends the process"
    _, second = asyncio.run(use(tools))
    assert second != first
    asyncio.run(server.close())


# Unusable servers


async def test_reports_missing_command() -> None:
    server = McpServer.stdio("no-such-command-here", ["--token=secret"])
    async with closing(server):
        with pytest.raises(Refused, match="no-such-command-here cannot be started") as caught:
            await server.tools()
    assert "secret" not in str(caught.value)


async def test_reports_missing_folder(tmp_path: Path) -> None:
    async with closing(by_hand("strict", cwd=tmp_path / "none")) as server:
        with pytest.raises(Refused, match="cannot be started"):
            await server.tools()


async def test_reports_output_of_server_that_ends_at_once() -> None:
    async with closing(by_hand("crash")) as server:
        with pytest.raises(Refused, match=r"ended before it was ready(.|\n)*API_KEY is missing"):
            await server.tools()


@pytest.mark.parametrize("mode", ["babble", "echo"])
async def test_rejects_program_that_is_not_a_server(mode: str) -> None:
    async with closing(by_hand(mode)) as server:
        with pytest.raises(Refused, match=r"ended before it was ready|is not an MCP server"):
            await server.tools()


async def test_rejects_server_that_never_answers() -> None:
    async with closing(by_hand("hang", connect_timeout=0.3)) as server:
        with pytest.raises(Refused, match=r"not ready within 0\.3 seconds"):
            await server.tools()


async def test_retries_after_failed_connection(tmp_path: Path) -> None:
    folder = tmp_path / "later"
    async with closing(by_hand("strict", cwd=folder)) as server:
        with pytest.raises(Refused):
            await server.tools()
        folder.mkdir()
        assert await server.tools()


async def test_call_without_connection_fails_as_tool_error(tmp_path: Path) -> None:
    folder = tmp_path / "soon-gone"
    folder.mkdir()
    async with closing(by_hand("strict", cwd=folder)) as server:
        tools = await tools_of(server)
        await server.close()
        folder.rmdir()
        with pytest.raises(ToolFailed, match="cannot be started"):
            await call(tools["tool0"])


async def test_missing_package_error_names_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("lockstitch.agents.tools.mcp_")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(Refused, match=r"pip install 'lockstitch\[mcp\]'"):
        await started().tools()


def test_import_does_not_load_mcp_package() -> None:
    code = "import sys, lockstitch.agents.tools.mcp; sys.exit('mcp' in sys.modules or 'httpx2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# Over HTTP


@pytest.mark.parametrize("mode", ["http", "old"])
async def test_works_over_http(web: Nursery, mode: str) -> None:
    async with web.server(mode) as (port, pid), closing(McpServer.http(url(port))) as server:
        tools = await tools_of(server)
        assert tools["add"].effect == "safe"
        assert await call(tools["pid"]) == str(pid)
        assert await call(tools["key"]) == CONTEXT.key
        sums = await asyncio.gather(*(call(tools["add"], a=number, b=1) for number in range(20)))
        assert sums == [str(number + 1) for number in range(20)]
        with pytest.raises(ToolFailed, match="no more paper"):
            await call(tools["fail"], why="no more paper")
        await server.close()
        assert await call(tools["add"], a=1, b=2) == "3"


@pytest.mark.parametrize("mode", ["http", "old"])
async def test_cancelled_http_call_has_no_effect_on_others(web: Nursery, mode: str) -> None:
    async with web.server(mode) as (port, _), closing(McpServer.http(url(port))) as server, Held() as held:
        tools = await tools_of(server)
        cancelled = asyncio.create_task(call(tools["hold"], port=held.port))
        reader, _ = await held.begun()
        other_task = asyncio.create_task(call(tools["hold"], port=held.port))
        _, writer = await held.begun()
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert await reader.read() == b""
        writer.write(b"done\n")
        assert await other_task == "done"


@pytest.mark.parametrize("mode", ["http", "old"])
async def test_reconnects_to_web_server_killed_in_mid_call(web: Nursery, mode: str) -> None:
    async with web.server(mode) as (port, pid), closing(McpServer.http(url(port))) as server, Held() as held:
        tools = await tools_of(server)
        lost = asyncio.create_task(call(tools["hold"], port=held.port))
        await held.begun()
        await killed(pid)
        with pytest.raises(ToolFailed) as failure:
            await lost
        assert failure.value.unknown
        with pytest.raises(ToolFailed, match=r"cannot be reached|lost during the call"):
            await call(tools["add"], a=1, b=2)
        async with web.server(mode, port):
            assert await call(tools["add"], a=1, b=2) == "3"


async def test_next_call_starts_new_session_when_server_lost_it(web: Nursery) -> None:
    async with web.server("old") as (port, pid), closing(McpServer.http(url(port))) as server:
        tools = await tools_of(server)
        await killed(pid)
        async with web.server("old", port):
            with pytest.raises(ToolFailed):
                await call(tools["add"], a=1, b=2)
            assert await call(tools["add"], a=1, b=2) == "3"


async def test_sends_headers_and_reports_status_of_rejection(web: Nursery) -> None:
    async with web.server(token="right") as (port, _):
        async with closing(McpServer.http(url(port), headers={"Authorization": "Bearer right"})) as server:
            assert await server.tools()
        async with closing(McpServer.http(url(port), headers={"Authorization": "Bearer wrong"})) as server:
            with pytest.raises(Refused, match="HTTP 401"):
                await server.tools()


async def test_reports_url_without_server(web: Nursery) -> None:
    async with web.server() as (port, pid):
        await killed(pid)
        async with closing(McpServer.http(f"http://user:secret@127.0.0.1:{port}/secret/mcp?key=secret")) as server:
            with pytest.raises(Refused, match="cannot be reached") as caught:
                await server.tools()
    assert "secret" not in str(caught.value)


async def test_rejects_url_of_another_server(web: Nursery) -> None:
    async with web.server() as (port, _), closing(McpServer.http(f"http://127.0.0.1:{port}/other")) as server:
        with pytest.raises(Refused, match=r"is not an MCP server, or it rejected the connection: Not Found \(HTTP 404"):
            await server.tools()


async def test_rejects_web_server_that_never_answers() -> None:
    async with Held() as held, closing(McpServer.http(url(held.port), connect_timeout=0.3)) as server:
        with pytest.raises(Refused, match=r"not ready within 0\.3 seconds"):
            await server.tools()


@pytest.mark.parametrize("place", ["example.com/mcp", "ftp://example.com", "http://", ""])
def test_rejects_invalid_url_at_once(place: str) -> None:
    with pytest.raises(Refused, match="is not a URL"):
        McpServer.http(place)
