"""Fixtures of the server's pages, for pages of applications."""

from tests.server.conftest import anyio_backend, browser, browser_endpoint, browser_path, page, shared_page

__all__ = ["anyio_backend", "browser", "browser_endpoint", "browser_path", "page", "shared_page"]
