"""MLflow and the Claude Agent SDK against a real server. Skipped if they are not installed."""

import asyncio
import os
from pathlib import Path

import httpx2
import pytest

from lockstitch.store import Store
from tests.agents.fake_api import Answer, fake_api
from tests.integrations.importing import lens
from tests.server.ingest.live_scripts import OTLP, interpreter_with
from tests.server.ingest.sending import settled

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["sqlite"])
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


async def run(code: str, modules: tuple[str, ...], folder: Path, **variables: str) -> None:
    """Run a program with an interpreter that has these modules, and with only these variables."""
    python = interpreter_with(modules)
    if python is None:
        pytest.skip(f"no interpreter has {', '.join(modules)}")
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), **variables}
    process = await asyncio.create_subprocess_exec(
        *(python, "-c", code), env=env, cwd=folder, stderr=asyncio.subprocess.PIPE
    )
    _, errors = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode == 0, errors.decode()


MLFLOW = """
import mlflow
from mlflow.entities import SpanType

@mlflow.trace(span_type=SpanType.CHAT_MODEL)
def ask(messages):
    span = mlflow.get_current_active_span()
    span.set_attribute("mlflow.chat.tokenUsage", {"input_tokens": 12, "output_tokens": 5, "total_tokens": 17})
    span.set_attribute("mlflow.llm.model", "gpt-5")
    span.set_attribute("session.id", "customer-42")
    return {"role": "assistant", "content": "We have tea."}

ask([{"role": "user", "content": "Do you have tea?"}])
"""


@pytest.mark.parametrize("translated", [False, True])
async def test_mlflow(store: Store, url: str, http: httpx2.AsyncClient, tmp_path: Path, *, translated: bool) -> None:
    variables = {
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{url}/v1/traces",
        "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
        "MLFLOW_ENABLE_OTEL_GENAI_SEMCONV": str(translated).lower(),
    }
    await run(MLFLOW, ("mlflow", OTLP), tmp_path, **variables)
    assert (await settled(http))["quarantine"] == []
    rows = await lens(store)
    (call,) = rows["llm_calls"]
    assert (call["model_name"], call["usage_metadata"]["total_tokens"]) == ("gpt-5", 17)
    assert rows["agent_runs"][0]["thread_id"] == "customer-42"


CLAUDE = """
import anyio
from claude_agent_sdk import ClaudeAgentOptions, query

async def main():
    async for _ in query(prompt="Do you have tea?", options=ClaudeAgentOptions(model="claude-sonnet-4-5", max_turns=1)):
        pass

anyio.run(main)
"""


@pytest.mark.parametrize("traces", [False, True])
async def test_claude_agent_sdk(
    store: Store, url: str, http: httpx2.AsyncClient, tmp_path: Path, *, traces: bool
) -> None:
    variables = {
        "ANTHROPIC_API_KEY": "none",
        "CLAUDE_CODE_ENABLE_TELEMETRY": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "OTEL_LOGS_EXPORTER": "otlp",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_EXPORTER_OTLP_ENDPOINT": url,
        "OTEL_LOG_USER_PROMPTS": "1",
        "OTEL_LOG_ASSISTANT_RESPONSES": "1",
        **({"CLAUDE_CODE_ENHANCED_TELEMETRY_BETA": "1", "OTEL_TRACES_EXPORTER": "otlp"} if traces else {}),
    }
    async with fake_api() as api:
        api.answer(Answer([{"type": "text", "text": "We have tea."}], headers={"request-id": "req_1"}))
        await run(CLAUDE, ("claude_agent_sdk", "anyio"), tmp_path, **variables, ANTHROPIC_BASE_URL=api.url)
    assert (await settled(http))["quarantine"] == []
    rows = await lens(store)
    assert "We have tea." in [call["llm_output_text"] for call in rows["llm_calls"]]
    assert all(call["usage_metadata"]["total_tokens"] for call in rows["llm_calls"])
