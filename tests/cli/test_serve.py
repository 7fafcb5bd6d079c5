"""`serve` and `token`, as real processes."""

import signal
import socket
import time
from pathlib import Path

import httpx2
import pytest

from lockstitch.records import codec
from tests.cli.calling import run
from tests.cli.servers import server


def test_it_serves_and_leaves(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/agents.db"
    with server("--store", url) as serving:
        assert serving.told == {"event": "serves", "url": serving.url, "store": url, "tokens": False}
        assert httpx2.get(f"{serving.url}/readyz").text == "ready\n"
        began = time.monotonic()
        assert serving.end() == 0
        assert time.monotonic() - began < 10
        assert serving.process.stderr is not None
        line = codec.loads(serving.process.stderr.readline().encode())
        assert (line["path"], line["status"]) == ("/readyz", 200)


def test_ctrl_c(tmp_path: Path) -> None:
    with server("--store", f"sqlite:///{tmp_path}/agents.db") as serving:
        assert serving.end(signal.SIGINT) == 130


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        told = run("serve", "--port", port, "--store", f"sqlite:///{tmp_path}/agents.db")
    assert told.code == 1
    assert f"127.0.0.1:{port}" in told.err
    assert not (tmp_path / "agents.db").exists()


@pytest.mark.parametrize("options", [["--host", "0.0.0.0"], ["--tokens"], ["--host", "::"]])
def test_others_are_let_in_with_tokens_only(tmp_path: Path, options: list[str]) -> None:
    told = run("serve", "--port", "0", *options, "--store", f"sqlite:///{tmp_path}/agents.db")
    assert told.code == 2
    assert "lockstitch token create" in told.err


def test_tokens_from_making_to_revoking(tmp_path: Path) -> None:
    store = ("--store", f"sqlite:///{tmp_path}/agents.db")
    made = run(
        "token", "create", "ada", "--scope", "read", "--scope", "write", "--expires", "90d", *store, "--json"
    ).json
    assert made["scopes"] == ["read", "write"]
    assert made["expires_at"]
    run("start", "helper", "--goal", "g", *store)
    with server("--host", "127.0.0.1", "--tokens", *store) as serving:
        assert serving.told["tokens"] is True
        headers = {"Authorization": f"Bearer {made['token']}"}
        assert httpx2.get(f"{serving.url}/api/threads", headers=headers).status_code == 200
        assert httpx2.get(f"{serving.url}/api/threads").status_code == 401
        listed = run("token", "list", *store)
        assert "ada" in listed.out
        assert made["token"] not in listed.out
        assert run("token", "revoke", "ada", *store).code == 0
        assert httpx2.get(f"{serving.url}/api/threads", headers=headers).status_code == 401
    assert run("token", "revoke", "ada", *store).code == 3
    assert run("token", "create", "x", "--scope", "all", *store).code == 2


def test_the_demonstration() -> None:
    """A store of its own, with something that waits for a person and something that moves; gone afterwards."""
    with server("--demo") as serving:
        threads = httpx2.get(f"{serving.url}/api/threads", params={"limit": 200}).json()["threads"]
        waiting = {wait["kind"] for thread in threads for wait in thread["waiting_for"]}
        assert {"approval", "doubt", "input", "frontend_tools"} <= waiting
        plans = httpx2.get(f"{serving.url}/plans").text
        assert plans.count("completed</span>") == 2
        assert ">200<" in plans
        folder = Path(serving.told["store"].removeprefix("sqlite:///")).parent
        assert folder.exists()
        assert serving.end() == 0
    assert not folder.exists()
