"""How a server is set: who is let in, and how much it takes."""

from dataclasses import dataclass, field
from typing import Final

from lockstitch.integrations.spans.budget import Limits

LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1", "[::1]"})
"""The names by which a machine calls itself."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What can be set. The defaults are those of a server on loopback, for one person."""

    tokens_needed: bool = False
    """Whether nobody is let in without a token. Always so where others than this machine can connect."""
    hosts: tuple[str, ...] = ()
    """Names by which it may be called, besides loopback's. Without tokens no others are answered: another site's
    page could otherwise reach this server through a name that it makes point here."""
    body_limit: int = 64 << 20
    """Bytes of a request's body."""
    header_seconds: float = 20.0
    """Seconds in which the headers of a request must come. `lockstitch serve` applies it."""
    connections: int | None = None
    """Connections at once; None: as many as the process has file descriptors for. `lockstitch serve` applies it."""
    body_seconds: float = 60.0
    """Seconds in which the next part of a body must come."""
    body_rate: int = 8 << 10
    """Bytes per second that a body must come with on average, after the first `body_seconds`."""
    backlog_limit: int = 256 << 20
    """Bytes of raw bodies that may wait to be read before senders are asked to come back later."""
    backlog_seconds: float = 300.0
    """Seconds that a body may wait to be read before `/readyz` answers 503."""
    body_cost: Limits = field(default_factory=Limits)
    """The most that reading one body of traces may cost. A body that costs more goes into quarantine."""
    redact: tuple[str, ...] = ()
    """Further names in metadata of traces whose values are not kept, besides those that look like secrets."""
    keep_secrets: bool = False
    """Whether values in metadata of traces that look like secrets are kept."""
    sql_seconds: float = 5.0
    sql_rows: int = 1000
    sql_force: bool = False
    """True if SQL runs as the store's own user where the database offers no login that can only read."""
    work: bool = True
    """Whether this process drives the threads of its app itself; otherwise that is left to workers."""
    concurrency: int = 10
    """Threads that it drives at once."""
