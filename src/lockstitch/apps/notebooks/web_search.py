"""`WebSearch`: the web search of the Researcher, as a tool of the provider, an MCP server or a function."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from lockstitch import Refused, Tool, tool
from lockstitch.ext import Json, Provider, ToolSource

SearchTool = Tool | ToolSource | Callable[..., Any] | Json
"""A web search: a tool, a tool source such as `McpServer`, a function, or the definition of a provider's tool."""

PROVIDER_TOOLS: Final[dict[str, Json]] = {
    "anthropic": {"type": "web_search_20250305", "name": "web_search"},
    "openai": {"type": "web_search"},
}
"""Definitions of the web search that providers execute, by the name of the provider."""


@dataclass(frozen=True, slots=True)
class WebSearch:
    """The tools with which the Researcher searches the web. Without any, it has no web search."""

    tools: Sequence[Tool | ToolSource] = ()
    """Tools that this process executes."""
    server_tools: Sequence[Json] = ()
    """Definitions of tools that the provider executes."""

    def __bool__(self) -> bool:
        return bool(self.tools or self.server_tools)


def web_search_of(
    value: Literal["provider"] | SearchTool | Sequence[SearchTool] | None, model: str | Provider | None
) -> WebSearch:
    """Return the web search of an option of `Notebooks`.

    Raises `Refused` if there is no model, or if `provider` is set and the provider has no known web search.
    """
    if value is None:
        return WebSearch()
    if model is None:
        raise Refused("web_search needs a model. Pass model, or leave web_search out.")
    if value == "provider":
        return WebSearch(server_tools=[_provider_tool(model)])
    many = isinstance(value, Sequence) and not isinstance(value, str)
    items = list(cast("Sequence[SearchTool]", value)) if many else [cast("SearchTool", value)]
    server_tools = [cast("Json", item) for item in items if isinstance(item, dict)]
    return WebSearch([_as_tool(item) for item in items if not isinstance(item, dict)], server_tools)


def _provider_tool(model: str | Provider) -> Json:
    name = model.partition(":")[0] if isinstance(model, str) else model.name
    if name not in PROVIDER_TOOLS:
        raise Refused(
            f"No web search of the provider {name} is known. Pass the definition of its tool, an MCP server or a "
            "function as web_search."
        )
    return PROVIDER_TOOLS[name]


def _as_tool(item: Any) -> Tool | ToolSource:
    if isinstance(item, Tool):
        return item
    if callable(getattr(item, "tools", None)):
        return cast("ToolSource", item)
    if callable(item):
        # A search only reads, so an interrupted one may run again.
        return tool(effect="safe")(item)
    raise Refused(f"web_search must be 'provider', a tool, an MCP server or a function, not {item!r}.")
