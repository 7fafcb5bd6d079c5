"""Files that a response tells of, because code it executed made them."""

from typing import Any

from lockstitch.records import Stitch
from lockstitch.records.message import blocks
from lockstitch.runtime.situation import Situation


def new_files(situation: Situation, response: Stitch) -> list[str]:
    """Files that the response tells of and nobody has looked at since."""
    seen = {stitch.data.get("file_id") for stitch in situation.since if stitch.type.startswith("file_")}
    found: list[str] = []
    for block in blocks(response.message) if response.message else []:
        if str(block.get("type", "")).endswith("code_execution_tool_result"):
            _collect_files(block.get("content"), found)
    return [file_id for file_id in dict.fromkeys(found) if file_id not in seen]


def _collect_files(value: Any, found: list[str]) -> None:
    if isinstance(value, list):
        for item in value:  # pyright: ignore[reportUnknownVariableType]
            _collect_files(item, found)
    elif isinstance(value, dict):
        if isinstance(value.get("file_id"), str):  # pyright: ignore[reportUnknownMemberType]
            found.append(value["file_id"])  # pyright: ignore[reportUnknownArgumentType]
        _collect_files(value.get("content"), found)  # pyright: ignore[reportUnknownMemberType]
