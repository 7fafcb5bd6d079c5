"""`serve` and `token`: real servers, where one is needed."""

import signal
import socket
from pathlib import Path

import httpx2
import pytest

from lockstitch.model import codec
from tests.cli.calling import Call
from tests.cli.servers import server


def test_it_serves_and_leaves(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/agents.db"
    with server("--store", url) as serving:
        assert serving.told == {"event": "serves", "url": serving.url, "store": url, "tokens": False}
        assert httpx2.get(f"{serving.url}/readyz").text == "ready\n"
        assert serving.end() == 0
        assert serving.process.stderr is not None
        line = codec.loads(serving.process.stderr.readline().encode())
        assert (line["path"], line["status"]) == ("/readyz", 200)


def test_ctrl_c(tmp_path: Path) -> None:
    with server("--store", f"sqlite:///{tmp_path}/agents.db") as serving:
        assert serving.end(signal.SIGINT) == 130


def test_a_port_that_is_taken(call: Call, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        told = call("serve", "--port", port, "--store", f"sqlite:///{tmp_path}/agents.db")
    assert told.code == 1
    assert f"127.0.0.1:{port}" in told.err
    assert not (tmp_path / "agents.db").exists()


@pytest.mark.parametrize("options", [["--host", "0.0.0.0"], ["--tokens"], ["--host", "::"]])
def test_others_are_let_in_with_tokens_only(call: Call, tmp_path: Path, options: list[str]) -> None:
    told = call("serve", "--port", "0", *options, "--store", f"sqlite:///{tmp_path}/agents.db")
    assert told.code == 2
    assert "lockstitch token create" in told.err


def test_tokens_from_making_to_revoking(call: Call, tmp_path: Path) -> None:
    store = ("--store", f"sqlite:///{tmp_path}/agents.db")
    scopes = ("--scope", "read", "--scope", "write")
    made = call("token", "create", "ada", *scopes, "--expires", "90d", *store, "--json").json
    assert made["scopes"] == ["read", "write"]
    assert made["expires_at"]
    with server("--host", "127.0.0.1", "--tokens", *store) as serving:
        assert serving.told["tokens"] is True
        headers = {"Authorization": f"Bearer {made['token']}"}
        assert httpx2.get(f"{serving.url}/api/threads", headers=headers).status_code == 200
        assert httpx2.get(f"{serving.url}/api/threads").status_code == 401
        listed = call("token", "list", *store)
        assert "ada" in listed.out
        assert made["token"] not in listed.out
        assert call("token", "revoke", "ada", *store).code == 0
        assert httpx2.get(f"{serving.url}/api/threads", headers=headers).status_code == 401
    assert call("token", "revoke", "ada", *store).code == 3
    assert call("token", "create", "x", "--scope", "all", *store).code == 2


def _own_notebook(url: str) -> None:
    """One's own notebook is answered from its own sources, and not from those that the script knows."""
    made = httpx2.post(f"{url}/api/notebooks", json={"title": "Mine"}).json()["id"]
    source = {"name": "zoo.md", "text": "The penguin eats 17 herrings."}
    assert httpx2.post(f"{url}/api/notebooks/{made}/sources", json=source).status_code == 201
    asked = {"message": "What does the penguin eat? Recommend something."}
    told = httpx2.post(f"{url}/api/notebooks/{made}/run", json=asked, timeout=60).json()
    assert "17 herrings" in told["output_text"]
    assert "Wild Robot" not in told["output_text"]


def test_the_demonstration() -> None:
    """A store of its own, with something that waits for a person and something that moves; gone afterwards."""
    with server("--demo") as serving:
        threads = httpx2.get(f"{serving.url}/api/threads", params={"limit": 200}).json()["threads"]
        waiting = {wait["kind"] for thread in threads for wait in thread["waiting_for"]}
        assert {"approval", "doubt", "input", "frontend_tools"} <= waiting
        plans = httpx2.get(f"{serving.url}/plans").text
        assert plans.count("completed</span>") == 2
        assert ">200<" in plans
        _own_notebook(serving.url)
        folder = Path(serving.told["store"].removeprefix("sqlite:///")).parent
        assert folder.exists()
        assert serving.end() == 0
    assert not folder.exists()
