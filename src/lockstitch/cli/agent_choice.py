"""`AgentChoice`: the agent of `run` and `chat`: an agent of the app, a model, or the stored agent of a thread."""

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lockstitch.cli.session import Session
from lockstitch.errors import NotFound, Refused
from lockstitch.model import Thread
from lockstitch.sync import SyncStore

if TYPE_CHECKING:
    from lockstitch.agents import Agent, App
    from lockstitch.cli.services.models import StoredApp

_DEFAULT_MAX_TOKENS = 4096


class AgentChoice:
    """The agent that the command line names, and the app that executes it.

    A name with the prefix of a known API is a model. Without a name, it is the agent of the thread. Raises `Refused` if
    the options contradict the name.
    """

    def __init__(
        self,
        session: Session,
        name: str | None,
        base_url: str | None,
        api_key: str | None,
        mcp: Sequence[str] | None,
        system: str | None,
        max_tokens: int | None,
    ) -> None:
        from lockstitch.agents.registry import is_model
        from lockstitch.cli.services.models import system_text

        if session.is_remote and (base_url or api_key or mcp or system is not None or max_tokens is not None):
            raise Refused(
                "--base-url, --api-key, --mcp, --system and --max-tokens need the database URL of the store. "
                "The agents of a server run there."
            )
        self._name = name
        self._base_url = base_url
        self._model = name if name is not None and is_model(name) and not session.is_remote else None
        if self._model is None and (system is not None or max_tokens is not None):
            raise Refused("--system and --max-tokens need a model such as openai:gpt-5, not an agent.")
        self._system = None if system is None else system_text(system)
        self._stored: StoredApp | None = None
        self.app: App
        if self._model is None and (session.has_app or name is not None):
            if base_url or api_key or mcp:
                raise Refused("--base-url, --api-key and --mcp need a model such as openai:gpt-5, not an agent.")
            self.app = session.app()
            if name is not None:
                self.app.agent(name)
        else:
            self.app = self._stored = _stored_app(base_url, api_key, mcp, max_tokens or _DEFAULT_MAX_TOKENS)
            if self._model is not None:
                # Raises the error of a missing key before a store is created.
                self._stored.change(self._model, self._system or "")

    def agent(self, store: SyncStore, thread: str | None) -> "Agent":
        """Return the agent. A model keeps the system text of the thread, unless --system names another one."""
        from lockstitch.cli.services.models import stored_system

        head = _known(store, thread)
        if self._model is not None and self._stored is not None:
            system = stored_system(store, head) if self._system is None else ""
            return self._stored.change(self._model, system) if system else self.app.agent(self._model)
        if self._name is not None:
            return self.app.agent(self._name)
        if head is None:
            raise NotFound(f"Thread {thread} not found.")
        return self.app.agent(head.agent)

    @property
    def command(self) -> str:
        """The command that continues the chat, without secrets."""
        words = ["lockstitch", "chat", str(self._name)]
        if self._base_url:
            from lockstitch.agents.providers.http import without_secrets

            words += ["--base-url", without_secrets(self._base_url)]
        return shlex.join(words)


def app_or_stored(
    session: Session, base_url: str | None = None, api_key: str | None = None, mcp: Sequence[str] | None = None
) -> "App":
    """Return the app of --app. Without one, return an app that creates agents by their stored definition."""
    if not session.has_app:
        return _stored_app(base_url, api_key, mcp, _DEFAULT_MAX_TOKENS)
    if base_url or api_key or mcp:
        raise Refused("--base-url, --api-key and --mcp are for threads without an app. The app has its own servers.")
    return session.app()


def _stored_app(base_url: str | None, api_key: str | None, mcp: Sequence[str] | None, max_tokens: int) -> "StoredApp":
    from lockstitch.cli.services.models import ModelOptions, StoredApp

    return StoredApp(ModelOptions(base_url, api_key, tuple(mcp or ()), max_tokens))


def _known(store: SyncStore, thread: str | None) -> Thread | None:
    if thread is None:
        return None
    try:
        return store.thread(thread)
    except NotFound:
        return None
