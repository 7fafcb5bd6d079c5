"""Clients of other projects, live: each runs an agent and sends its spans to a server of Lockstitch.

The clients are not dependencies of the tests. A test is skipped if the interpreter does not have its client. Set
`LOCKSTITCH_CLIENT_PYTHON` to an interpreter with some of them, for example of a separate virtual environment.
"""

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest

from lockstitch.model import tool_uses
from lockstitch.store import Store
from tests.integrations.seeing import rows_of
from tests.server.ingest.sending import settled

pytestmark = pytest.mark.anyio

PYTHON = os.environ.get("LOCKSTITCH_CLIENT_PYTHON", sys.executable)

USAGE = {
    "prompt_tokens": 1500,
    "completion_tokens": 30,
    "total_tokens": 1530,
    "prompt_tokens_details": {"cached_tokens": 1024},
}


class Model(BaseHTTPRequestHandler):
    """An endpoint of OpenAI that requests the tool get_weather first, and answers then."""

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
            args = {"answer": "It is 21C in Paris."} if call == "final_answer" else {"city": "Paris"}
            function = {"name": call, "arguments": json.dumps(args)}
            message = {"role": "assistant", "content": None, "tool_calls": [{"id": f"call_{len(messages)}"}]}
            message["tool_calls"][0] |= {"type": "function", "function": function}
        choice = {"index": 0, "message": message, "finish_reason": "stop" if call is None else "tool_calls"}
        body = {"id": f"chatcmpl-{len(messages)}", "object": "chat.completion", "created": 1, "model": request["model"]}
        content = json.dumps({**body, "choices": [choice], "usage": USAGE}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
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


class Client(NamedTuple):
    modules: tuple[str, ...]
    """The modules that the script imports."""
    script: str


PROVIDER = """
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)
"""

CLIENTS = {
    "openai_agents": Client(
        ("agents", "openinference.instrumentation.openai_agents", "opentelemetry.exporter.otlp.proto.http"),
        PROVIDER
        + """
from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_trace_processors
from openai import AsyncOpenAI
from openinference.instrumentation import using_session
from openinference.instrumentation.openai_agents import OpenAIAgentsInstrumentor
set_trace_processors([])
OpenAIAgentsInstrumentor().instrument(tracer_provider=provider)

@function_tool
def get_weather(city: str) -> str:
    return f"21C in {city}"

model = OpenAIChatCompletionsModel("gpt-4o-mini", AsyncOpenAI())
with using_session("conv-1"):
    Runner.run_sync(Agent(name="weather", tools=[get_weather], model=model), "Weather in Paris?")
provider.shutdown()
""",
    ),
    "smolagents": Client(
        ("smolagents", "openinference.instrumentation.smolagents", "opentelemetry.exporter.otlp.proto.http"),
        PROVIDER
        + """
import os
from openinference.instrumentation import using_session
from openinference.instrumentation.smolagents import SmolagentsInstrumentor
from smolagents import OpenAIServerModel, ToolCallingAgent, tool
SmolagentsInstrumentor().instrument(tracer_provider=provider)

@tool
def get_weather(city: str) -> str:
    '''Weather of a city.

    Args:
        city: The city.
    '''
    return f"21C in {city}"

model = OpenAIServerModel(model_id="gpt-4o-mini", api_base=os.environ["OPENAI_BASE_URL"], api_key="x")
with using_session("conv-1"):
    ToolCallingAgent(tools=[get_weather], model=model, verbosity_level=0).run("Weather in Paris?")
provider.shutdown()
""",
    ),
    "traceloop": Client(
        ("traceloop.sdk", "opentelemetry.instrumentation.openai", "openai"),
        """
import json, os
from openai import OpenAI
from traceloop.sdk import Traceloop
from traceloop.sdk.decorators import tool, workflow
Traceloop.init(disable_batch=True, api_endpoint=os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"], api_key="x")
Traceloop.set_association_properties({"thread_id": "conv-1"})
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}

@tool(name="get_weather")
def get_weather(city):
    return f"21C in {city}"

@workflow(name="weather")
def weather():
    messages = [{"role": "user", "content": "Weather in Paris?"}]
    client = OpenAI()
    answer = client.chat.completions.create(model="gpt-4o-mini", messages=messages, tools=[TOOL]).choices[0].message
    result = get_weather(**json.loads(answer.tool_calls[0].function.arguments))
    call_id = answer.tool_calls[0].id
    messages += [answer.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": call_id, "content": result}]
    client.chat.completions.create(model="gpt-4o-mini", messages=messages, tools=[TOOL])

weather()
""",
    ),
    "llama_index": Client(
        ("llama_index.llms.openai", "openinference.instrumentation.llama_index"),
        PROVIDER
        + """
import asyncio
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.llms.openai import OpenAI
from openinference.instrumentation import using_session
from openinference.instrumentation.llama_index import LlamaIndexInstrumentor
LlamaIndexInstrumentor().instrument(tracer_provider=provider)

def get_weather(city: str) -> str:
    return f"21C in {city}"

async def main():
    llm = OpenAI(model="gpt-4o-mini")
    await FunctionAgent(name="weather", tools=[get_weather], llm=llm, streaming=False).run("Weather in Paris?")

with using_session("conv-1"):
    asyncio.run(main())
provider.shutdown()
""",
    ),
}


def is_installed(client: Client) -> bool:
    code = ";".join(f"assert importlib.util.find_spec({name!r})" for name in client.modules)
    found = subprocess.run([PYTHON, "-c", f"import importlib.util;{code}"], capture_output=True, check=False)
    return found.returncode == 0


@pytest.mark.parametrize("name", CLIENTS)
async def test_client_sends_whole_trace(
    store: Store, url: str, http: httpx2.AsyncClient, model_url: str, name: str, tmp_path: Path
) -> None:
    client = CLIENTS[name]
    if not is_installed(client):
        pytest.skip(f"{name} is not installed")
    environment = {
        **os.environ,
        "OTEL_EXPORTER_OTLP_ENDPOINT": url,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OPENAI_API_KEY": "x",
        "OPENAI_BASE_URL": model_url,
        "OPENAI_API_BASE": model_url,
        "TRACELOOP_TELEMETRY": "false",
        "TRACELOOP_METRICS_ENABLED": "false",
    }
    script = tmp_path / "client.py"
    script.write_text(client.script)
    ran = await asyncio.to_thread(
        subprocess.run, [PYTHON, str(script)], env=environment, capture_output=True, timeout=100, check=False
    )
    assert ran.returncode == 0, ran.stderr.decode()
    assert (await settled(http))["quarantine"] == []

    calls, tools = await rows_of(store, "llm_call"), await rows_of(store, "tool_call")
    assert [(call.name, call.input_tokens, call.output_tokens) for call in calls] == [("gpt-4o-mini", 1500, 30)] * 2
    assert tool_uses(calls[0].message)[0]["input"] == {"city": "Paris"}
    weather = next(tool for tool in tools if tool.name == "get_weather")
    assert weather.message is not None
    assert (weather.message["content"], weather.reply_to) == ("21C in Paris", calls[0].position)
    assert [thread.key for thread in await store.threads(kind="trace")] == ["otel:conv-1"]
    assert (await store.verify()).ok
