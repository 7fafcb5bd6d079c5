"""The application of docs/howto/fastapi-chat.md, section by section, over HTTP and in a browser."""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest
from playwright.sync_api import Page, expect, sync_playwright

from lockstitch.model import Json
from tests.docs.pages import DOCS, ROOT, blocks
from tests.docs.warm import warm_commands
from tools.browser import find

SENTENCE = "Please repeat this text slowly, so that a reader can follow it. "
SLOW = SENTENCE * 6
"""A message whose answer takes about five seconds."""
ENDLESS = SENTENCE * 80
"""A message whose answer takes longer than a test."""
SECONDS = 60.0

expect.set_options(timeout=30_000)


class ServerEvent(NamedTuple):
    """One server-sent event."""

    name: str
    data: Json
    id: int | None


@contextmanager
def process(folder: Path, *command: str, **variables: str) -> Generator[subprocess.Popen[str]]:
    """Run a command in the folder of the application. End it with SIGTERM afterwards, if it still runs."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONUNBUFFERED": "1", **variables}
    with (folder / "log.txt").open("a") as log:
        running = subprocess.Popen(
            [warm_commands() / "python", "-m", *command], cwd=folder, env=environment, stdout=log, stderr=log, text=True
        )
    try:
        yield running
    finally:
        running.send_signal(signal.SIGTERM)
        try:
            running.wait(30)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()
            raise


@contextmanager
def site(folder: Path, **variables: str) -> Generator[tuple[str, subprocess.Popen[str]]]:
    """Serve the application on a free port. Return its URL and its process."""
    earlier = _log(folder)
    with process(folder, "uvicorn", "app:site", "--port", "0", **variables) as running:
        deadline = time.monotonic() + SECONDS
        while not (addresses := re.findall(r"running on (http://[\d.:]+)", _log(folder)[len(earlier) :])):
            assert running.poll() is None, _log(folder)
            assert time.monotonic() < deadline, _log(folder)
            time.sleep(0.02)
        yield addresses[0], running


def _log(folder: Path) -> str:
    log = folder / "log.txt"
    return log.read_text() if log.exists() else ""


def save(folder: Path) -> Path:
    """Save the files of the page."""
    for block in blocks(DOCS / "howto" / "fastapi-chat.md"):
        if block.title is not None:
            (folder / block.title).write_text(block.code, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of one server for all tests of this module. Each test has its own chat."""
    with site(save(tmp_path_factory.mktemp("chat"))) as (address, _):
        yield address


@pytest.fixture
def http(url: str) -> Iterator[httpx2.Client]:
    with caller(url, "ada") as client:
        yield client


def caller(url: str, user_id: str) -> httpx2.Client:
    return httpx2.Client(base_url=url, timeout=SECONDS, cookies={"user": user_id}, verify=False)


def send(http: httpx2.Client, chat: str, text: str, **fields: Any) -> Json:
    response = http.post(f"/chats/{chat}/messages", json={"text": text, **fields})
    assert response.status_code == 202, response.text
    return response.json()


def stream(
    http: httpx2.Client, thread_id: str, last_event_id: int | None = None, **parameters: Any
) -> Generator[ServerEvent]:
    """Yield the events of a thread. Close the generator to break the connection."""
    headers = {} if last_event_id is None else {"Last-Event-ID": str(last_event_id)}
    with http.stream("GET", f"/threads/{thread_id}/events", params=parameters, headers=headers) as response:
        assert response.status_code == 200
        fields: dict[str, str] = {}
        deadline = time.monotonic() + 2 * SECONDS
        for line in response.iter_lines():
            assert time.monotonic() < deadline
            if line:
                name, _, value = line.partition(":")
                fields[name] = value.strip()
            elif "event" in fields:
                position = int(fields["id"]) if "id" in fields else None
                yield ServerEvent(fields["event"], json.loads(fields["data"]), position)
                fields = {}


def wait_until_idle(http: httpx2.Client, result: Json) -> list[ServerEvent]:
    return list(stream(http, result["thread_id"], until="idle"))


def turns(http: httpx2.Client, chat: str, **parameters: Any) -> list[Json]:
    return http.get(f"/chats/{chat}", params=parameters).json()["turns"]


def read_until(events: Iterator[ServerEvent], name: str) -> list[ServerEvent]:
    """Return the events up to the first one with this name."""
    received: list[ServerEvent] = []
    for event in events:
        received.append(event)
        if event.name == name:
            return received
    raise AssertionError(f"{name} did not arrive: {received}")


def test_double_send_starts_one_turn(http: httpx2.Client) -> None:
    first = send(http, "double", "Hello.", id="m-1")
    again = send(http, "double", "Hello.", id="m-1")
    assert (again["thread_id"], again["run_id"]) == (first["thread_id"], first["run_id"])
    wait_until_idle(http, first)
    assert send(http, "double", "Hello.", id="m-1")["answer"] == "You wrote: Hello. Files: 0"
    assert [turn["question"] for turn in turns(http, "double")] == ["Hello."]
    reused = http.post("/chats/double/messages", json={"text": "Something else.", "id": "m-1"})
    assert (reused.status_code, reused.json()["reason"]) == (409, "message_id")
    assert http.get(f"/runs/{first['run_id']}").json()["status"] == "completed"


def test_stop_keeps_text_so_far(http: httpx2.Client) -> None:
    result = send(http, "stop", ENDLESS)
    with closing(stream(http, result["thread_id"])) as events:
        read_until(events, "text")
        assert http.post("/chats/stop/stop").status_code == 200
        rest = read_until(events, "finished")
    assert rest[-1].data == {"run_id": result["run_id"], "status": "cancelled"}
    (turn,) = turns(http, "stop")
    assert (turn["partial"], turn["status"]) == (True, "cancelled")
    assert f"You wrote: {ENDLESS}".startswith(turn["answer"])
    # The second request finds no open run.
    wait_until_idle(http, result)
    assert http.post("/chats/stop/stop").json() == {"status": "waiting"}
    assert http.post("/chats/unknown/stop").status_code == 404


def test_regenerate_answers_in_a_fork(http: httpx2.Client) -> None:
    first = send(http, "again", "My order?")
    wait_until_idle(http, first)
    result = http.post("/chats/again/regenerate", json={"id": "r-1"}).json()
    repeated = http.post("/chats/again/regenerate", json={"id": "r-1"}).json()
    assert result["thread_id"] == repeated["thread_id"] != first["thread_id"]
    assert result["run_id"] == repeated["run_id"]
    wait_until_idle(http, result)
    page = http.get("/chats/again").json()
    assert page["thread_id"] == result["thread_id"]
    assert [turn["question"] for turn in page["turns"]] == ["My order?"]
    assert [entry["chat"] for entry in http.get("/chats").json()].count("again") == 1


def test_edit_replaces_turn_and_leaves_later_turns_out(http: httpx2.Client) -> None:
    for text in ("First.", "Second.", "Third."):
        wait_until_idle(http, send(http, "edit", text))
    result = http.post("/chats/edit/regenerate", json={"turn": 2, "text": "Changed."}).json()
    wait_until_idle(http, result)
    assert [turn["question"] for turn in turns(http, "edit")] == ["Changed.", "First."]
    assert http.post("/chats/edit/regenerate", json={"turn": 9}).status_code == 422


def test_regenerate_is_a_conflict_during_an_answer(http: httpx2.Client) -> None:
    result = send(http, "busy", ENDLESS)
    with closing(stream(http, result["thread_id"])) as events:
        read_until(events, "text")
        assert http.post("/chats/busy/regenerate", json={}).json()["error"] == "ThreadBusy"
        # A second message waits for its turn.
        assert send(http, "busy", "Next.")["status"] == "pending"
        http.post("/chats/busy/stop")
        read_until(events, "finished")
        assert read_until(events, "finished")[-1].data["status"] == "completed"
    assert [turn["question"] for turn in turns(http, "busy")] == ["Next.", ENDLESS]


def test_stream_resumes_after_lost_connection(http: httpx2.Client) -> None:
    result = send(http, "resume", SLOW)
    with closing(stream(http, result["thread_id"])) as events:
        before = read_until(events, "text")
    last_id = max(event.id for event in before if event.id is not None)
    after = list(stream(http, result["thread_id"], last_id, until="idle"))
    texts = "".join(event.data["text"] for event in after if event.name == "text")
    assert texts.startswith("You ")
    assert f"You wrote: {SLOW} Files: 0".startswith(texts)
    ids = [event.id for event in (*before, *after) if event.id is not None]
    everything = [event.id for event in stream(http, result["thread_id"], until="now") if event.id is not None]
    assert ids == everything == sorted(set(ids))
    assert [event.name for event in after if event.id is not None][-2:] == ["answer", "finished"]


def test_deps_are_those_of_the_user(url: str, http: httpx2.Client) -> None:
    wait_until_idle(http, send(http, "deps", "My order?"))
    assert turns(http, "deps")[0]["answer"] == "The shop says: Order 7 is packed."
    with caller(url, "bob") as bob:
        events = wait_until_idle(bob, send(bob, "deps", "My order?"))
        assert {"name": "order_status", "status": "error"} in [event.data for event in events if event.name == "tool"]
        assert "no order 7" in turns(bob, "deps")[0]["answer"]


def test_other_users_find_nothing(url: str, http: httpx2.Client) -> None:
    result = send(http, "private", "Hello.")
    with caller(url, "eve") as eve:
        paths = ("/chats/private", f"/threads/{result['thread_id']}/events", f"/runs/{result['run_id']}")
        assert [eve.get(path).status_code for path in paths] == [404, 404, 404]
        assert eve.get("/chats").json() == []


def test_structured_output_files_and_titles(http: httpx2.Client) -> None:
    image = {"file": ("cat.png", b"not a real image", "image/png")}
    response = http.post("/chats/files/files", files=image)
    wait_until_idle(http, response.json())
    assert turns(http, "files")[0]["answer"] == "You wrote: Look at this file. Files: 1"
    document = {"file": ("cat.pdf", b"not a real document", "application/pdf")}
    wait_until_idle(http, http.post("/chats/files/files", files=document).json())
    assert http.post("/chats/files/labels").json() == {"topic": "orders", "labels": ["delivery", "status"]}
    assert {"chat": "files", "title": "Questions about orders"} in http.get("/chats").json()


def test_history_has_pages(http: httpx2.Client) -> None:
    for text in ("First.", "Second.", "Third."):
        wait_until_idle(http, send(http, "pages", text))
    newest = http.get("/chats/pages", params={"limit": 2}).json()
    assert ([turn["turn"] for turn in newest["turns"]], newest["has_more"]) == ([3, 2], True)
    oldest = http.get("/chats/pages", params={"limit": 2, "before": 2}).json()
    assert ([turn["turn"] for turn in oldest["turns"]], oldest["has_more"]) == ([1], False)


def test_purge_deletes_everything_of_one_user(url: str, http: httpx2.Client) -> None:
    send(http, "staying", "Hello.")
    with caller(url, "carl") as carl:
        wait_until_idle(carl, send(carl, "old", "Hello."))
        wait_until_idle(carl, carl.post("/chats/old/regenerate", json={}).json())
        running = send(carl, "running", ENDLESS)
        with closing(stream(carl, running["thread_id"])) as events:
            read_until(events, "text")
            assert carl.delete("/me").json() == {"deleted_threads": 3}
            assert read_until(events, "end")[-1].data == {"status": "deleted"}
        assert carl.get("/chats").json() == []
        assert carl.get(f"/runs/{running['run_id']}").status_code == 404
    assert http.get("/chats/staying").status_code == 200


def test_worker_continues_answer_of_killed_server(tmp_path: Path) -> None:
    folder = save(tmp_path)
    with site(folder) as (url, server), caller(url, "ada") as http:
        result = send(http, "killed", SLOW)
        with closing(stream(http, result["thread_id"])) as events:
            before = read_until(events, "text")
            server.kill()
            server.wait()
    last_id = max(event.id for event in before if event.id is not None)
    with ExitStack() as stack:
        url, _ = stack.enter_context(site(folder, CHAT_WORKER="no"))
        worker = ("lockstitch", "worker", "--store", "sqlite:///chat.db", "--app", "app:agents", "--concurrency", "20")
        stack.enter_context(process(folder, *worker))
        http = stack.enter_context(caller(url, "ada"))
        after = list(stream(http, result["thread_id"], last_id, until="idle"))
        assert [event.name for event in after if event.id is not None][-2:] == ["answer", "finished"]
        assert turns(http, "killed")[0]["answer"] == f"You wrote: {SLOW} Files: 0"


@pytest.fixture(scope="module")
def browser_page() -> Iterator[Page]:
    path = find()
    if path is None:
        pytest.fail("The page tests need Chromium. Run `python -m tools.browser` to install it.")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield browser.new_page()
        browser.close()


def test_page_sends_stops_regenerates_and_edits(url: str, browser_page: Page) -> None:
    problems: list[str] = []
    browser_page.on("pageerror", lambda error: problems.append(str(error)))
    browser_page.goto(f"{url}/#browser")
    text, turn = browser_page.locator("#text"), browser_page.locator("#turns li")
    text.fill("Hello.")
    browser_page.get_by_role("button", name="Send").click()
    expect(turn).to_have_text("Hello. → You wrote: Hello. Files: 0")
    text.fill(ENDLESS)
    browser_page.get_by_role("button", name="Send").click()
    expect(browser_page.locator("#live")).to_contain_text("You wrote")
    browser_page.reload()
    expect(browser_page.locator("#asked")).to_have_text(ENDLESS)
    browser_page.get_by_role("button", name="Stop").click()
    expect(turn.nth(1)).to_contain_text("(stopped)")
    text.fill("Changed.")
    browser_page.get_by_role("button", name="Edit").click()
    expect(turn.nth(1)).to_have_text("Changed. → You wrote: Changed. Files: 0")
    edited = browser_page.evaluate("threadId")
    with browser_page.expect_response(lambda response: response.url.endswith("/regenerate")) as responses:
        browser_page.get_by_role("button", name="Regenerate").click()
    assert responses.value.status == 202
    browser_page.wait_for_function("edited => threadId !== edited", arg=edited)
    with caller(url, "ada") as http:
        wait_until_idle(http, http.get("/chats/browser").json())
    browser_page.reload()
    expect(turn).to_have_text(["Hello. → You wrote: Hello. Files: 0", "Changed. → You wrote: Changed. Files: 0"])
    assert problems == []
