"""`Settings`: access, limits and timeouts of a server."""

from dataclasses import dataclass, field
from typing import Final

from lockstitch.integrations.spans.budget import Limits

LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1", "[::1]"})
"""Host names of the local machine."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a server. The defaults are for one user on the local machine."""

    tokens_needed: bool = False
    """True if each request needs a token. Required if other machines can connect."""
    hosts: tuple[str, ...] = ()
    """Additional allowed host names. Without tokens, requests with other host names are rejected. Otherwise a page of
    another site could reach the server through DNS rebinding."""
    body_limit: int = 64 << 20
    """Maximum size of a request body in bytes."""
    header_seconds: float = 20.0
    """Seconds to receive the headers of a request. Applied by `lockstitch serve`."""
    connections: int | None = None
    """Maximum number of connections. None: limited by file descriptors. Applied by `lockstitch serve`."""
    body_seconds: float = 60.0
    """Seconds to receive the next part of a body."""
    body_rate: int = 8 << 10
    """Minimum average rate of a body in bytes per second, after the first `body_seconds`."""
    backlog_limit: int = 256 << 20
    """Maximum size of the ingest queue in bytes. If it is full, senders get 503."""
    backlog_seconds: float = 300.0
    """Seconds that a body can wait in the ingest queue before `/readyz` returns 503."""
    body_cost: Limits = field(default_factory=Limits)
    """Limits for the work of reading a body. A body that exceeds them goes to quarantine."""
    redact: tuple[str, ...] = ()
    """Additional metadata names of which values are not stored. Names that look like secrets are always included."""
    keep_secrets: bool = False
    """True if metadata values that look like secrets are stored."""
    sql_seconds: float = 5.0
    """Seconds that a query of a user may take."""
    sql_rows: int = 1000
    """Maximum number of rows of a query of a user."""
    sql_force: bool = False
    """True if SQL runs as the store's own user where the database offers no login that can only read."""
    mcp_acts: bool = False
    """True if MCP clients with the scope `write` may approve, deny, answer, fork and retry."""
    work: bool = True
    """True if this process executes the threads of its app. Otherwise workers do."""
    concurrency: int = 10
    """Maximum number of threads that it executes at a time."""
