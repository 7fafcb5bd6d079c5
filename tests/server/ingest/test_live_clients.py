"""Clients of other projects, live: each runs an agent and sends its spans to a server of Lockstitch.

The clients are not dependencies of the tests. A test is skipped if its client is not installed.
"""

import asyncio
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import pytest

from lockstitch.model import tool_uses
from lockstitch.store import Store
from tests.integrations.seeing import rows_of
from tests.server.ingest.live_scripts import LANGSMITH_READS, NODE, PYTHON, Script, folder_with, interpreter_with
from tests.server.ingest.sending import settled

pytestmark = pytest.mark.anyio

USAGE = {
    "prompt_tokens": 1500,
    "completion_tokens": 30,
    "total_tokens": 1530,
    "prompt_tokens_details": {"cached_tokens": 1024},
}


class Model(BaseHTTPRequestHandler):
    """An endpoint of OpenAI that requests the tool get_weather first, and answers then. It can stream."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        messages, tools = request["messages"], [tool["function"]["name"] for tool in request.get("tools", [])]
        answered = any(message["role"] in ("assistant", "tool") for message in messages)
        call = "final_answer" if answered and "final_answer" in tools else None if answered else "get_weather"
        message: dict[str, Any] = {"role": "assistant", "content": "It is 21C in Paris."}
        if call is not None:
            answer = {"answer": "It is 21C in Paris.", "response": "It is 21C in Paris."}
            definition = next((tool for tool in request.get("tools", []) if tool["function"]["name"] == call), {})
            parameters = definition.get("function", {})
            expected = parameters.get("parameters", {}).get("properties", {"city": {}})
            args = {name: value for name, value in {**answer, "city": "Paris"}.items() if name in expected}
            tool_call = {"id": f"call_{len(messages)}", "type": "function", "index": 0}
            tool_call["function"] = {"name": call, "arguments": json.dumps(args)}
            message = {"role": "assistant", "content": None, "tool_calls": [tool_call]}
        body = {"id": f"chatcmpl-{len(messages)}", "created": 1, "model": request["model"], "usage": USAGE}
        finish = {"index": 0, "finish_reason": "stop" if call is None else "tool_calls"}
        if request.get("stream"):
            deltas = [{"index": 0, "delta": message, "finish_reason": None}, {**finish, "delta": {}}]
            chunks = [{**body, "object": "chat.completion.chunk", "usage": None, "choices": [it]} for it in deltas]
            last = {**body, "object": "chat.completion.chunk", "choices": []}
            lines = [*(json.dumps(chunk) for chunk in (*chunks, last)), "[DONE]"]
            self._answer("text/event-stream", "".join(f"data: {line}\n\n" for line in lines))
        else:
            choices = [{**finish, "message": message}]
            self._answer("application/json", json.dumps({**body, "object": "chat.completion", "choices": choices}))

    def _answer(self, content_type: str, text: str) -> None:
        content = text.encode()
        self.send_response(200)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@pytest.fixture
def model_url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(params=["sqlite"])
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


async def run(command: list[str], url: str, model_url: str) -> None:
    environment = {
        **os.environ,
        "OTEL_EXPORTER_OTLP_ENDPOINT": url,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_ONLY",
        "OPENAI_API_KEY": "x",
        "OPENAI_BASE_URL": model_url,
        "OPENAI_API_BASE": model_url,
        "TRACELOOP_TELEMETRY": "false",
        "TRACELOOP_METRICS_ENABLED": "false",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }
    ran = await asyncio.to_thread(
        subprocess.run, command, env=environment, capture_output=True, timeout=100, check=False
    )
    assert ran.returncode == 0, ran.stderr.decode()


@pytest.mark.parametrize("name", PYTHON)
async def test_python_client_sends_whole_trace(
    store: Store, url: str, http: httpx2.AsyncClient, model_url: str, name: str, tmp_path: Path
) -> None:
    python = interpreter_with(PYTHON[name].packages)
    if python is None:
        pytest.skip(f"no interpreter has {', '.join(PYTHON[name].packages)}")
    program = tmp_path / "client.py"
    program.write_text(PYTHON[name].code)
    await run([python, str(program)], url, model_url)
    await shows_weather(store, http, PYTHON[name])


@pytest.mark.parametrize("name", NODE)
async def test_node_client_sends_whole_trace(
    store: Store, url: str, http: httpx2.AsyncClient, model_url: str, name: str
) -> None:
    await run_node(NODE[name].packages, NODE[name].code, url, model_url)
    await shows_weather(store, http, NODE[name])


async def test_javascript_client_of_langsmith_reads_traces(url: str) -> None:
    program = NODE["langsmith_js"]
    await run_node(program.packages, program.code, url)
    await run_node(program.packages, LANGSMITH_READS, url)


async def run_node(packages: tuple[str, ...], code: str, url: str, model_url: str = "") -> None:
    folder, node = folder_with(packages), shutil.which("node")
    if folder is None or node is None:
        pytest.skip(f"no folder has {', '.join(packages)}")
    # Node.js finds packages from the place of the program.
    program = folder / f"client-{os.getpid()}.mjs"
    program.write_text(code)
    try:
        await run([node, str(program)], url, model_url)
    finally:
        program.unlink()


async def shows_weather(store: Store, http: httpx2.AsyncClient, script: Script) -> None:
    assert (await settled(http))["quarantine"] == []
    calls, tools = await rows_of(store, "llm_call"), await rows_of(store, "tool_call")
    counts = [(call.name, call.input_tokens, call.output_tokens, call.cache_read_tokens or 0) for call in calls]
    assert counts == [(script.model, 1500, 30, script.cached)] * 2
    assert all(call.data["cost"]["total_cost"] for call in calls)
    assert tool_uses(calls[0].message)[0]["input"] == {"city": "Paris"}
    weather = next(tool for tool in tools if tool.name == "get_weather")
    assert weather.reply_to == calls[0].position
    assert ((weather.message or {}).get("content") == "21C in Paris") is script.runs_tools
    keys = [thread.key for thread in await store.threads(kind="trace")]
    assert script.conversation is None or keys == [script.conversation]
    assert (await store.verify()).ok
