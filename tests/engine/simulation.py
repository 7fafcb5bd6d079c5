"""A simulation of `decide` with pure functions, from any point of any log."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from lockstitch.agents.providers.scripted import Scripted
from lockstitch.engine.config import AgentDefinition, RunConfig, ToolDefinition
from lockstitch.engine.decision.action import CallModel, Finish, Idle, MakeTitle, Pause, RecordEntries, RunTools
from lockstitch.engine.decision.decide import decide
from lockstitch.engine.decision.snapshot import RunSnapshot, is_response
from lockstitch.engine.ports.compactor import NoCompactor
from lockstitch.engine.ports.file_store import NoFileStore
from lockstitch.engine.ports.memory import NoMemoryStore
from lockstitch.engine.ports.tool import Tool
from lockstitch.model import ApprovalWait, Entry, InDoubtWait, Json, Run, Stitch, Thread, tool_result
from lockstitch.model.stitch import at_position

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HEAD = Thread(created_at=NOW, updated_at=NOW, status="running", kind="goal", goal="a goal", fence=1)
RUN = Run(thread_id=HEAD.id, sequence=1, turn=1, first_position=1, started_at=NOW)

EFFECTS = ("safe", "keyed", "once")


async def _nothing(context: Any, arguments: Json) -> str:
    return ""


def setup(max_steps: int = 50, parallel: int = 2, *, on_doubt: str = "tell") -> RunConfig:
    """Return a config with tools of every effect, one that needs approval, and one of the frontend."""
    names = [*EFFECTS, "asking", "browser"]
    tools = [
        ToolDefinition(
            name=name,
            effect=name if name in EFFECTS else "once",
            on_doubt=on_doubt,
            approval=name == "asking",
            side="frontend" if name == "browser" else "backend",
        )
        for name in names
    ]
    schema: Json = {"type": "object"}
    return RunConfig(
        definition=AgentDefinition(
            name="a", model="scripted:x", tools=tuple(tools), max_steps=max_steps, parallel_tools=parallel, title=False
        ),
        version=1,
        provider=Scripted(["unused"]),
        model="x",
        compactor=NoCompactor(),
        memory=NoMemoryStore(),
        files=NoFileStore(),
        tools={name: Tool(name, "", schema, call=_nothing) for name in names if name != "browser"},
    )


@dataclass
class World:
    """A log that grows by decisions. `replies` are the calls that each response requests."""

    setup: RunConfig
    replies: list[list[str]]
    log: list[Stitch]
    fence: int = 1
    effects: int = 0
    """Return how often a `once` tool was run."""

    def go(self, limit: int = 500) -> None:
        """Decide and apply until the end."""
        for _ in range(limit):
            action = decide(self.setup, self.snapshot(), NOW)
            match action:
                case RecordEntries():
                    self.add(*action.entries)
                case CallModel():
                    self._answer(action)
                case RunTools():
                    self._run(action)
                case Pause():
                    self.add(*action.entries)
                    self._reply(action)
                case Finish():
                    self.add(*action.entries)
                    return
                case Idle() | MakeTitle():
                    raise AssertionError(action)
                case _:
                    raise AssertionError(action)
        raise AssertionError("no end in sight")

    def snapshot(self, **head: Any) -> RunSnapshot:
        steps = sum(is_response(stitch) and stitch.data.get("purpose") is None for stitch in self.log)
        last = max((place for place, stitch in enumerate(self.log) if is_response(stitch)), default=0)
        current = HEAD.changed(fence=self.fence, position=len(self.log), **head)
        return RunSnapshot(current, RUN.changed(steps=steps), self.log[last:])

    def add(self, *entries: Entry) -> None:
        for entry in entries:
            self.log.append(at_position(entry, HEAD.id, len(self.log) + 1, None, self.fence, NOW))

    def _answer(self, action: CallModel) -> None:
        names = [] if action.final else self.replies[action.step - 1] if action.step <= len(self.replies) else []
        blocks = [{"type": "text", "text": f"step {action.step}"}]
        blocks += [
            {"type": "tool_use", "id": f"c{action.step}_{index}", "name": name, "input": {}}
            for index, name in enumerate(names)
        ]
        data: Json = {"stop_reason": "tool_use" if names else "end_turn"}
        if action.final:
            data["purpose"] = "final_summary"
        message = {"role": "assistant", "content": blocks}
        self.add(Entry(type="llm_call", run_id=RUN.id, step_number=action.step, message=message, data=data))

    def _run(self, action: RunTools) -> None:
        for call in action.calls:
            tool = self.setup.definition.tool(call.name)
            assert tool is not None
            if tool.effect != "safe":
                self.add(
                    Entry(type="tool_started", run_id=RUN.id, name=call.name, call_id=call.id, call_index=call.index)
                )
            self._result(call, "done", "ok")

    def _reply(self, action: Pause) -> None:
        """Answer the first wait."""
        wait = action.waits[0]
        call = next(call for call in self.snapshot().calls if call.id == wait.call_id)
        if isinstance(wait, ApprovalWait):
            self.add(Entry(type="permission", run_id=RUN.id, name=call.name, call_id=call.id, call_index=call.index))
        else:
            self._result(call, f"answered {wait.kind}", "settled" if isinstance(wait, InDoubtWait) else "ok")

    def _result(self, call: Any, text: str, status: str) -> None:
        self.add(
            Entry(
                type="tool_call",
                run_id=RUN.id,
                name=call.name,
                call_id=call.id,
                call_index=call.index,
                reply_to=call.response,
                status=status,
                message=tool_result(call.id, text),
            )
        )

    def recorded(self) -> list[tuple[Any, ...]]:
        """Return the log without values that differ between two simulations."""
        return [
            (stitch.type, stitch.name, stitch.call_id, stitch.status, str(stitch.message))
            for stitch in self.log
            if _is_recorded(stitch)
        ]


def _is_recorded(stitch: Stitch) -> bool:
    return stitch.type not in ("tool_started", "run_paused", "run_resumed")
