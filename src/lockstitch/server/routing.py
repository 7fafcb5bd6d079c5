"""`LazyRouter`: a router whose routes are analyzed when they are first used.

FastAPI analyzes the parameters and the response of a route when the route is defined. The server has hundreds of
routes, and a process that starts needs few of them.
"""

import threading
from collections.abc import Callable
from typing import Any, Final

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.routing import Match, compile_path, get_name
from starlette.types import Scope

_PATH_PARTS: Final = frozenset({"path_regex", "path_format", "param_convertors"})

_analysis = threading.RLock()
"""Held while a route is analyzed. The OpenAPI document analyzes all routes in another thread."""


class LazyRoute(APIRoute):
    """A route that has only its path, its methods and its endpoint until it is used."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        self.path = path
        self.endpoint = endpoint
        self.name = options.get("name") or get_name(endpoint)
        self.methods = {method.upper() for method in options.get("methods") or ("GET",)}
        self.include_in_schema = options["include_in_schema"]
        self._start, parameters, _ = path.partition("{")
        self._has_parameters = bool(parameters)
        self._options = options

    def __getattr__(self, name: str) -> Any:
        """Analyze the route, because it does not have an attribute yet."""
        if name.startswith("__"):
            raise AttributeError(name)
        with _analysis:
            if name in _PATH_PARTS:
                self.path_regex, self.path_format, self.param_convertors = compile_path(self.path)
            elif "_options" in self.__dict__:
                before = dict(self.__dict__)
                try:
                    super().__init__(self.path, self.endpoint, **self.__dict__.pop("_options"))
                except BaseException:
                    # The next use reports the error again.
                    self.__dict__ = before
                    raise
            if name not in self.__dict__:
                raise AttributeError(f"A route has no attribute {name!r}.")
            return self.__dict__[name]

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Return the match of a request. Most other paths are recognized without the regular expression."""
        path = str(scope.get("path", ""))
        if not (self._start in path if self._has_parameters else path.endswith(self._start)):
            return Match.NONE, {}
        return super().matches(scope)

    def at(self, path: str) -> "LazyRoute":
        """Return this route at another path. The route must not be in use yet."""
        return LazyRoute(path, self.endpoint, **self._options)


class LazyRouter(APIRouter):
    """A router of `LazyRoute`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, route_class=LazyRoute)
