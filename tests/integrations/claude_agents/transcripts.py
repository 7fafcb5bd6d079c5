"""Transcripts in the format of Claude Code: one JSON entry per message or content block."""

from typing import Any
from uuid import UUID, uuid5

MODEL = "claude-sonnet-4-5-20250929"
SPACE = UUID("0f3c2a6e-4b1d-4c55-9e0a-5d2f8f7b9c11")
KEY = {"project_key": "-home-ada-shop", "session_id": "11111111-2222-4333-8444-555555555555"}
SUB = {**KEY, "subpath": "subagents/agent-a1"}

Entry = dict[str, Any]


class Transcript:
    """Entries of one session. Each entry follows the last one, unless `parent` names another one."""

    def __init__(self, name: str = "main", *, sidechain: bool = False) -> None:
        self._name = name
        self._sidechain = sidechain
        self._last: str | None = None
        self.entries: list[Entry] = []

    def prompt(self, content: Any, **more: Any) -> Entry:
        """Add a message of the user."""
        return self._add("user", {"role": "user", "content": content}, **more)

    def block(
        self, message_id: str, block: Any, *, output: int = 7, stop: str | None = None, model: str = MODEL, **more: Any
    ) -> Entry:
        """Add one content block of a response. Each of them repeats the usage of the response."""
        usage = {
            "input_tokens": 3,
            "cache_creation_input_tokens": 20,
            "cache_read_input_tokens": 100,
            "output_tokens": output,
            "service_tier": "standard",
        }
        message = {"model": model, "id": message_id, "type": "message", "role": "assistant", "content": [block]}
        message |= {"stop_reason": stop, "stop_sequence": None, "usage": usage}
        return self._add("assistant", message, requestId=f"req_{message_id}", **more)

    def answer(self, message_id: str, text: str, **more: Any) -> Entry:
        """Add a response without calls."""
        return self.block(message_id, {"type": "text", "text": text}, **{"stop": "end_turn", **more})

    def call(self, message_id: str, call_id: str, name: str = "Read", **more: Any) -> Entry:
        """Add a tool call of a response."""
        block = {"type": "tool_use", "id": call_id, "name": name, "input": {"file_path": f"/shop/{call_id}.py"}}
        return self.block(message_id, block, **{"stop": "tool_use", **more})

    def result(self, call_id: str, text: str, **more: Any) -> Entry:
        """Add the result of a tool call."""
        block = {"tool_use_id": call_id, "type": "tool_result", "content": text}
        details = {"type": "text", "file": {"filePath": "/shop", "numLines": 2.0}}
        return self._add("user", {"role": "user", "content": [block]}, toolUseResult=details, **more)

    def system(self, subtype: str, **more: Any) -> Entry:
        """Add an entry of the program."""
        return self._add("system", None, subtype=subtype, level="info", isMeta=False, **more)

    def plain(self, type: str, **fields: Any) -> Entry:
        """Add an entry without a uuid."""
        self.entries.append({"type": type, **fields, "sessionId": KEY["session_id"]})
        return self.entries[-1]

    def _add(self, type: str, message: Any, parent: Any = ..., **more: Any) -> Entry:
        number = len(self.entries)
        entry: Entry = {
            "parentUuid": self._last if parent is ... else parent,
            "isSidechain": self._sidechain,
            "userType": "external",
            "cwd": "/home/ada/shop",
            "sessionId": KEY["session_id"],
            "version": "2.1.240",
            "type": type,
            **({} if message is None else {"message": message}),
            **more,
            "uuid": str(uuid5(SPACE, f"{self._name} {number}")),
            "timestamp": f"2026-11-01T10:{number // 60:02}:{number % 60:02}.250Z",
        }
        self._last = entry["uuid"]
        self.entries.append(entry)
        return entry


def conversation() -> Transcript:
    """Return two turns: one with thinking, two parallel calls and an answer, one with an answer only."""
    talk = Transcript()
    talk.plain("queue-operation", operation="enqueue", content="Why is the sum wrong?")
    talk.plain("file-history-snapshot", messageId="m", snapshot={"trackedFileBackups": {}}, isSnapshotUpdate=False)
    talk.prompt("Why is the sum wrong?")
    talk.block("msg_1", {"type": "thinking", "thinking": "Look at it.", "signature": "c2ln"}, output=1)
    talk.block("msg_1", {"type": "text", "text": "I read the files."}, output=1)
    talk.call("msg_1", "toolu_1")
    first = talk.entries[-1]["uuid"]
    talk.call("msg_1", "toolu_2", output=31)
    second = talk.entries[-1]["uuid"]
    talk.result("toolu_1", "def add(a, b): return a - b", parent=first)
    talk.result("toolu_2", "No such file", parent=second)
    talk.entries[-1]["message"]["content"][0]["is_error"] = True
    talk.answer("msg_2", "It subtracts.", output=5)
    talk.system("turn_duration", durationMs=1832)
    talk.plain("ai-title", aiTitle="Wrong sum")
    talk.prompt([{"type": "text", "text": "Thanks"}])
    talk.answer("msg_3", "You are welcome.", output=4)
    talk.plain("last-prompt", lastPrompt="Thanks")
    return talk
