"""`worker`: real processes and real signals."""

import json
import signal
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest

from lockstitch import sync
from lockstitch.cli.errors import warnings_to_stderr
from lockstitch.model import Thread
from lockstitch.store.open import redacted_url
from tests.cli.calling import Call
from tests.cli.workers import wait_for, working
from tests.servers import PostgresServer

CREW = "tests.cli.crew:app"
LEDGER = "examples.ledger:app"

Start = Callable[..., list[str]]


@pytest.fixture(autouse=True)
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "ledger"
    path.touch()
    monkeypatch.setenv("LEDGER", str(path))
    return path


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'store.db'}"


def effects(ledger: Path) -> Counter[tuple[str, str]]:
    """Return how often each call took effect."""
    return Counter((line["thread"], line["call"]) for line in map(json.loads, ledger.read_text().splitlines()))


@pytest.fixture
def start(call: Call) -> Start:
    """Start threads from this process for real workers."""

    def started(url: str, agent: str, *options: str, app: str = CREW) -> list[str]:
        return call("start", agent, "--goal", "Look everywhere", "--app", app, "--store", url, *options).lines

    return started


def threads(url: str) -> dict[str, Thread]:
    with sync.open_store(url) as store:
        return {str(thread.id): thread for thread in store.threads(limit=None, all_projects=True)}


@pytest.mark.req("S3-032", "S3-033", "S3-059")
def test_workers_execute_threads_with_children_to_their_end(store_url: str, ledger: Path, start: Start) -> None:
    start(store_url, "boss", "--count", "6")
    with ExitStack() as stack:
        crew = [
            stack.enter_context(working(store_url, "--concurrency", "4", "--until-idle", "--grace", "5"))
            for _ in range(3)
        ]
        assert [worker.ended() for worker in crew] == [0, 0, 0]
    for worker in crew:
        assert worker.complaints == []
    done = threads(store_url)
    assert len(done) == 18
    assert {thread.status for thread in done.values()} == {"completed"}
    ends = Counter(event["thread_id"] for worker in crew for event in worker.logged("ends", status="completed"))
    assert ends == dict.fromkeys(done, 1), "each thread ended in one worker"
    assert len(effects(ledger)) == 24
    assert set(effects(ledger).values()) == {1}


@pytest.mark.req("S3-037")
def test_worker_takes_threads_of_killed_worker_at_once(store_url: str, ledger: Path, start: Start) -> None:
    [thread] = start(store_url, "scout")
    with working(store_url, PAUSE="600") as first:
        wait_for(ledger.read_text)
        with working(store_url) as second:
            second.until("works")
            first.signal(signal.SIGKILL)
            # The worker looks for dead workers every few seconds. Otherwise it would wait 30 s for the lease to end.
            second.until("ends", seconds=25, thread_id=thread, status="completed")
    assert max(effects(ledger).values()) == 1, "a call that may happen once is not repeated"


def test_signal_drains_worker_and_repeats_no_call(store_url: str, ledger: Path, start: Start) -> None:
    [thread] = start(store_url, "ledger", app=LEDGER)
    with working(store_url, app=LEDGER, LEDGER_PAUSE="0.5") as first:
        first.until("begins")
        wait_for(ledger.read_text)
        first.signal(signal.SIGTERM)
        assert first.ended() == 0
        assert first.logged("leaves") == [{"event": "leaves", "held": 1, "grace": 30.0}]
        assert first.logged("ends")[0]["status"] == "released"
        assert first.complaints == []
    before = effects(ledger)
    head = threads(store_url)[thread]
    assert (head.status, head.held) == ("pending", False)
    assert 0 < len(before) < 8
    with working(store_url, "--until-idle", app=LEDGER) as second:
        assert second.ended() == 0
        assert second.logged("ends")[0]["status"] == "completed"
    assert len(effects(ledger)) == 8
    assert set(effects(ledger).values()) == {1}
    with sync.open_store(store_url) as store:
        assert "in_doubt" not in store.runs(thread)[0].state


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_worker_releases_threads_after_grace(url: str, ledger: Path, number: int, code: int, start: Start) -> None:
    [thread] = start(url, "smith")
    with working(url, "--grace", "0.2", STUCK="1") as worker:
        wait_for(ledger.read_text)
        worker.signal(number)
        assert worker.ended() == code
        assert worker.logged("ends")[0]["status"] == "released"
        assert worker.complaints == []
    head = threads(url)[thread]
    assert (head.status, head.held) == ("pending", False)


def test_second_signal_skips_grace(url: str, ledger: Path, start: Start) -> None:
    start(url, "smith")
    with working(url, "--grace", "600", STUCK="1") as worker:
        wait_for(ledger.read_text)
        worker.signal(signal.SIGINT)
        worker.until("leaves")
        worker.signal(signal.SIGINT)
        assert worker.ended() == 130


def test_worker_leaves_threads_of_unknown_agents(url: str, start: Start) -> None:
    [boss], [scout] = start(url, "boss"), start(url, "scout")
    with working(url, "--until-idle", app="tests.cli.crew:only_scouts") as worker:
        assert worker.ended() == 0
        assert [event["thread_id"] for event in worker.logged("begins")] == [scout]
    assert {name: head.status for name, head in threads(url).items()} == {boss: "pending", scout: "completed"}


def test_thread_waits_if_worker_lacks_tool(url: str, ledger: Path, start: Start, call: Call) -> None:
    [thread] = start(url, "smith")
    with working(url, STUCK="1") as old:
        wait_for(ledger.read_text)
        old.signal(signal.SIGKILL)
    with working(url, "--until-idle", NO_HAMMER="1") as new:
        new.until("ends", thread_id=thread)
        assert new.ended() == 0
    head = threads(url)[thread]
    assert (head.status, head.held) == ("waiting", False)
    assert [(wait["kind"], wait["name"]) for wait in head.waiting_for] == [("retry", "hammer")]
    assert "hammer" in head.waiting_for[0]["reason"]
    result = call("resume", thread, "--app", CREW, "--store", url)
    assert (result.code, result.out) == (0, "Hammered.\n")


def test_worker_takes_threads_of_one_project_only(url: str, start: Start) -> None:
    [here], [elsewhere] = start(url, "scout"), start(url, "scout", "--project", "acme")
    with working(url, "--until-idle", "--project", "acme") as worker:
        assert worker.ended() == 0
        assert worker.logged("works")[0]["project"] == "acme"
        assert [event["thread_id"] for event in worker.logged("ends")] == [elsewhere]
    with working(url, "--until-idle") as worker:
        assert worker.ended() == 0
        assert worker.logged("works")[0]["project"] is None
        assert [event["thread_id"] for event in worker.logged("ends")] == [here]


def test_worker_prints_lines_for_people(lockstitch: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTITCH_APP", CREW)
    scout = lockstitch("start", "scout", "--goal", "Look around").lines[0]
    assert lockstitch("start", "smith", "--goal", "Hammer", "--key", "nail", "--priority", "5").code == 0
    scheduled = lockstitch("start", "scout", "--goal", "Look again", "--at", "12h", "--json").json
    assert scheduled["status"] == "waiting"
    result = lockstitch("worker", "--until-idle", "--concurrency", "1")
    assert result.err == ""
    first, *lines, last = result.lines
    assert first.startswith("Worker started: agents boss, scout, smith, all projects, concurrency 1, store ")
    assert last == "Stopped after 2 threads"
    assert [line.split()[:3] for line in lines] == [
        ["→", "nail", "smith"],
        ["←", "nail", "smith"],
        ["→", scout, "scout"],
        ["←", scout, "scout"],
    ], "the more urgent one first"
    assert lines[2].endswith("Look around")
    assert "  completed  " in lines[3]
    assert "$" in lines[3]


def test_worker_waits_for_missing_store(postgres_server: PostgresServer, start: Start) -> None:
    url = postgres_server.create_database()
    postgres_server.drop_database(url)
    name = url.partition("?")[0].rpartition("/")[2]
    with working(url) as worker:
        wait_for(lambda: worker.complaints)
        with psycopg.connect(postgres_server.url(), autocommit=True) as admin:
            admin.execute(psycopg.sql.SQL("CREATE DATABASE {}").format(psycopg.sql.Identifier(name)))
        worker.until("works")
        start(url, "scout")
        worker.until("ends", status="completed")
        worker.signal(signal.SIGTERM)
        assert worker.ended() == 0
        assert len(worker.complaints) == 1
        assert "cannot be reached" in worker.complaints[0]
    postgres_server.drop_database(url)


def test_worker_waiting_for_store_can_be_stopped(postgres_url: str, postgres_server: PostgresServer) -> None:
    postgres_server.drop_database(postgres_url)
    with working(postgres_url) as worker:
        wait_for(lambda: worker.complaints)
        worker.signal(signal.SIGINT)
        assert worker.ended() == 130


@pytest.fixture
def own_server() -> Any:
    server = PostgresServer(fsync="off")
    if not server.own:
        pytest.skip("this server is not ours to stop")
    yield server
    server.close()


def test_worker_logs_little_while_store_is_unreachable(own_server: PostgresServer, start: Start) -> None:
    url = own_server.create_database()
    with working(url) as worker:
        worker.until("works")
        start(url, "scout")
        worker.until("ends", status="completed")
        own_server.stop("immediate")
        wait_for(lambda: worker.complaints)
        own_server.start()
        start(url, "scout")
        worker.until("ends", 2, status="completed")
        worker.signal(signal.SIGTERM)
        assert worker.ended() == 0
        assert all(json.loads(line)["level"] in ("warning", "error") for line in worker.complaints), "no stack trace"
        assert len(worker.complaints) == len(set(worker.complaints)) < 12


def test_log_line_is_one_line_and_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    import logging

    log = logging.getLogger("lockstitch")
    with warnings_to_stderr(as_json=False):
        for _ in range(3):
            log.warning("Thread %s was lost:\n%s", "t", "another\x1b[31m has it")
        try:
            raise ValueError("out of\nreach")
        except ValueError:
            log.exception("Thread %s could not be executed", "u")
        log.info("nothing to complain of")
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "lockstitch: Thread t was lost: another\u241b[31m has it",
        "lockstitch: Thread u could not be executed: ValueError: out of reach",
    ]


def test_store_url_is_shown_without_password() -> None:
    assert (
        redacted_url("postgresql://ada:se:cr@et@db:5432/agents?sslmode=require")
        == "postgresql://ada:***@db:5432/agents"
    )
    assert redacted_url("postgresql://ada@db/agents") == "postgresql://ada@db/agents"
    assert redacted_url("sqlite:////srv/a:b@c.db") == "sqlite:////srv/a:b@c.db"
