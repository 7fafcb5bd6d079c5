"""Fixtures: agents on a fake server."""

from tests.agents.conftest import api, claude

__all__ = ["api", "claude"]
