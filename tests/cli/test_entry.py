"""The entry point: broken streams, interrupts, and errors on one line."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lockstitch.cli.entry import run as run_here
from tests.cli.calling import Call, begin, environment, run
from tests.cli.story import tell

MANY = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 30000) SELECT i FROM n"
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return tell(f"sqlite:///{tmp_path / 'store.db'}").url


@pytest.mark.parametrize("form", ["table", "json", "csv"])
def test_closed_pipe_is_no_failure(url: str, form: str) -> None:
    """As in `| head -1`."""
    with begin("sql", MANY, "--limit", "30000", "--format", form, "--store", url) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(5)
        process.stdout.close()
        assert process.wait(60) == 0
        assert process.stderr.read() == ""


def test_help_into_closed_pipe_is_no_failure() -> None:
    with begin("--help") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.wait(60) == 0
        assert process.stderr.read() == ""


def shell(line: str, url: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", line],
        check=False,
        env=environment(LOCKSTITCH_STORE=url),
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_command_handles_closed_and_full_streams(call: Call, url: str) -> None:
    command = f"{sys.executable} -m lockstitch"
    for shell_command in ("threads", "threads --json"):
        closed = shell(f"{command} {shell_command} >&-", url)
        assert (closed.returncode, closed.stderr) == (0, "")
        full = shell(f"{command} {shell_command} >/dev/full", url)
        assert full.returncode == 1
        assert "No space left on device" in full.stderr
        assert "Traceback" not in full.stderr
    assert shell(f"{command} nonsense 2>&-", url).returncode == 2
    assert shell(f"{command} threads <&- >&- 2>&-", url).returncode == 0
    assert call("doctor", "--verify", "--store", url).code == 0, "nothing was written into the store"


def test_interrupt_during_query_exits_with_130(url: str, tmp_path: Path) -> None:
    with begin("sql", ENDLESS, "--seconds", "60", "--store", url, fresh=True) as process:
        # The query runs without end in a child process. A child with this much CPU time has started.
        while not any(_worked(child) > 1.0 for child in _children(process.pid)):
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        started = time.monotonic()
        out, err = process.communicate(timeout=60)
        assert process.returncode == 130
        assert (out, err) == ("", "lockstitch: interrupted\n")
        assert time.monotonic() - started < 10


def _children(pid: int) -> list[int]:
    return [int(child) for part in Path(f"/proc/{pid}/task").glob("*/children") for child in part.read_text().split()]


def _worked(pid: int) -> float:
    """Return the CPU seconds that a process has used."""
    ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11]
    return int(ticks) / os.sysconf("SC_CLK_TCK")


def test_interrupt_during_imports_exits_with_130(url: str, tmp_path: Path) -> None:
    (tmp_path / "orjson.py").write_text("import time\nprint('loading', flush=True)\ntime.sleep(60)\n")
    path = os.pathsep.join([str(tmp_path), environment()["PYTHONPATH"]])
    with begin("threads", "--store", url, env={"PYTHONPATH": path}, fresh=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "loading\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 130
        assert "Traceback" not in err


def test_limited_encoding_prints_escapes(url: str) -> None:
    env = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    result = run("context", "customer-42", "--store", url, env=env, fresh=True)
    assert result.code == 0
    assert "\\u2190 charged 12 EUR" in result.out
    result = run(
        "title", "customer-42", "Größe", "--json", "--store", url, env={"PYTHONIOENCODING": "ascii"}, fresh=True
    )
    assert result.json["title"] == "Größe"


def test_arguments_that_are_not_utf8_are_rejected(call: Call, url: str) -> None:
    line = [sys.executable.encode(), b"-m", b"lockstitch", b"show", b"\xff", b"--store", url.encode()]
    real = subprocess.run(line, check=False, env=environment(), capture_output=True, timeout=60)
    assert (real.returncode, b"not valid UTF-8" in real.stderr, b"Traceback" in real.stderr) == (2, True, False)
    for command in ([b"search", b"\xff\xfe"], [b"sql", b"SELECT '\xff'"], [b"--project", b"\xff", b"threads"]):
        result = call("--store", url, *map(os.fsdecode, command))
        assert (result.code, "not valid UTF-8" in result.err) == (2, True)


def test_errors_are_one_line_or_one_json_object(call: Call, tmp_path: Path) -> None:
    missing = f"sqlite:///{tmp_path / 'none.db'}"
    result = call("threads", "--store", missing)
    assert (result.code, result.out) == (5, "")
    assert result.err == (
        f"lockstitch: No store found at {tmp_path / 'none.db'}. Run `lockstitch migrate` to create it, "
        "or check the URL and the current folder.\n"
    )
    for arguments in (["--json", "threads"], ["threads", "--json"]):
        result = call(*arguments, "--store", missing)
        assert result.code == 5
        error = json.loads(result.err)
        assert list(error) == ["error", "message"]
        assert error["error"] == "StoreUnreachable"
    result = call("threads", "--wrong", "--json")
    assert (result.code, json.loads(result.err)["error"]) == (2, "Usage")
    assert not list(tmp_path.iterdir()), "reading created no file"


def test_unexpected_error_is_one_line(call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def break_down(*_: object, **__: object) -> None:
        raise ZeroDivisionError("two\nlines")

    monkeypatch.setattr("lockstitch.sync.open_store", break_down)
    result = call("threads")
    assert result.code == 1
    assert result.err.startswith("lockstitch: unexpected ZeroDivisionError: two lines (")
    monkeypatch.setenv("LOCKSTITCH_DEBUG", "1")
    assert "Traceback" in call("threads").err


def test_no_arguments_print_help(call: Call) -> None:
    result = call()
    assert result.code == 0
    assert result.out == call("--help").out
    assert run_here(["--version"]) == 0
