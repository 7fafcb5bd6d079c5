"""`Client`: access to a Lockstitch server over HTTP. Needs the extra `client`."""

from lockstitch.errors import missing_extra

try:
    from lockstitch.client.client import Client
    from lockstitch.client.models import (
        Difference,
        History,
        Hit,
        Inbox,
        Matches,
        RunResult,
        StreamEvent,
        ThreadRow,
        WaitingThread,
    )
except ModuleNotFoundError as exc:
    raise missing_extra(exc, "Client", "client") from exc

__all__ = [
    "Client",
    "Difference",
    "History",
    "Hit",
    "Inbox",
    "Matches",
    "RunResult",
    "StreamEvent",
    "ThreadRow",
    "WaitingThread",
]
