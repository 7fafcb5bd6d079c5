"""A server that is killed while it receives traces."""

from pathlib import Path

import pytest

from tests.server.ingest.killing import kill_again_and_again

pytestmark = pytest.mark.anyio


async def test_acknowledged_spans_survive_kills(tmp_path: Path) -> None:
    """A few kills. `python -m tests.server.ingest.killing` runs any number."""
    report = await kill_again_and_again(tmp_path, kills=2, seed=1, senders=2)
    assert report.acknowledged > 0
    assert (report.lost, report.doubled, report.quarantined, report.sound) == (0, 0, 0, True)
