"""Pages of applications are looked at in the same browser as those of the server."""

from tests.server.conftest import anyio_backend, browser, browser_path, context, page

__all__ = ["anyio_backend", "browser", "browser_path", "context", "page"]
