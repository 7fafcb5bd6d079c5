"""`version_changes`: the differences between the definitions of two versions of an agent, by field."""

import json
from typing import Any, NamedTuple, cast

from lockstitch.model import AgentVersion, Json
from lockstitch.store.reports.alignment import Allowance, changed_lines
from lockstitch.store.reports.diff import Change
from lockstitch.store.tables import Agents


class VersionChanges(NamedTuple):
    """A version of an agent, and its differences from another version."""

    version: AgentVersion
    since: AgentVersion | None
    """The version that it is compared with. None: the first version has no previous version."""
    changes: list[Change]
    """The fields that differ. Each has the lines of a unified diff."""

    def as_json(self) -> Json:
        return {
            "agent": self.version.name,
            "version": self.version.version,
            "since": self.since.version if self.since is not None else None,
            "changes": [change.as_json() for change in self.changes],
        }


async def version_changes(
    agents: Agents, project: str, name: str, version: int, since: int | None = None
) -> VersionChanges:
    """Compare a version of an agent with the version `since`. None: with the previous version.

    Raises `NotFound` if the agent has no such version.
    """
    later = await agents.version(project, name, version)
    if since is not None:
        earlier = await agents.version(project, name, since)
    else:
        (earlier,) = await agents.versions(project, name, newest=1, before=version) or (None,)
    changes = definition_changes(earlier.definition, later.definition) if earlier is not None else []
    return VersionChanges(later, earlier, changes)


def definition_changes(before: Json, after: Json) -> list[Change]:
    """Return the fields that differ, in the order of the later definition. Each has the lines of a unified diff.

    Each tool is a field: `tool NAME`. A field that only one definition has is None in the other.

    Args:
        before: The earlier definition.
        after: The later definition.
    """
    allowance = Allowance()
    a, b = _fields(before), _fields(after)
    names = [name for name in {**b, **a} if (name in a, a.get(name)) != (name in b, b.get(name))]
    return [Change(name, a.get(name), b.get(name), _lines(name, a, b, allowance)) for name in names]


def tools_of(definition: Json) -> list[Json]:
    """Return the tools of a definition. Empty if its tools are not objects with names."""
    tools: Any = definition.get("tools")
    if not isinstance(tools, list):
        return []
    objects = [cast("Json", tool) for tool in cast("list[Any]", tools) if isinstance(tool, dict)]
    named = [tool for tool in objects if isinstance(tool.get("name"), str)]
    return named if len(named) == len(cast("list[Any]", tools)) else []


def _fields(definition: Json) -> Json:
    tools = {f"tool {tool['name']}": tool for tool in tools_of(definition)}
    fields = {name: value for name, value in definition.items() if name != "tools" or (value and not tools)}
    return fields | tools


def _lines(name: str, a: Json, b: Json, allowance: Allowance) -> list[str]:
    left, right = _text(name, a).splitlines(), _text(name, b).splitlines()
    lines = changed_lines(left, right, allowance)
    return lines if lines is not None else [*(f"-{line}" for line in left), *(f"+{line}" for line in right)]


def _text(name: str, fields: Json) -> str:
    """Return a field as text: a string unchanged, a tool as its description and its other fields, else JSON."""
    if name not in fields:
        return ""
    value: Any = fields[name]
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and name.startswith("tool "):
        tool = cast("Json", value)
        others = {field: item for field, item in tool.items() if field != "description"}
        return f"{tool.get('description') or ''}\n{_json(others)}"
    return _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)
