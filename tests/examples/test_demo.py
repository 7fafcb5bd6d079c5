"""`lockstitch demo`, from a checkout and as an installed command."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.calling import SOURCE, Call, begin, environment
from tests.docs.warm import warm_commands

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"


def test_pays_once_when_killed(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(DEMO)],
        env=environment(TMPDIR=str(tmp_path)),
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    output = done.stdout
    for command in ("run clerk", "resume order-4711", "settle order-4711", "history order-4711", "log ", "doctor"):
        assert f"$ lockstitch {command}" in output
    assert "its outcome is unknown" in output
    assert "Order 4711 is settled" in output
    assert "No problems found in 1 thread, 13 stitches" in output
    assert "charged exactly once" in output
    assert "$0.00" in output
    assert list(tmp_path.iterdir()) == [], "temporary files must be deleted"


def test_prints_facts_as_json(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", SOURCE)
    # The processes of the demo are forked from a loaded interpreter.
    monkeypatch.setattr(sys, "executable", str(warm_commands() / "python"))
    facts = call("demo", "--json").json
    assert (facts["ok"], facts["charges"], facts["model"]) == (True, 1, "scripted")
    assert facts["total_cost"] > 0


def test_fails_when_key_of_real_model_is_missing(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    for model, key in (("openai:gpt-5", "OPENAI_API_KEY"), ("anthropic:claude-sonnet-5", "ANTHROPIC_API_KEY")):
        result = call("demo", "--model", model)
        assert (result.code, result.out) == (1, "")
        assert key in result.err
    assert call("demo", "--model", "nonsense").code == 1


def test_deletes_files_when_interrupted(tmp_path: Path) -> None:
    with begin("demo", cwd=tmp_path, env={"TMPDIR": str(tmp_path)}) as process:
        assert process.stdout is not None
        while "→ charge" not in process.stdout.readline():
            assert process.poll() is None
        os.kill(process.pid, signal.SIGINT)
        process.communicate(timeout=60)
        assert process.returncode == 130
    assert list(tmp_path.iterdir()) == []
