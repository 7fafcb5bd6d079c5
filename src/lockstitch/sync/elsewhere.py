"""A backend that lives on another loop."""

import asyncio
import inspect
from typing import Any

from lockstitch.backend import FullBackend
from lockstitch.sync.portal import Portal


class Elsewhere:
    """A backend for callers on another loop: each call is handed to its own."""

    def __init__(self, backend: FullBackend, portal: Portal) -> None:
        self._backend = backend
        self._portal = portal

    def __getattr__(self, name: str) -> Any:
        there = getattr(self._backend, name)
        if not inspect.iscoroutinefunction(there):
            return there

        async def call(*values: Any, **named: Any) -> Any:
            return await asyncio.wrap_future(self._portal.submit(there(*values, **named)))

        return call
