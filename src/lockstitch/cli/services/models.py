"""`ModelOptions` and `StoredApp`: agents without an app, from a model on the command line or a stored definition.

The agent of a chat with a model has the text of the model as its name, such as `openai:llama3`. So a thread shows which
model answers, the same command continues it, and an app with an agent of this name continues it in a worker or on the
pages. The definition is stored like that of other agents: with the system text and the tools, without URLs and keys.
"""

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lockstitch.agents import Agent, App, StoredAgent
from lockstitch.agents.registry import is_model, provider_at, resolve_provider, server_prefix
from lockstitch.agents.tools.mcp import McpServer
from lockstitch.engine.ports.provider import Provider
from lockstitch.errors import NotFound, Refused
from lockstitch.model import Thread
from lockstitch.sync import SyncStore

_MAX_RETRIES: Final = 2
"""Retries of a model call. A person at a terminal prefers the error of a server that does not run."""


@dataclass(frozen=True)
class ModelOptions:
    """The options of commands that run without an app."""

    base_url: str | None = None
    api_key: str | None = None
    mcp: Sequence[str] = ()
    max_tokens: int = 4096

    def agent(self, model: str, system: str, tools: Sequence[McpServer]) -> Agent:
        """Return the agent of a model. Its name is the text of the model."""
        agent = Agent(
            model,
            model=model,
            base_url=self.base_url,
            api_key=self.api_key,
            instructions=system,
            tools=tools,
            max_tokens=self.max_tokens,
            max_retries=_MAX_RETRIES,
        )
        self._resolve_stored(agent)
        return agent

    def stored_agent(self, name: str, tools: Sequence[McpServer]) -> Agent:
        """Return an agent by its stored definition, with the tools of the MCP servers."""
        agent = StoredAgent(name, tools=tools)
        self._resolve_stored(agent)
        return agent

    def _resolve_stored(self, agent: Agent) -> None:
        """Let an agent find the servers of stored models by the URLs of this process."""
        api = agent.name.partition(":")[0] if is_model(agent.name) else None
        agent.spec.resolve = lambda model: self._resolved(model, api)

    def _resolved(self, model: str, api: str | None) -> tuple[Provider, str]:
        """Return the provider of a stored model. A model of another server needs the URL of that server."""
        prefix, _, name = model.partition(":")
        if is_model(model):
            return resolve_provider(model, base_url=self.base_url, api_key=self.api_key)
        urls = [(api or "openai", self.base_url)]
        urls += [("openai", os.environ.get("OPENAI_BASE_URL")), ("anthropic", os.environ.get("ANTHROPIC_BASE_URL"))]
        for known, url in urls:
            if url and server_prefix(url) == prefix:
                return provider_at(f"{known}:{name}", base_url=url, api_key=self.api_key), name
        raise Refused(f"The model {model} is at a server that is not known here. Pass its URL with --base-url.")


class StoredApp(App):
    """An app for commands without --app. It creates agents by their stored definition."""

    def __init__(self, options: ModelOptions) -> None:
        super().__init__()
        self._options = options
        self._tools = [_mcp_server(text) for text in options.mcp]
        self._replaced: list[Agent] = []

    def agent(self, name: str | None) -> Agent:
        """Return the agent with this name. A run raises `NotFound` if the store has no definition of it."""
        if name is None:
            raise NotFound("This thread has no agent. Name an agent or a model.")
        if name not in self.agents:
            self.agents[name] = self._options.stored_agent(name, self._tools).bind(self)
        return self.agents[name]

    def change(self, model: str, system: str) -> Agent:
        """Add or replace the agent of a model. Return the agent with this system text."""
        agent = self._options.agent(model, system, self._tools).bind(self)
        if model in self.agents:
            self._replaced.append(self.agents[model])
        self.agents[model] = agent
        return agent

    async def close(self) -> None:
        """Close the agents, including replaced ones."""
        await super().close()
        for agent in self._replaced:
            await agent.close()


def system_text(value: str) -> str:
    """Return a system text. `@file` reads it from a file."""
    if not value.startswith("@"):
        return value
    try:
        return Path(value[1:]).read_text(encoding="utf-8").strip()
    except UnicodeDecodeError as exc:
        raise Refused(f"The file {value[1:]} is not valid UTF-8.") from exc


def stored_system(store: SyncStore, head: Thread | None) -> str:
    """Return the system text of the last run of a thread, or an empty text."""
    if head is None or head.agent is None or head.version is None:
        return ""
    definition = store.agents.version(head.project, head.agent, head.version).definition
    return str(definition.get("instructions") or "")


def _mcp_server(text: str) -> McpServer:
    """Return the MCP server at a URL, or the one that a command starts."""
    if text.startswith(("http://", "https://")):
        return McpServer.http(text)
    try:
        command, *arguments = shlex.split(text)
    except ValueError as exc:
        raise Refused(f"--mcp {text!r} is neither a URL nor a command: {exc}.") from exc
    return McpServer.stdio(command, arguments)
