"""Switching a safety off, to prove that the tests would notice its absence."""

import os


def unsafe(what: str) -> bool:
    """Whether LOCKSTITCH_UNSAFE names this safety: `fence` (who may write) or `intent` (what was begun)."""
    return os.environ.get("LOCKSTITCH_UNSAFE") == what
