"""A plugin of pytest that gives tests of ADK another session service. `ADK_FOLDER` is the folder of its databases.

`ADK_SERVICE` is `own` for ADK's SQLite service, else the service of Lockstitch is used.
"""

import os
from itertools import count
from typing import Any

import google.adk.sessions
from google.adk.sessions.sqlite_session_service import SqliteSessionService

from lockstitch.integrations.adk import LockstitchSessionService

_numbers = count()


def service(*_: Any) -> Any:
    """Return a service with an empty database."""
    path = os.path.join(os.environ["ADK_FOLDER"], f"{next(_numbers)}.db")
    if os.environ["ADK_SERVICE"] == "own":
        return SqliteSessionService(path)
    return LockstitchSessionService.open(f"sqlite:///{path}")


google.adk.sessions.InMemorySessionService = service
google.adk.sessions.DatabaseSessionService = service
