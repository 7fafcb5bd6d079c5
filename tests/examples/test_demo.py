"""The demonstration runs by itself and keeps what it promises."""

import re
import subprocess
import sys
from pathlib import Path

from tests.cli.calling import environment

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"


def test_the_demo_kills_and_finds_everything_whole(tmp_path: Path) -> None:
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
    assert "cut off" in done.stdout
    assert "All depots are checked" in done.stdout
    assert "All well: 1 thread, 30 stitches read." in done.stdout
    for command in ("threads", "history parcels", "log ", "doctor --verify"):
        assert f"$ lockstitch {command}" in done.stdout
    kept = re.search(r"All (\d+) acknowledged stitches are there", done.stdout)
    assert kept
    assert 10 <= int(kept[1]) < 30
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"
