"""Fixtures: agents on a fake server, and a receiver of webhooks."""

from tests.agents.conftest import api, claude
from tests.engine.receiver import receiver

__all__ = ["api", "claude", "receiver"]
