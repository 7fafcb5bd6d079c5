"""Whoever reads from a server that is killed again and again ends with the whole log, each stitch once."""

from pathlib import Path

import pytest

from tests.server.killing import killing

pytestmark = pytest.mark.anyio


async def test_a_reader_outlives_the_kills_of_its_server(tmp_path: Path) -> None:
    report = await killing(f"sqlite:///{tmp_path / 'store.db'}", kills=2, seed=6)
    assert report.kills == 2
    assert report.deltas
    wrong = (report.lost, report.repeated, report.different, report.unfinished, report.failed)
    assert wrong == (0, 0, 0, 0, 0), str(report)
