"""The server: the record over HTTP, traces in, and pages. Needs the extra `server`."""

from lockstitch.server.app import create, router
from lockstitch.server.settings import Settings

__all__ = ["Settings", "create", "router"]
