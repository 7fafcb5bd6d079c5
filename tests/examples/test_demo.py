"""The demonstration runs by itself and keeps what it promises, from a checkout and from an installed package."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.calling import SOURCE, Call, begin, environment

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"


def test_the_demo_kills_and_pays_once(tmp_path: Path) -> None:
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
    told = done.stdout
    for command in ("run clerk", "resume order-4711", "settle order-4711", "history order-4711", "log ", "doctor"):
        assert f"$ lockstitch {command}" in told
    assert "Nobody knows whether charge" in told
    assert "Order 4711 is settled" in told
    assert "All well: 1 thread, 13 stitches read." in told
    assert "charged exactly once" in told
    assert "$0.00" in told
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"


def test_its_facts_as_json(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", SOURCE)
    facts = call("demo", "--json").json
    assert (facts["ok"], facts["charges"], facts["model"]) == (True, 1, "scripted")
    assert facts["total_cost"] > 0


def test_a_real_model_needs_its_key(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    for model, key in (("openai:gpt-5", "OPENAI_API_KEY"), ("anthropic:claude-sonnet-5", "ANTHROPIC_API_KEY")):
        told = call("demo", "--model", model)
        assert (told.code, told.out) == (1, "")
        assert key in told.err
    assert call("demo", "--model", "nonsense").code == 1


def test_interrupted_it_leaves_nothing_behind(tmp_path: Path) -> None:
    with begin("demo", cwd=tmp_path, env={"TMPDIR": str(tmp_path)}) as process:
        assert process.stdout is not None
        while "→ charge" not in process.stdout.readline():
            assert process.poll() is None
        os.kill(process.pid, signal.SIGINT)
        process.communicate(timeout=60)
        assert process.returncode == 130
    assert list(tmp_path.iterdir()) == []
