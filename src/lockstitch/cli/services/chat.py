"""`ChatLoop`: a conversation with one agent in the terminal."""

import re
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING

from rich.text import Text

from lockstitch.agents.stored import StoredAgent
from lockstitch.cli.actions import actions_of
from lockstitch.cli.render import messages
from lockstitch.cli.render.output import cost, plural
from lockstitch.cli.render.progress import RunProgress, sums
from lockstitch.cli.render.threads import explain
from lockstitch.cli.runs import WAITING, Act, Listener, answers_in_text, execute, outcome, prompting, resuming
from lockstitch.cli.session import Session
from lockstitch.engine.ports.provider import ProviderError
from lockstitch.errors import Conflict, LockstitchError, NotFound, Refused
from lockstitch.model import (
    ApprovalWait,
    FrontendToolWait,
    InDoubtWait,
    Json,
    QuestionWait,
    Thread,
    Wait,
    call_key,
    parse_waits,
    tool_uses,
)
from lockstitch.model.wait import without_next_message
from lockstitch.store import Store
from lockstitch.sync import SyncStore


class Prompter:
    """Reads lines from stdin. A terminal gets a prompt and line editing, a pipe does not."""

    def __init__(self) -> None:
        self.at_terminal = sys.stdin.isatty() and sys.stdout.isatty()
        reconfigure = getattr(sys.stdin, "reconfigure", None)
        if reconfigure is not None:
            # Bytes that are not valid text become replacement characters, so that they do not end the conversation.
            reconfigure(errors="replace")
        if self.at_terminal:
            with suppress(ImportError):
                # Enables line editing in `input`.
                import_module("readline")

    def ask(self, prompt: str) -> str | None:
        """Return the next line, or None at the end of the input."""
        sys.stdout.flush()
        if self.at_terminal:
            try:
                return input(prompt)
            except EOFError:
                return None
        line = sys.stdin.readline()
        return line.rstrip("\r\n") if line else None


if TYPE_CHECKING:
    from lockstitch.agents import Agent, App
    from lockstitch.cli.services.models import StoredApp

PROMPT = "> "

COMMANDS = {
    "/model": ("[NAME]", "Show the model, or continue with another model, such as openai:gpt-5."),
    "/system": ("[TEXT|@FILE]", "Show the system text, or set it for the next messages."),
    "/cost": ("", "Show the turns, tokens and costs of the thread."),
    "/retry": ("", "Answer the last message again."),
    "/fork": ("[KEY]", "Continue in a copy of the thread."),
    "/help": ("", "Show this help."),
    "/quit": ("", "Leave, as Ctrl-D does."),
}
"""The commands of a chat, with their arguments and descriptions."""

_COMMAND = re.compile(r"/[a-z]+(?=\s|$)")

_RECENT = 200
"""Number of recent stitches to search for waiting calls."""


class InputEnded(Exception):
    """The user left without an answer."""


class ChatLoop:
    """One user, one agent, one thread. A message is stored before the agent answers it."""

    def __init__(self, session: Session, store: SyncStore, app: "App", agent: "Agent", name: str) -> None:
        self._session = session
        self._store = store
        self._actions = actions_of(store)
        self._app = app
        self._agent = agent
        self._name = name
        self._progress = RunProgress(session.out, markdown=answers_in_text(agent))
        self._prompter = Prompter()

    def talk(self, user: str | None) -> int:
        """Read and answer messages until the user leaves. Return the exit code. First, finish an interrupted run."""
        try:
            head = self._known(user)
            if head is not None:
                self._welcome(head)
                self._turn(resuming(self._app, head))
            while (text := self._next_message()) is not None:
                if not text.strip():
                    continue
                word = _COMMAND.match(text)
                if word is None:
                    # A second slash marks a message that starts with a slash.
                    message = text[1:] if text.startswith("//") else text
                    act = prompting(self._agent, message, thread=self._name, user_id=user)
                    self._try(lambda act=act: self._turn(act))
                elif word[0] == "/quit":
                    break
                else:
                    name, argument = word[0], text[word.end() :].strip()
                    self._try(lambda name=name, argument=argument: self._command(name, argument))
        except InputEnded:
            waits = self._store.thread(self._name).waits
            self._session.out.note(explain(self._name, without_next_message(waits)))
            return WAITING
        return 0

    def _known(self, user: str | None) -> Thread | None:
        try:
            head = self._store.thread(self._name)
        except NotFound:
            return None
        if user is not None and head.user_id != user:
            raise Refused(f"Thread {self._name} belongs to another user.")
        return head

    def _welcome(self, head: Thread) -> None:
        spent = cost(self._store.overview([head])[0].total_cost)
        parts = [f"thread {self._name}", head.title or "", plural(head.last_turn, "turn"), spent]
        self._progress.aside(" · ".join(part for part in parts if part))

    def _next_message(self) -> str | None:
        """Return the next message. Return None at the end of the input and for Ctrl-C at the prompt."""
        try:
            return self._prompter.ask(PROMPT)
        except KeyboardInterrupt:
            return None
        finally:
            if self._prompter.at_terminal:
                self._progress.end_line()

    def _try(self, step: Callable[[], None]) -> None:
        try:
            step()
        except (Conflict, Refused, NotFound, ProviderError, OSError) as exc:
            # A user can try again. A program needs the error.
            if not self._prompter.at_terminal or isinstance(exc, BrokenPipeError):
                raise
            self._progress.aside(f"lockstitch: {exc}", "red")

    def _turn(self, act: Act) -> None:
        """Execute a run to its end, and ask the user for each reply that it waits for."""
        while True:
            result = execute(self._store, act, self._progress, name=self._name, stop=self._stop)
            if result is None:
                return
            if result["status"] != "waiting":
                break
            self._reply(without_next_message(parse_waits(result["waiting_for"])))
            act = resuming(self._app, self._store.thread(self._name))
        if self._session.json_output:
            self._session.out.json({key: value for key, value in result.items() if key != "title"})
        if text := outcome(result, self._name):
            if self._prompter.at_terminal:
                text = text.replace(f"Run `lockstitch retry {self._name}`", "Type /retry")
            self._progress.aside(text, "yellow")
        total = self._store.overview([self._store.thread(self._name)])[0].total_cost
        self._progress.aside(sums(result, total))

    def _stop(self) -> bool:
        """Cancel the run after Ctrl-C. Return True if the caller should wait for the end of the run."""
        try:
            self._actions.cancel(self._name)
        except NotFound:
            return False
        except LockstitchError:
            # The run has just ended.
            pass
        return True

    # Commands

    def _command(self, name: str, argument: str) -> None:
        match name:
            case "/model":
                self._change_model(argument)
            case "/system":
                self._change_system(argument)
            case "/cost":
                self._show_cost()
            case "/retry":
                self._retry()
            case "/fork":
                fork = self._store.fork(self._name, key=argument or None)
                self._move_to(fork, "a copy of the thread")
            case "/help":
                width = max(len(f"{word} {parts}") for word, (parts, _) in COMMANDS.items())
                for word, (parts, text) in COMMANDS.items():
                    self._session.out.note(f"{f'{word} {parts}':<{width}}  {text}")
                self._session.out.note("Type // for a message that starts with a slash.")
            case _:
                raise Refused(f"Unknown command {name}. Type /help for the commands, or //… for a message.")

    def _change_model(self, name: str) -> None:
        from lockstitch.agents.registry import is_model

        if not name:
            definition = self._agent.spec.static_definition
            self._progress.aside(f"{self._agent.name} · {definition.model}")
            return
        models = self._models()
        api = self._agent.name.partition(":")[0]
        self._agent = models.change(name if is_model(name) else f"{api}:{name}", self._system())
        self._progress.aside(f"The next message goes to {self._agent.name}.")

    def _change_system(self, text: str) -> None:
        from lockstitch.cli.services.models import system_text

        if not text:
            self._session.out.note(self._system() or "There is no system text.")
            return
        self._agent = self._models().change(self._agent.name, system_text(text))
        self._progress.aside("The next message has this system text.")

    def _models(self) -> "StoredApp":
        """Return the app of a chat with a model. Raises `Refused` in a chat with another agent."""
        from lockstitch.agents.registry import is_model
        from lockstitch.cli.services.models import StoredApp

        if not isinstance(self._app, StoredApp) or not is_model(self._agent.name):
            raise Refused(f"The definition of agent {self._agent.name} is code. Change it there.")
        return self._app

    def _system(self) -> str:
        from lockstitch.cli.services.models import stored_system

        if isinstance(self._agent, StoredAgent):
            return stored_system(self._store, self._store.thread(self._name))
        return self._agent.spec.static_definition.instructions

    def _show_cost(self) -> None:
        head = self._store.thread(self._name)
        row = self._store.overview([head])[0]
        tokens = f"{row.usage['input_tokens']:,} tokens in, {row.usage['output_tokens']:,} out"
        spent = "unknown cost" if row.total_cost is None else cost(row.total_cost)
        self._progress.aside(" · ".join([plural(head.last_turn, "turn"), tokens, spent]))

    def _retry(self) -> None:
        """Retry a failed or cancelled run. Answer a completed turn again, in a fork that takes the key."""
        head = self._store.thread(self._name)
        runs = [run for run in self._store.runs(head) if run.parent_run_id is None]
        if runs and runs[-1].status != "completed":
            agent = self._agent

            async def again(store: Store, listener: Listener) -> None:
                await agent.retry(head, store=store, listener=listener)

            return self._turn(again)
        queued = self._store.regenerate(head, agent=self._agent.name)
        if queued.thread.key is None:
            self._move_to(queued.thread, "a copy of the thread with the new answer")
        return self._turn(resuming(self._app, queued.thread))

    def _move_to(self, head: Thread, what: str) -> None:
        self._name = head.key or str(head.id)
        self._progress.aside(f"Now in {what}: {self._name}")

    # Replies during a run

    def _reply(self, waits: list[Wait]) -> None:
        calls = self._calls()
        results: list[Json] = []
        for wait in waits:
            # By key, so that the reply goes to the call shown here and not to a later call with the same id.
            call_id = wait.key or str(wait.call_id)
            if call_id in calls:
                self._progress.aside(messages.part(calls[call_id]))
            match wait:
                case ApprovalWait():
                    self._approve(call_id)
                case InDoubtWait():
                    self._settle(call_id)
                case QuestionWait():
                    self._actions.answer(self._name, self._ask("Your answer: "))
                case FrontendToolWait():
                    ask = self._ask("The frontend would run this. Result: ")
                    results.append({"tool_use_id": call_id, "content": ask})
                case _:
                    raise InputEnded
        if results:
            self._actions.submit_results(self._name, results)

    def _approve(self, call_id: str) -> None:
        while True:
            word, _, reason = self._ask("Approve this call? y, or n and a reason:  ").strip().partition(" ")
            if word.lower() in ("y", "yes"):
                return self._actions.approve(self._name, call_id)
            if word.lower() in ("n", "no"):
                return self._actions.deny(self._name, call_id, reason=reason.strip() or None)

    def _settle(self, call_id: str) -> None:
        self._progress.aside(Text("This call was interrupted and its outcome is unknown.", style="yellow"))
        while True:
            word, _, result = self._ask("Outcome? done and the result, or redo:  ").strip().partition(" ")
            if word.lower() == "redo":
                return self._actions.settle(self._name, call_id, redo=True)
            if word.lower() == "done":
                return self._actions.settle(self._name, call_id, done=result.strip())

    def _ask(self, question: str) -> str:
        try:
            ask = self._prompter.ask(question)
        except KeyboardInterrupt:
            ask = None
        if ask is None:
            self._progress.end_line()
            raise InputEnded
        return ask

    def _calls(self) -> dict[str, Json]:
        """Return the calls of the last responses, of members too, by their keys."""
        head = self._store.thread(self._name)
        recent = self._store.stitches(head, max(head.first_position, head.position - _RECENT))
        responses = [stitch for stitch in recent if stitch.type == "llm_call"]
        return {
            call_key(response.id, place): call
            for response in responses
            for place, call in enumerate(tool_uses(response.message))
        }
