"""`serve` and `token`, with real servers where needed."""

import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import httpx2
import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SpanExportResult

from lockstitch.model import codec
from tests.cli.calling import Call
from tests.cli.servers import server


def test_serve_answers_and_stops(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/agents.db"
    with server("--store", url) as serving:
        assert serving.started == {"event": "serves", "url": serving.url, "store": url, "tokens": False}
        assert httpx2.get(f"{serving.url}/readyz").text == "ready\n"
        assert serving.end() == 0
        assert serving.process.stderr is not None
        line = codec.loads(serving.process.stderr.readline().encode())
        assert (line["path"], line["status"]) == ("/readyz", 200)


def test_ctrl_c_stops_server_with_code_130(tmp_path: Path) -> None:
    with server("--store", f"sqlite:///{tmp_path}/agents.db") as serving:
        assert serving.end(signal.SIGINT) == 130


def test_serve_reports_port_in_use(call: Call, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        result = call("serve", "--port", port, "--store", f"sqlite:///{tmp_path}/agents.db")
    assert result.code == 1
    assert f"127.0.0.1:{port}" in result.err
    assert not (tmp_path / "agents.db").exists()


@pytest.mark.parametrize("address", ["0", "127.0.0.1:0"])
def test_serve_accepts_otlp_over_grpc(tmp_path: Path, address: str) -> None:
    with server("--store", f"sqlite:///{tmp_path}/agents.db", "--otlp-grpc", address) as serving:
        host, _, port = serving.started["otlp_grpc"].rpartition(":")
        assert (host, int(port) > 0) == ("127.0.0.1", True)
        exporter = OTLPSpanExporter(endpoint=f"http://{host}:{port}")
        with TracerProvider().get_tracer("shop").start_as_current_span("answer") as span:
            pass
        assert exporter.export([span]) is SpanExportResult.SUCCESS  # type: ignore[list-item]
        exporter.shutdown()
        # The message is durable, so a server that ends now has stored it.
        assert serving.end() == 0
    with server("--store", f"sqlite:///{tmp_path}/agents.db") as serving:
        deadline = time.monotonic() + 60
        while not (threads := httpx2.get(f"{serving.url}/api/threads").json()["threads"]):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert [thread["kind"] for thread in threads] == ["trace"]


def test_second_signal_ends_server_with_open_grpc_call(tmp_path: Path) -> None:
    options = ("--otlp-grpc", "0", "--grace", "600")
    with server("--store", f"sqlite:///{tmp_path}/agents.db", *options) as serving:
        done = threading.Event()

        def messages() -> Iterator[bytes]:
            done.wait()
            yield b""

        with grpc.insecure_channel(serving.started["otlp_grpc"]) as channel:
            call = channel.stream_unary("/opentelemetry.proto.collector.trace.v1.TraceService/Export")
            waiting = call.future(messages())
            # The second call on the connection is answered, so the server has received the first.
            channel.unary_unary("/opentelemetry.proto.collector.logs.v1.LogsService/Export")(b"", timeout=60)
            serving.process.send_signal(signal.SIGTERM)
            with pytest.raises(subprocess.TimeoutExpired):
                serving.process.wait(1)
            assert serving.end() == 0
            assert waiting.code() is not grpc.StatusCode.OK
            done.set()


def test_serve_reports_grpc_port_in_use(call: Call, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        options = ("--port", "0", "--otlp-grpc", port)
        result = call("serve", *options, "--store", f"sqlite:///{tmp_path}/agents.db")
    assert result.code == 1
    assert f"127.0.0.1:{port} for gRPC" in result.err
    assert not (tmp_path / "agents.db").exists()


@pytest.mark.parametrize("address", ["", "x", "127.0.0.1", ":", "::1:4317", "[::1]4317", "localhost:70000"])
def test_serve_rejects_invalid_grpc_address(call: Call, tmp_path: Path, address: str) -> None:
    result = call("serve", "--otlp-grpc", address, "--store", f"sqlite:///{tmp_path}/agents.db")
    assert (result.code, "[::1]:4317" in result.err) == (2, True)


@pytest.mark.parametrize(
    "options", [["--host", "0.0.0.0"], ["--tokens"], ["--host", "::"], ["--otlp-grpc", "0.0.0.0:0"]]
)
def test_serve_requires_token_for_other_addresses(call: Call, tmp_path: Path, options: list[str]) -> None:
    result = call("serve", "--port", "0", *options, "--store", f"sqlite:///{tmp_path}/agents.db")
    assert result.code == 2
    assert "lockstitch token create" in result.err


def test_token_can_be_created_listed_and_revoked(call: Call, tmp_path: Path) -> None:
    store = ("--store", f"sqlite:///{tmp_path}/agents.db")
    scopes = ("--scope", "read", "--scope", "write")
    token = call("token", "create", "ada", *scopes, "--expires", "90d", *store, "--json").json
    assert token["scopes"] == ["read", "write"]
    assert token["expires_at"]
    with server("--host", "127.0.0.1", "--tokens", *store) as serving:
        assert serving.started["tokens"] is True
        headers = {"Authorization": f"Bearer {token['token']}"}
        assert httpx2.get(f"{serving.url}/api/threads", headers=headers).status_code == 200
        assert httpx2.get(f"{serving.url}/api/threads").status_code == 401
        listed = call("token", "list", *store)
        assert "ada" in listed.out
        assert token["token"] not in listed.out
        assert call("token", "revoke", "ada", *store).code == 0
        assert httpx2.get(f"{serving.url}/api/threads", headers=headers).status_code == 401
    assert call("token", "revoke", "ada", *store).code == 3
    assert call("token", "create", "x", "--scope", "all", *store).code == 2


def _own_notebook(url: str) -> None:
    """A new notebook is answered from its own sources, not from those of the script."""
    notebook_id = httpx2.post(f"{url}/api/notebooks", json={"title": "Mine"}).json()["id"]
    source = {"name": "zoo.md", "text": "The penguin eats 17 herrings."}
    assert httpx2.post(f"{url}/api/notebooks/{notebook_id}/sources", json=source).status_code == 201
    body = {"message": "What does the penguin eat? Recommend something."}
    answer = httpx2.post(f"{url}/api/notebooks/{notebook_id}/run", json=body, timeout=60).json()
    assert "17 herrings" in answer["output_text"]
    assert "Wild Robot" not in answer["output_text"]


def test_demo_serves_temporary_store() -> None:
    """The demo has a separate store with waiting and running threads. It is deleted afterwards."""
    with server("--demo") as serving:
        threads = httpx2.get(f"{serving.url}/api/threads", params={"limit": 200}).json()["threads"]
        waiting = {wait["kind"] for thread in threads for wait in thread["waiting_for"]}
        assert {"approval", "doubt", "input", "frontend_tools"} <= waiting
        plans = httpx2.get(f"{serving.url}/plans").text
        assert plans.count("completed</span>") == 2
        assert ">200<" in plans
        first, second = httpx2.get(f"{serving.url}/api/evals").json()["evals"][::-1]
        compared = httpx2.get(f"{serving.url}/api/evals/compare", params={"id": [first["id"], second["id"]]}).json()
        (difference,) = compared["differences"]
        assert (difference["better"], difference["worse"]) == (3, 1)
        assert second["passed"] == 4
        assert httpx2.get(f"{serving.url}/api/feedback", params={"name": "helpful"}).json()
        _own_notebook(serving.url)
        folder = Path(serving.started["store"].removeprefix("sqlite:///")).parent
        assert folder.exists()
        assert serving.end() == 0
    assert not folder.exists()
