"""Programs with clients of other projects. Each asks a model for the weather in Paris and sends its trace.

Some clients exclude each other, so several places are searched: the interpreters of `LOCKSTITCH_CLIENT_PYTHON`,
and the folders of `LOCKSTITCH_CLIENT_NODE`, which have a `node_modules`. Both are lists with the separator of PATH.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

PYTHONS = os.environ.get("LOCKSTITCH_CLIENT_PYTHON", sys.executable).split(os.pathsep)
NODES = [folder for folder in os.environ.get("LOCKSTITCH_CLIENT_NODE", "").split(os.pathsep) if folder]


def interpreter_with(modules: tuple[str, ...]) -> str | None:
    """Return the first interpreter of Python that has these modules."""
    code = f"import importlib.util\nfor name in {modules!r}: assert importlib.util.find_spec(name)"
    for python in PYTHONS:
        if subprocess.run([python, "-c", code], capture_output=True, check=False).returncode == 0:
            return python
    return None


def folder_with(packages: tuple[str, ...]) -> Path | None:
    """Return the first folder whose node_modules has these packages."""
    return next((folder for folder in map(Path, NODES) if all(_has(folder, name) for name in packages)), None)


def _has(folder: Path, package: str) -> bool:
    name, _, major = package.rpartition("@") if "@" in package[1:] else (package, "", "")
    try:
        version = json.loads((folder / "node_modules" / name / "package.json").read_text())["version"]
    except FileNotFoundError:
        return False
    return version.startswith(f"{major}." if major else "")


class Script(NamedTuple):
    packages: tuple[str, ...]
    """The modules of Python, or the packages of npm, that the program imports."""
    code: str
    conversation: str | None = "otel:conv-1"
    """The key of its thread. None if the client does not send the conversation, or invents one."""
    runs_tools: bool = True
    """False if the client only calls models: the program requests the tool, and the client sends no result of it."""
    model: str = "gpt-4o-mini"
    """The model that the client names."""
    cached: int = 1024
    """The cached tokens of a model call. 0 if the client does not send them."""


OTLP = "opentelemetry.exporter.otlp.proto.http"

PROVIDER = """
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)
"""

WEATHER = """
def get_weather(city: str) -> str:
    '''Weather of a city.

    Args:
        city: The city.
    '''
    return f"21C in {city}"
"""

TOOLS = """
QUESTION = [{"role": "user", "content": "Weather in Paris?"}]
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}]
"""

CONVERSATION = """
from openai import OpenAI

def converse(look):
    client, messages = OpenAI(), list(QUESTION)
    answer = client.chat.completions.create(model="gpt-4o-mini", messages=messages, tools=TOOLS).choices[0].message
    call = answer.tool_calls[0]
    result = look(**json.loads(call.function.arguments))
    messages += [answer.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": call.id, "content": result}]
    client.chat.completions.create(model="gpt-4o-mini", messages=messages, tools=TOOLS)
"""

PYTHON = {
    "openai_agents_oi": Script(
        ("agents", "openinference.instrumentation.openai_agents", OTLP),
        PROVIDER
        + WEATHER
        + """
from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_trace_processors
from openai import AsyncOpenAI
from openinference.instrumentation import using_session
from openinference.instrumentation.openai_agents import OpenAIAgentsInstrumentor
set_trace_processors([])
OpenAIAgentsInstrumentor().instrument(tracer_provider=provider)
model = OpenAIChatCompletionsModel("gpt-4o-mini", AsyncOpenAI())
with using_session("conv-1"):
    Runner.run_sync(Agent(name="weather", tools=[function_tool(get_weather)], model=model), "Weather in Paris?")
provider.shutdown()
""",
        # The client sends the cached tokens of the Responses API only.
        cached=0,
    ),
    "openai_agents_logfire": Script(
        ("agents", "logfire", OTLP),
        WEATHER
        + """
import logfire
from agents import Agent, OpenAIChatCompletionsModel, RunConfig, Runner, function_tool
from openai import AsyncOpenAI
logfire.configure(send_to_logfire=False, console=False)
logfire.instrument_openai_agents()
model = OpenAIChatCompletionsModel("gpt-4o-mini", AsyncOpenAI())
agent = Agent(name="weather", tools=[function_tool(get_weather)], model=model)
Runner.run_sync(agent, "Weather in Paris?", run_config=RunConfig(group_id="conv-1"))
logfire.shutdown()
""",
    ),
    "smolagents": Script(
        ("smolagents", "openai", "openinference.instrumentation.smolagents", OTLP),
        PROVIDER
        + WEATHER
        + """
import os
from openinference.instrumentation import using_session
from openinference.instrumentation.smolagents import SmolagentsInstrumentor
from smolagents import OpenAIServerModel, ToolCallingAgent, tool
SmolagentsInstrumentor().instrument(tracer_provider=provider)
model = OpenAIServerModel(model_id="gpt-4o-mini", api_base=os.environ["OPENAI_BASE_URL"], api_key="x")
with using_session("conv-1"):
    ToolCallingAgent(tools=[tool(get_weather)], model=model, verbosity_level=0).run("Weather in Paris?")
provider.shutdown()
""",
        cached=0,
    ),
    "traceloop": Script(
        ("traceloop.sdk", "opentelemetry.instrumentation.openai", "openai"),
        WEATHER
        + TOOLS
        + """
import json, os
from traceloop.sdk import Traceloop
from traceloop.sdk.decorators import tool, workflow
Traceloop.init(disable_batch=True, api_endpoint=os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"], api_key="x")
Traceloop.set_association_properties({"thread_id": "conv-1"})
"""
        + CONVERSATION
        + """
workflow(name="weather")(converse)(tool(name="get_weather")(get_weather))
""",
    ),
    "llama_index": Script(
        ("llama_index.llms.openai", "openinference.instrumentation.llama_index", OTLP),
        PROVIDER
        + WEATHER
        + """
import asyncio
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.llms.openai import OpenAI
from openinference.instrumentation import using_session
from openinference.instrumentation.llama_index import LlamaIndexInstrumentor
LlamaIndexInstrumentor().instrument(tracer_provider=provider)

async def main():
    llm = OpenAI(model="gpt-4o-mini")
    await FunctionAgent(name="weather", tools=[get_weather], llm=llm, streaming=False).run("Weather in Paris?")

with using_session("conv-1"):
    asyncio.run(main())
provider.shutdown()
""",
    ),
    "strands": Script(
        ("strands", "openai", OTLP),
        PROVIDER
        + WEATHER
        + """
from strands import Agent, tool
from strands.models.openai import OpenAIModel
attributes = {"session.id": "conv-1"}
agent = Agent(model=OpenAIModel(model_id="gpt-4o-mini"), tools=[tool(get_weather)], trace_attributes=attributes)
agent("Weather in Paris?")
provider.shutdown()
""",
    ),
    "adk": Script(
        ("google.adk", "litellm", OTLP),
        PROVIDER
        + WEATHER
        + """
import asyncio
from google.adk.agents import Agent
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import InMemoryRunner
from google.genai.types import Content, Part

async def main():
    agent = Agent(name="weather", model=LiteLlm("openai/gpt-4o-mini"), tools=[get_weather])
    runner = InMemoryRunner(agent=agent, app_name="shop")
    await runner.session_service.create_session(app_name="shop", user_id="ada", session_id="conv-1")
    question = Content(role="user", parts=[Part(text="Weather in Paris?")])
    async for _ in runner.run_async(user_id="ada", session_id="conv-1", new_message=question):
        pass

asyncio.run(main())
provider.shutdown()
""",
        model="openai/gpt-4o-mini",
    ),
    "beeai": Script(
        ("beeai_framework", "openinference.instrumentation.beeai", OTLP),
        PROVIDER
        + WEATHER
        + """
import asyncio
from beeai_framework.agents.requirement import RequirementAgent
from beeai_framework.adapters.openai import OpenAIChatModel
from beeai_framework.tools import tool
from openinference.instrumentation import using_session
from openinference.instrumentation.beeai import BeeAIInstrumentor
BeeAIInstrumentor().instrument(tracer_provider=provider)

async def main():
    llm = OpenAIChatModel("gpt-4o-mini", tool_call_fallback_via_response_format=False)
    await RequirementAgent(llm=llm, tools=[tool(get_weather)]).run("Weather in Paris?")

with using_session("conv-1"):
    asyncio.run(main())
provider.shutdown()
""",
        cached=0,
    ),
    "litellm": Script(
        ("litellm", OTLP),
        TOOLS
        + """
import os, time
os.environ["OTEL_EXPORTER"] = "otlp_http"
os.environ["OTEL_ENDPOINT"] = os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] + "/v1/traces"
import litellm
from opentelemetry import trace
litellm.callbacks = ["otel"]
first = litellm.completion("openai/gpt-4o-mini", messages=QUESTION, tools=TOOLS).choices[0].message
result = {"role": "tool", "tool_call_id": first.tool_calls[0].id, "content": "21C in Paris"}
litellm.completion("openai/gpt-4o-mini", messages=[*QUESTION, first, result], tools=TOOLS)
""",
        conversation=None,
        runs_tools=False,
    ),
    "pydantic_ai": Script(
        ("pydantic_ai", "logfire", "openai", OTLP),
        WEATHER
        + """
import logfire
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
logfire.configure(send_to_logfire=False, console=False)
logfire.instrument_pydantic_ai()
Agent(OpenAIChatModel("gpt-4o-mini"), tools=[get_weather]).run_sync("Weather in Paris?", conversation_id="conv-1")
logfire.shutdown()
""",
    ),
    "logfire": Script(
        ("logfire", "openai", "opentelemetry.instrumentation.httpx", OTLP),
        WEATHER
        + TOOLS
        + """
import json, logfire
logfire.configure(send_to_logfire=False, console=False)
logfire.instrument_openai()
"""
        + CONVERSATION
        + """
with logfire.span("weather"):
    converse(get_weather)
logfire.shutdown()
""",
        conversation=None,
    ),
    "oi_langchain": Script(
        ("langchain", "langchain_openai", "openinference.instrumentation.langchain", OTLP),
        PROVIDER
        + WEATHER
        + """
from langchain.agents import create_agent
from langchain_openai import ChatOpenAI
from openinference.instrumentation.langchain import LangChainInstrumentor
LangChainInstrumentor().instrument(tracer_provider=provider)
agent = create_agent(ChatOpenAI(model="gpt-4o-mini"), tools=[get_weather])
question = {"messages": [{"role": "user", "content": "Weather in Paris?"}]}
agent.invoke(question, config={"metadata": {"thread_id": "conv-1"}})
provider.shutdown()
""",
    ),
    "langfuse": Script(
        ("langfuse", "openai"),
        WEATHER
        + TOOLS
        + """
import json, os
os.environ |= {"LANGFUSE_BASE_URL": os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"]}
os.environ |= {"LANGFUSE_PUBLIC_KEY": "pk", "LANGFUSE_SECRET_KEY": "none"}
from langfuse import get_client, observe, propagate_attributes
"""
        + CONVERSATION.replace("from openai", "from langfuse.openai")
        + """
with propagate_attributes(session_id="conv-1"):
    observe(as_type="agent")(converse)(observe(as_type="tool")(get_weather))
get_client().flush()
""",
    ),
}

VERCEL = """
import { NodeTracerProvider, BatchSpanProcessor } from '@opentelemetry/sdk-trace-node';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-proto';
import * as ai from 'ai';
import { createOpenAI } from '@ai-sdk/openai';
import { z } from 'zod';
const provider = new NodeTracerProvider({ spanProcessors: [new BatchSpanProcessor(new OTLPTraceExporter())] });
provider.register();
const model = createOpenAI({ baseURL: process.env.OPENAI_BASE_URL, apiKey: 'x' }).chat('gpt-4o-mini');
const schema = z.object({ city: z.string() });
const get_weather = ai.tool({
  description: 'Weather of a city', parameters: schema, inputSchema: schema,
  execute: async ({ city }) => `21C in ${city}`,
});
const steps = ai.stepCountIs ? { stopWhen: ai.stepCountIs(3) } : { maxSteps: 3 };
"""

VERCEL_CALL = """
await ai.generateText({
  model, prompt: 'Weather in Paris?', tools: { get_weather }, ...steps,
  experimental_telemetry: { isEnabled: true, metadata: { sessionId: 'conv-1' } },
});
await provider.shutdown();
"""

VERCEL_7 = """
import { OpenTelemetry } from '@ai-sdk/otel';
const enrichSpan = ({ runtimeContext }) => ({ 'gen_ai.conversation.id': runtimeContext?.sessionId });
ai.registerTelemetry(new OpenTelemetry({ enrichSpan }));
await ai.generateText({
  model, prompt: 'Weather in Paris?', tools: { get_weather }, ...steps,
  runtimeContext: { sessionId: 'conv-1' }, telemetry: { includeRuntimeContext: { sessionId: true } },
});
await provider.shutdown();
"""

NODE_SDK = ("@opentelemetry/sdk-trace-node", "@opentelemetry/exporter-trace-otlp-proto")

LANGSMITH = """
import { Client } from 'langsmith';
import { traceable } from 'langsmith/traceable';
const client = new Client({ apiUrl: process.env.OTEL_EXPORTER_OTLP_ENDPOINT, apiKey: 'none' });
const options = { client, tracingEnabled: true };
const usage_metadata = {
  input_tokens: 1500, output_tokens: 30, total_tokens: 1530, input_token_details: { cache_read: 1024 },
};
const tool_calls = [
  { id: 'call_1', type: 'function', function: { name: 'get_weather', arguments: '{"city": "Paris"}' } },
];
const call = traceable(async ({ messages }) => ({
  ...(messages.length > 1
    ? { role: 'assistant', content: 'It is 21C in Paris.' }
    : { role: 'assistant', content: '', tool_calls }),
  usage_metadata,
}), { ...options, name: 'ask', run_type: 'llm', metadata: { ls_provider: 'openai', ls_model_name: 'gpt-4o-mini' } });
const tool = { ...options, name: 'get_weather', run_type: 'tool' };
const get_weather = traceable(async ({ city }) => `21C in ${city}`, tool);
const weather = traceable(async (question) => {
  const messages = [{ role: 'user', content: question }];
  const first = await call({ messages });
  const content = await get_weather({ city: 'Paris' });
  await call({ messages: [...messages, first, { role: 'tool', tool_call_id: 'call_1', content }] });
}, { ...options, name: 'weather', metadata: { session_id: 'conv-1' } });
await weather('Weather in Paris?');
await client.awaitPendingTraceBatches();
"""

LANGSMITH_READS = """
import assert from 'node:assert';
import { Client } from 'langsmith';
import { evaluate } from 'langsmith/evaluation';
const client = new Client({ apiUrl: process.env.OTEL_EXPORTER_OTLP_ENDPOINT, apiKey: 'none' });
const all = async (pages) => { const items = []; for await (const item of pages) items.push(item); return items; };
const filter = 'and(eq(run_type, "llm"), gt(total_tokens, 100))';
const calls = await all(client.listRuns({ projectName: 'default', filter }));
assert.deepEqual(calls.map((run) => [run.name, run.total_tokens]), [['ask', 1530], ['ask', 1530]]);
assert(calls.every((run) => run.total_cost > 0));
const root = await client.readRun(calls[0].trace_id, { loadChildRuns: true });
assert.deepEqual(root.child_runs.map((run) => run.name), ['ask', 'get_weather', 'ask']);
assert.equal((await client.getRunStats({ projectNames: ['default'] })).run_count, 4);
const project = (await client.readProject({ projectName: 'default' })).id;
const named = await all(client.runs.query({ project_ids: [project], selects: ['NAME'], filter }));
assert.deepEqual(named.map((run) => run.name), ['ask', 'ask']);
const query = { project_id: project, start_time: new Date(root.start_time).toISOString(), selects: ['TOTAL_TOKENS'] };
assert.equal((await client.runs.retrieve(root.id, query)).total_tokens, 3060);
assert.deepEqual((await all(client.threads.query({ project_id: project }))).map((item) => item.thread_id), ['conv-1']);
await client.createFeedback(root.id, 'good', { score: 1 });
assert.deepEqual((await all(client.listFeedback({ runIds: [root.id] }))).map((item) => item.key), ['good']);
assert.equal(await client.shareRun(root.id), await client.readRunSharedLink(root.id));
await client.unshareRun(root.id);
const dataset = await client.createDataset('questions');
await client.createExamples([{ inputs: { q: 'a' }, outputs: { a: 'A' }, dataset_id: dataset.id }]);
const { results } = await evaluate(async ({ q }) => ({ a: q.toUpperCase() }), {
  client, data: 'questions',
  evaluators: [async ({ outputs, referenceOutputs }) => ({ key: 'ok', score: outputs.a === referenceOutputs.a })],
});
assert.equal(results[0].evaluationResults.results[0].score, true);
"""

LANGFUSE = """
import { NodeTracerProvider } from '@opentelemetry/sdk-trace-node';
import { LangfuseSpanProcessor } from '@langfuse/otel';
import { propagateAttributes, startActiveObservation } from '@langfuse/tracing';
const baseUrl = process.env.OTEL_EXPORTER_OTLP_ENDPOINT;
const processor = new LangfuseSpanProcessor({ baseUrl, publicKey: 'pk', secretKey: 'none' });
const provider = new NodeTracerProvider({ spanProcessors: [processor] });
provider.register();
const usageDetails = { input: 476, input_cached_tokens: 1024, output: 30, total: 1530 };
const call = (input, output) => startActiveObservation('ask', (observation) => {
  observation.update({ model: 'gpt-4o-mini', input, output, usageDetails });
}, { asType: 'generation' });
const tool_calls = [
  { id: 'call_1', type: 'function', function: { name: 'get_weather', arguments: '{"city": "Paris"}' } },
];
await propagateAttributes({ sessionId: 'conv-1' }, () => startActiveObservation('weather', async () => {
  const messages = [{ role: 'user', content: 'Weather in Paris?' }];
  const first = { role: 'assistant', content: null, tool_calls };
  await call(messages, first);
  await startActiveObservation('get_weather', (observation) => {
    observation.update({ input: { city: 'Paris' }, output: '21C in Paris' });
  }, { asType: 'tool' });
  const result = { role: 'tool', tool_call_id: 'call_1', content: '21C in Paris' };
  await call([...messages, first, result], { role: 'assistant', content: 'It is 21C in Paris.' });
}, { asType: 'agent' }));
await provider.forceFlush();
await provider.shutdown();
"""

NODE = {
    "vercel4": Script(("ai@4", "@ai-sdk/openai", *NODE_SDK), VERCEL + VERCEL_CALL),
    # Version 5 sends no cached tokens of OpenAI for calls that are not streamed.
    "vercel5": Script(("ai@5", "@ai-sdk/openai", *NODE_SDK), VERCEL + VERCEL_CALL, cached=0),
    "vercel6": Script(("ai@6", "@ai-sdk/openai", *NODE_SDK), VERCEL + VERCEL_CALL),
    "vercel7": Script(("ai@7", "@ai-sdk/openai", "@ai-sdk/otel", *NODE_SDK), VERCEL + VERCEL_7),
    "langsmith_js": Script(("langsmith",), LANGSMITH, conversation="langsmith:conv-1"),
    "langfuse_js": Script(("@langfuse/otel", "@langfuse/tracing", "@opentelemetry/sdk-trace-node"), LANGFUSE),
}
