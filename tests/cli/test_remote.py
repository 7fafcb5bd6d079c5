"""Commands with the URL of a server: the same output and exit code as with the URL of its database."""

import asyncio
import inspect
import io
import json
import os
import re
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pytest

from lockstitch import sync
from lockstitch.cli import shell_completion
from lockstitch.cli.commands import log
from lockstitch.cli.remote import RemoteActions
from lockstitch.cli.render.progress import RunProgress
from lockstitch.client.remote_store import RemoteStatistics, RemoteStore
from lockstitch.model import Entry, Thread
from lockstitch.model.wait import InDoubtWait
from lockstitch.store import Store, open_store
from lockstitch.store.reports.statistics import Statistics
from tests.cli import shop
from tests.cli.calling import Call, CommandResult
from tests.cli.remote import ServerThread
from tests.cli.story import Story, tell

APP = ("--app", "tests.cli.shop:app")

_VARYING = (
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}"), "<id>"),
    (re.compile(r"\b[0-9a-f]{32}-"), "<key>-"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ][\d:.]+Z"), "<time>"),
    (re.compile(r"\blst_[\w-]+"), "<token>"),
)
_AGE = re.compile(r" *(\bAGE\b|\b\d+[sm]\b) *")
"""An age in a table or a sentence. Its column has the width of its longest text."""


class Both(NamedTuple):
    """A command with the URL of a database and with that of a server."""

    call: Call
    database: str
    server: str

    def same(self, *arguments: str, app: bool = False, varying: bool = False) -> CommandResult:
        """Call a command twice, compare the output, and return the result of the server.

        Args:
            arguments: Arguments of the command.
            app: Pass the app to the command with the database.
            varying: The stores are different ones: ids and times differ.
        """
        local = self.call("--store", self.database, *(APP if app else ()), *arguments)
        remote = self.call("--store", self.server, *arguments)
        assert _normal(remote, varying) == _normal(local, varying)
        return remote


def _normal(result: CommandResult, varying: bool) -> tuple[int, str, str]:
    return result.code, _plain(result.out, varying), _plain(result.err, varying)


def _plain(text: str, varying: bool) -> str:
    text = _AGE.sub(" <age> ", text)
    for pattern, name in _VARYING if varying else ():
        text = pattern.sub(name, text)
    return text


# Commands that read


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Story, ServerThread]]:
    """A store with a story and a thread that waits, and a server of it that executes nothing."""
    url = f"sqlite:///{tmp_path_factory.mktemp('story')}/store.db"
    story = tell(url)
    with sync.open_store(url) as store:
        sync.run(shop.app.agent("payer-twice"), "Pay", store=store, thread="shop/order 7", user_id="bob")
        sync.run(shop.app.agent("adder"), "Add", store=store, thread="sums")
    with ServerThread(url, shop.app, work=False) as server:
        yield story, server


@pytest.fixture
def read(call: Call, told: tuple[Story, ServerThread]) -> Both:
    return Both(call, told[1].store_url, told[1].url)


READING = [
    "threads",
    "threads --json",
    "threads --no-evaluations --json",
    "threads --status failed --since 12h",
    "threads --user ada --agent helper --kind chat --limit 1 --json",
    "threads --after GOAL --limit 2",
    "threads --tree",
    "threads --tree --json",
    "threads --tree --status pending",
    "threads --tree GOAL",
    "threads --project elsewhere --json",
    "show customer-42 --project elsewhere",
    "show customer-42",
    "show customer-42 --json --stitches",
    "show GOAL_END",
    "show CHILD --json",
    "show CHARGE --messages",
    "show CHARGE_END --json --messages --depth 1",
    "show CHARGE FAILED",
    "show CHARGE customer-42 --json",
    "show customer-42 GOAL",
    "show nothing",
    "show 01",
    "context customer-42",
    "context customer-42 --json",
    "history customer-42 --limit 2 --offset 1",
    "history customer-42 --before 3 --json",
    "log customer-42",
    "log CHARGE --json",
    "log CHILD",
    "request sums:5",
    "request customer-42:99",
    "tail -n 4",
    "tail --json -n 99",
    "tail customer-42 -n 3",
    "errors",
    "errors --each --limit 1",
    "errors --since 12h --json",
    "search graz",
    "search graz --limit 2 --json",
    "search nothing-like-this",
    "stats",
    "stats --json --since 2026-01-01",
    "stats --by agent --by day",
    "stats --by status --json",
    "stats --tools --latency --runs slowest --json",
    "stats --runs failed",
    "stats tokens",
    "stats tokens --json",
    "size customer-42",
    "size customer-42 --json",
    "inbox",
    "inbox --json",
    "watch customer-42 --json --project default",
    "token list",
    "token list --json",
    "ingest status",
    "ingest status --json",
    "ingest retry",
    "ingest retry GOAL",
    "export --run CHARGE -",
    "delete GOAL customer-42 --dry-run",
    "retry --status failed --since 12h --dry-run",
    "cancel --status waiting --dry-run --json",
    "approve --status waiting --dry-run",
    "sql .tables",
]


@pytest.mark.parametrize("line", READING)
def test_command_reads_the_same_from_server(read: Both, told: tuple[Story, ServerThread], line: str) -> None:
    story = told[0]
    names = {
        "GOAL": str(story.goal.id),
        "GOAL_END": str(story.goal.id)[-8:],
        "CHILD": str(story.children[0].id),
        "CHARGE": str(story.charge.id),
        "CHARGE_END": str(story.charge.id)[-12:],
        "FAILED": str(story.failed.id),
    }
    arguments = [names.get(word, word) for word in line.split()]
    if line.startswith("watch"):
        # The time of the picture and the ages of heartbeats differ.
        local, remote = (json.loads(read.call("--store", url, *arguments).out) for url in (read.database, read.server))
        assert {**remote, "at": "", "workers": []} == {**local, "at": "", "workers": []}
        return
    read.same(*arguments)


def test_sql_reads_the_same_from_server(read: Both) -> None:
    assert "customer-42" in read.same("sql", "SELECT key, status FROM threads WHERE key <> '' ORDER BY 1").out
    assert read.same("sql", "SELECT nothing FROM threads").code == 2
    read.same("sql", "--lens", "three_table", "SELECT total_runs FROM agent_config ORDER BY 1", "--json")


def test_thread_is_found_by_a_key_with_a_slash(read: Both) -> None:
    assert "shop/order 7" in read.same("show", "shop/order 7").out
    assert "2 calls of thread" in read.same("approve", "shop/order 7", "--no-resume").err
    for name in ("shop/nothing", "", ".", "..", "a?b#c%2F", "x" * 400):
        assert read.same("show", name).code == 3
        assert read.same("title", name, "New").code == 3


def test_watch_names_server_and_project(read: Both) -> None:
    head, sums, *_ = read.call("watch", "--once", "--store", read.server).lines
    assert head.endswith(f"{read.server}  project default")
    assert sums.startswith("0 running · ")


def test_completion_reads_keys_from_server(read: Both) -> None:
    words = shell_completion.candidates(["--store", read.server, "show", "cust"])
    assert [candidate.word for candidate in words] == ["customer-42"]


def test_tail_follows_all_threads_of_server(read: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    def show(self: object, stitch: Any) -> None:
        shown.append(stitch.type)
        if stitch.type == "note":
            raise KeyboardInterrupt
        if len(shown) == 2:
            with sync.open_store(read.database) as store:
                store.append(store.create(), [Entry(type="note")])

    monkeypatch.setattr(log._Printer, "show", show)  # pyright: ignore[reportPrivateUsage]
    assert read.call("tail", "--follow", "-n", "2", "--store", read.server).code == 130
    assert shown == ["llm_call", "run_completed", "note"]


def test_remote_store_has_the_parameters_of_the_store() -> None:
    for ours, theirs in ((RemoteStore, Store), (RemoteStatistics, Statistics)):
        for name, method in inspect.getmembers(ours, inspect.isfunction):
            known = getattr(theirs, name, None)
            if known is not None and not name.startswith("_"):
                expected = [parameter for parameter in inspect.signature(known).parameters if parameter != "connection"]
                assert list(inspect.signature(method).parameters) == expected, name
    missing = [name for name in vars(RemoteActions.__base__) if name not in vars(RemoteActions)]
    assert [name for name in missing if not name.startswith("_")] == []


# Commands that act


@pytest.fixture(scope="module")
def acting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, ServerThread]]:
    """The URL of a database, and a server of another one that executes the agents of the shop."""
    folder = tmp_path_factory.mktemp("acting")
    with ServerThread(f"sqlite:///{folder}/remote.db", shop.app, concurrency=4) as server:
        url = f"sqlite:///{folder}/local.db"
        with sync.open_store(url):
            pass
        yield url, server


@pytest.fixture
def act(call: Call, acting: tuple[str, ServerThread]) -> Both:
    return Both(call, acting[0], acting[1].url)


SCENARIOS: dict[str, list[tuple[int, str]]] = {
    "run": [
        (0, "run adder Go --thread a"),
        (0, "run adder Go --thread a --json"),
        (0, "run echo Hi --thread e --message-id m --user ada"),
        (0, "run echo Hi --thread e --message-id m --user ada"),
        (4, "run echo Ho --thread e --message-id m --user ada"),
        (0, "run cut-off Go"),
        (0, "run retrying Go --thread r"),
        (1, "run failing Go --thread f --json"),
        (3, "run missing Go"),
        (0, "resume a"),
        (0, "resume a --json"),
        (3, "resume missing"),
    ],
    "replay": [
        (0, "run adder Go --thread replayed"),
        (3, "replay missing"),
        (2, "replay replayed --live all"),
        (2, "replay replayed --at 99"),
    ],
    "approve": [
        (4, "run payer Pay --thread p"),
        (4, "run payer Pay --thread p"),
        (4, "resume p"),
        (0, "inbox"),
        (0, "approve p"),
        (4, "approve p"),
        (4, "run payer Pay --thread p --json"),
        (0, "deny p --reason no"),
        (4, "run payer-twice Pay --thread pt"),
        (2, "approve pt"),
        (4, "approve pt call_1_1_0"),
        (0, "deny pt --json"),
    ],
    "approve several": [
        (4, "run payer Pay --thread p1"),
        (4, "run payer Pay --thread p2"),
        (2, "approve p1 p2"),
        (0, "approve p1 p2 --dry-run"),
        (0, "approve p1 p2 --yes"),
        (1, "approve p1 p2 --yes --json"),
    ],
    "answer": [
        (4, "run questioner Ask --thread q"),
        (2, "answer q Blue"),
        (4, "answer q Blue --call call_1_1_0"),
        (0, "answer q XL"),
    ],
    "submit": [
        (4, "run looker Look --thread l"),
        (2, "submit l call_1_1_0 call_2 --result yes"),
        (0, "submit l call_1_1_0 --result yes"),
    ],
    "retry": [
        (1, "run failing Go --thread f1"),
        (1, "run failing Go --thread f2"),
        (0, "threads --status failed"),
        (0, "retry f1"),
        (4, "retry f1"),
        (0, "retry --status failed --since 1h --dry-run --json"),
        (6, "retry f2 f1 --yes --json"),
        (1, "run failing Go --thread f3"),
        (1, "run failing Go --thread f4"),
        (0, "retry --status failed --since 1h --yes"),
        (0, "retry --status failed --since 1h --yes --json"),
    ],
    "change": [
        (0, "run adder Go --thread c"),
        (0, "regenerate c"),
        (0, "regenerate c --turn 1 --message Again --json"),
        (0, "history c"),
        (0, "fork c --key fork --json"),
        (4, "fork c --key fork"),
        (2, "fork c --at 99"),
        (0, "fork c --before-turn 1"),
        (0, "title c New"),
        (0, "title c New --json"),
        (0, "show c"),
        (2, "cancel c"),
        (2, "delete fork"),
        (0, "delete fork --yes"),
        (3, "delete fork --yes"),
        (0, "delete --status waiting --since 1h --dry-run"),
        (0, "delete c --yes --json"),
    ],
    "cancel": [
        (4, "run payer Pay --thread x1"),
        (4, "run payer Pay --thread x2"),
        (0, "cancel x1"),
        (0, "cancel x2 --json"),
        (4, "run looker Look --thread x3"),
        (4, "run looker Look --thread x4"),
        (0, "cancel x3 x4 --yes"),
    ],
    "start": [
        (0, "start echo --goal Work --key g --at 1h --priority 2 --user ada"),
        (4, "start echo --goal Work --key g"),
        (0, "start echo --goal Work --count 3 --at 1h"),
        (0, "cancel g"),
    ],
    "token": [
        (0, "token create ci --scope read --expires 90d"),
        (2, "token create ci --scope read"),
        (2, "token create other --scope everything"),
        (0, "token list"),
        (0, "token revoke ci --json"),
        (3, "token revoke ci"),
    ],
    "feedback": [
        (0, "run adder Go --thread c"),
        (0, "feedback list"),
        (0, "feedback add helpful --thread c --score 1 --json"),
        (0, "feedback add helpful --thread c --score 0 --comment Wrong --json"),
        (0, 'feedback add labels --run c --value {"kind":"x"} --json'),
        (2, "feedback add labels --run c --value [1]"),
        (2, "feedback add helpful --score 1"),
        (3, "feedback add helpful --thread missing --score 1"),
        (0, "feedback list c --user ada --json"),
        (0, "feedback list --name labels"),
        (2, "feedback delete 1 --yes"),
        (3, "feedback delete 01a1f376-1137-7385-9d38-703aea679257 --yes"),
    ],
    "schedules": [
        (0, "schedule list"),
        (0, "schedule add helper --every 1h --goal Look --json"),
        (4, "schedule add helper --every 1h --goal Look"),
        (2, "schedule add helper --cron 7 --goal Look --name bad"),
        (2, "schedule add helper --every soon --goal Look --name bad"),
        (0, "schedule add helper --every 90s --goal Look --name often --missed all"),
        (0, "schedule edit often --every 2m --goal Again --title Report --json"),
        (2, "schedule edit often"),
        (3, "schedule edit missing --goal Look"),
        (0, "schedule pause often"),
        (0, "schedule list"),
        (0, "schedule resume often"),
        (0, "schedule run often"),
        (0, "schedule remove often --yes"),
        (3, "schedule run often"),
        (0, "schedule list --json"),
    ],
}
EXECUTING = ("run", "replay", "resume", "retry", "regenerate", "start", "approve", "deny", "answer", "submit")


@pytest.mark.parametrize("name", SCENARIOS)
def test_command_acts_the_same_on_server(act: Both, name: str) -> None:
    for code, line in SCENARIOS[name]:
        arguments = line.split()
        result = act.same(*arguments, app=arguments[0] in EXECUTING, varying=True)
        assert result.code == code, (line, result)


def test_call_in_doubt_is_settled_on_server(
    act: Both, acting: tuple[str, ServerThread], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place, url in enumerate((acting[0], acting[1].store_url)):
        for key in ("doubt", "again"):
            monkeypatch.setenv("BANK", str(tmp_path / f"bank-{place}-{key}"))
            asyncio.run(_leave_in_doubt(url, key))
    assert "outcome of charge" in act.same("inbox", varying=True).out
    done = act.same("settle", "doubt", "--done", "charged, receipt 7", app=True, varying=True)
    assert (done.code, done.out) == (0, "Charged.\n")
    assert act.same("settle", "doubt", "--redo", app=True, varying=True).code == 4
    assert "← charged 7" in act.same("settle", "again", "--redo", app=True, varying=True).err


def test_replay_runs_here_and_on_server(act: Both) -> None:
    for store, app in ((act.database, APP), (act.server, ())):
        act.call("--store", store, *app, "run", "adder", "Go", "--thread", "sum-twice")
        done = act.call("--store", store, *app, "replay", "sum-twice", "--agent", "adder@1", "--live", "safe", "--json")
        report = json.loads(done.out)
        assert (done.code, report["status"], report["same"]) == (0, "completed", True)


def test_replay_that_fails_compares_no_calls(act: Both) -> None:
    app = ("--store", act.database, *APP)
    act.call(*app, "run", "failing", "Go", "--thread", "broken")
    done = act.call(*app, "replay", "broken")
    assert done.code == 1
    assert "No such" in done.out
    assert "The calls" not in done.out


async def _leave_in_doubt(url: str, key: str) -> None:
    """Interrupt the call of a thread, so that its outcome is unknown."""
    async with open_store(url) as store:
        charger = shop.app.agent("charger")
        task = asyncio.ensure_future(charger.run("Charge", store=store, thread=key))
        while not Path(os.environ["BANK"]).exists():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        while not any(isinstance(wait, InDoubtWait) for wait in (await _resumed(store, key)).waits):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def _resumed(store: Store, key: str) -> Thread:
    """Resume a thread here. A worker of the server may do the same."""
    from lockstitch.errors import Conflict

    with suppress(Conflict):
        await shop.app.resume(key, store=store)
    return await store.thread(key)


def test_chat_with_agent_of_server(act: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    def typed(*lines: str) -> None:
        content = io.BytesIO("".join(f"{line}\n" for line in lines).encode())
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(content, encoding="utf-8"))

    typed("Hello", "", "/cost", "//x", "/fork other", "Again", "/system")
    first = act.call("chat", "echo", "--thread", "talk", "--store", act.server)
    assert first.lines == ["You said: Hello", "You said: /x", "You said: Again"]
    typed("Pay", "n too much")
    denied = act.call("chat", "payer", "--thread", "pays", "--store", act.server)
    assert (denied.lines, '→ pay({"amount":5})' in denied.err) == (["Done."], True)
    typed("Pay", "y")
    again = act.call("chat", "--thread", "pays", "--store", act.server, "--json")
    assert json.loads(again.out)["output_text"] == "Done."
    typed("/retry", "Pay")
    left = act.call("chat", "--thread", "pays", "--store", act.server)
    assert (left.code, "lockstitch approve pays" in left.err) == (4, True)
    typed("/model openai:x")
    assert "is code" in act.call("chat", "echo", "--store", act.server).err


def test_interrupt_in_a_chat_cancels_the_answer_on_the_server(act: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    show = RunProgress.on_event
    texts: list[object] = []

    def interrupt_once(self: RunProgress, event: Any) -> None:
        show(self, event)
        if event.type == "text":
            texts.append(event)
            if len(texts) == 1:
                raise KeyboardInterrupt

    monkeypatch.setattr(RunProgress, "on_event", interrupt_once)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"Tell\n"), encoding="utf-8"))
    told = act.call("chat", "teller", "--thread", "stopped", "--store", act.server)
    assert (told.code, "The run was cancelled." in told.err) == (0, True)
    assert told.out.startswith("Once upon a time")
    (turn,) = act.call("history", "stopped", "--store", act.server, "--json").json
    assert turn["partial"]


def test_interrupted_command_leaves_the_run_to_the_server(act: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(self: object, event: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(RunProgress, "on_event", interrupt)
        left = act.call("run", "adder", "Go", "--thread", "left", "--store", act.server)
    assert (left.code, left.err) == (
        130,
        "lockstitch: Interrupted. The server continues the run. Run `lockstitch resume left` to follow it.\n",
    )
    assert act.call("resume", "left", "--store", act.server).code == 0
    assert act.call("history", "left", "--store", act.server, "--json").json[0]["final_response"] == "It is 3."


def test_reply_without_agent_on_server_is_stored(call: Call, acting: tuple[str, ServerThread], tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    for name in ("p", "p1", "p2", "p3"):
        assert call("run", "payer", "Pay", "--thread", name, "--store", url, *APP).code == 4
    with ServerThread(url) as server:
        approved = call("approve", "p", "--store", server.url)
        assert (approved.code, approved.err) == (
            0,
            "Reply stored. Agent payer not found on the server. Agents: none. A worker with this agent continues the"
            " thread.\n",
        )
        several = call("approve", "p1", "p2", "--yes", "--store", server.url)
        assert (several.code, several.err) == (0, "Approved the calls of 2 threads.\n")
        assert "The server continues the thread" in call("approve", "p3", "--no-resume", "--store", server.url).err
        resumed = call("resume", "p", "--store", server.url)
        assert (resumed.code, "Agent payer not found on the server" in resumed.err) == (3, True)
        started = call("run", "payer", "Go", "--store", server.url)
        assert (started.code, started.err) == (
            4,
            "lockstitch: No app loaded. Start the server with --app module:name.\n",
        )


# Commands that need a database


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("migrate", "migrate"),
        ("doctor --verify", "doctor"),
        ("worker", "worker"),
        ("serve", "serve"),
        ("import langsmith x", "import"),
        ("export --lens langsmith x.db", "export --lens"),
        ("export --thread t x.zip", "export --thread"),
        ("archive --older-than 30d", "archive"),
        ("backup create x", "backup create"),
        ("restore --all", "restore"),
        ("purge --expired", "purge"),
        ("adopt x.json", "adopt"),
        ("prioritize x.md --outcome y", "prioritize"),
        ("copy sqlite:///x.db sqlite:///y.db", "copy"),
    ],
)
def test_command_that_needs_a_database_is_refused(call: Call, line: str, command: str) -> None:
    result = call(*line.split(), "--store", "https://agents.example.org")
    text = f"lockstitch: `lockstitch {command}` needs the database URL of the store, not the URL of a server.\n"
    assert (result.code, result.err) == (2, text)
    assert call(*line.split()[:1], "--help", "--store", "https://agents.example.org").code == 0


def test_copy_of_a_server_is_refused(call: Call) -> None:
    for pair in (("http://x", "sqlite:///y.db"), ("sqlite:///y.db", "http://x")):
        result = call("copy", *pair)
        assert (result.code, "`lockstitch copy` needs the database URL" in result.err) == (2, True)


@pytest.mark.parametrize(
    "line",
    [
        "size",
        "threads --all-projects",
        "stats --all-projects",
        "resume customer-42 --take-over",
        "run openai:x Go --system Short",
        "run helper Go --app shop:app",
    ],
)
def test_option_that_needs_a_database_is_refused(call: Call, told: tuple[Story, ServerThread], line: str) -> None:
    result = call(*line.split(), "--store", told[1].url)
    assert (result.code, "needs the database URL" in result.err or "need the database URL" in result.err) == (2, True)


# Tokens and errors


def test_token_gives_access_to_its_project(
    call: Call, acting: tuple[str, ServerThread], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/store.db"

    def create(name: str, scope: str) -> str:
        return call("token", "create", name, "--scope", scope, "--store", url, "--project", "acme").out.strip()

    reader, admin = create("reader", "read"), create("admin", "admin")
    assert call("run", "echo", "Hi", "--thread", "t", "--store", url, "--project", "acme", *APP).code == 0
    with ServerThread(url, shop.app, tokens_needed=True, work=False) as server:
        refused = call("threads", "--store", server.url)
        assert (refused.code, refused.err) == (
            2,
            f"lockstitch: The server at {server.url} answered: Unauthorized. A token is required. Create one with"
            " `lockstitch token create`.\n",
        )
        wrong = call("threads", "--store", server.url, "--token", "lst_wrong", "--json")
        assert (wrong.code, json.loads(wrong.err)["error"], "lst_wrong" in wrong.err) == (2, "Refused", False)
        monkeypatch.setenv("LOCKSTITCH_TOKEN", reader)
        assert [row["key"] for row in call("threads", "--store", server.url, "--json").json] == ["t"]
        assert call("show", "t", "--store", server.url, "--project", "acme").code == 0
        elsewhere = call("threads", "--store", server.url, "--project", "other")
        assert (elsewhere.code, elsewhere.err) == (
            2,
            "lockstitch: The token selects project acme, not other. Use a token of that project.\n",
        )
        forbidden = call("title", "t", "New", "--store", server.url)
        assert (forbidden.code, forbidden.err) == (
            2,
            f"lockstitch: The server at {server.url} answered: Forbidden. The token has read. This operation needs"
            " write.\n",
        )
        assert call("sql", "SELECT 1", "--store", server.url).code == 2
        listed = call("token", "list", "--store", server.url, "--token", admin, "--json").json
        assert [token["name"] for token in listed] == ["reader", "admin"]
        assert call("title", "t", "New", "--store", server.url, "--token", admin).code == 0


class _Page(BaseHTTPRequestHandler):
    """A web server that is not Lockstitch, or an older version of it."""

    answers: ClassVar[dict[str, tuple[int, bytes]]] = {
        "/page/api/whoami": (200, b"<html>Welcome</html>"),
        "/old/api/whoami": (404, b'{"type":"about:blank","title":"Not Found","status":404,"detail":""}'),
        "/moved/api/whoami": (302, b""),
        "/broken/api/whoami": (502, b"<html>Bad gateway</html>"),
    }

    def do_GET(self) -> None:
        status, body = self.answers.get(self.path, (404, b"<html>Not here</html>"))
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def web() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(
    ("path", "code", "text"),
    [
        ("page", 5, "The answer of {} is not JSON. Check that it is the URL of a server."),
        (
            "old",
            5,
            "The server at {} has no route /api/whoami. Check the URL, and that the server is not older than this"
            " client.",
        ),
        (
            "elsewhere",
            5,
            "The server at {} has no route /api/whoami. Check the URL, and that the server is not older than this"
            " client.",
        ),
        ("moved", 5, "The server at {} redirects to another address. Use that URL."),
        ("broken", 5, "The server at {} returned status 502."),
    ],
)
def test_address_without_server_is_reported(call: Call, web: str, path: str, code: int, text: str) -> None:
    result = call("threads", "--store", f"http://ada:secret@{web}/{path}/?key=secret", "--token", "lst_secret")
    assert (result.code, result.err) == (code, f"lockstitch: {text.format(f'http://{web}/{path}')}\n")


def test_unreachable_server_is_reported(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTITCH_STORE", "http://127.0.0.1:9/")
    result = call("threads")
    assert result.code == 5
    assert result.err.startswith("lockstitch: The server at http://127.0.0.1:9 does not answer: ")
    assert "one line" if result.err.count("\n") == 1 else result.err


def test_local_commands_do_not_import_http(tmp_path: Path) -> None:
    from tests.cli.calling import environment

    arguments: Sequence[str] = ["threads", "--store", f"file:{tmp_path}/store"]
    program = f"import sys; from lockstitch.cli.entry import run; run({list(arguments)!r});"
    program += "sys.exit(any(name.split('.')[0] in ('httpx2', 'anyio') or name == 'lockstitch.cli.remote'"
    program += " for name in sys.modules))"
    import subprocess

    done = subprocess.run(
        [sys.executable, "-c", program], env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
