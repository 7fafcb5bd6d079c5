"""A server that is killed while traces come in."""

from pathlib import Path

import pytest

from tests.server.ingest.killing import kill_again_and_again

pytestmark = pytest.mark.anyio


async def test_what_was_acknowledged_is_there(tmp_path: Path) -> None:
    """A few times here; `python -m tests.server.ingest.killing` does it as often as one likes."""
    told = await kill_again_and_again(tmp_path, kills=2, seed=1, senders=2)
    assert told.acknowledged > 0
    assert (told.lost, told.doubled, told.quarantined, told.sound) == (0, 0, 0, True)
