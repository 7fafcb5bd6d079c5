"""`program`: Claude Code itself with a store for its sessions. A loopback server answers as the model."""

import json
import tempfile
from pathlib import Path
from typing import Any

import claude_agent_sdk as sdk

from lockstitch.integrations.claude_agents import LockstitchSessionStore
from lockstitch.store import Store
from tests.agents.fake_api import Answer, FakeApi, fake_api


class Mirror(LockstitchSessionStore):
    """Remembers the appended entries."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.appended: dict[str, list[str]] = {}

    async def append(self, key: Any, entries: Any) -> None:
        self.appended.setdefault(key.get("subpath", ""), []).extend(json.dumps(entry) for entry in entries)
        await super().append(key, entries)


def answer(*content: Any, stop: str = "end_turn") -> Answer:
    return Answer(list(content), stop=stop)


def call(id: str, name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": arguments}


def text(content: str) -> dict[str, Any]:
    return {"type": "text", "text": content}


async def ask(api: FakeApi, sessions: Mirror, folder: Path, prompt: str, **options: Any) -> list[sdk.ResultMessage]:
    """Return the results of one start of the program, with new settings and no transcripts on the disk."""
    with tempfile.TemporaryDirectory() as home:
        environment = {
            "ANTHROPIC_BASE_URL": api.url,
            "ANTHROPIC_API_KEY": "none",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CONFIG_DIR": f"{home}/config",
            "HOME": home,
        }
        settings = sdk.ClaudeAgentOptions(
            env=environment,
            cwd=folder,
            allowed_tools=["Read", "Agent"],
            model="claude-sonnet-4-5",
            session_store=sessions,
            **options,
        )
        return [
            message
            async for message in sdk.query(prompt=prompt, options=settings)
            if isinstance(message, sdk.ResultMessage)
        ]


async def program(store: Store) -> int:
    """Start the program, and resume its session in another start. Return 0 contracts."""
    store = store.in_project("program")
    sessions = Mirror(store)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "sum.py").write_text("return a - b\n")
        async with fake_api() as api:
            reads = [call(f"toolu_{file}", "Read", file_path=f"{folder}/{file}.py") for file in ("sum", "none")]
            agent = call("toolu_agent", "Agent", description="Look", prompt="Look at it", subagent_type="Explore")
            api.answer(
                answer(text("Let me look."), *reads, stop="tool_use"),
                answer(agent, stop="tool_use"),
                answer(text("It subtracts.")),
            )
            first = await ask(api, sessions, folder, "Why is the sum wrong?", session_store_flush="eager")
            session = first[-1].session_id
            (thread,) = await store.threads(depth=0)
            (child,) = await store.children(thread)
            runs = [*await store.runs(thread), *await store.runs(child)]
            assert {run.status for run in runs} == {"completed"}, runs
            cost = sum(run.total_cost or 0 for run in runs)
            assert abs(cost - (first[-1].total_cost_usd or 0)) < 1e-9, (cost, first[-1])
            results = [stitch.status for stitch in await store.stitches(thread) if stitch.type == "tool_call"]
            assert sorted(map(str, results)) == ["error", "ok", "ok"], results

            api.answer(answer(text("Fixed.")))
            (second,) = await ask(api, sessions, folder, "Fix it", resume=session)
            assert (second.session_id, second.result) == (session, "Fixed.")
            sent = json.dumps(api.last["messages"])
            assert "Why is the sum wrong?" in sent, "the program continues the conversation"
        turns = (await store.history(thread)).turns
        assert (turns[0].user_message, turns[0].final_response) == ("Fix it", "Fixed."), turns
        for subpath, entries in sessions.appended.items():
            key = {name: thread.extras[name] for name in ("project_key", "session_id")}
            loaded = [json.dumps(entry) for entry in await sessions.load({**key, "subpath": subpath}) or ()]
            assert loaded == entries, subpath
    return 0
