"""The Claude Agent SDK on a store: `LockstitchSessionStore` stores transcripts as threads that people can read."""

from lockstitch.integrations.claude_agents.session_store import LockstitchSessionStore

__all__ = ["LockstitchSessionStore"]
