"""Pages of applications are looked at in the same browser as those of the server."""

from tests.server.conftest import browser, context, page

__all__ = ["browser", "context", "page"]
