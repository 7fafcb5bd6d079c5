"""`Client`: access to a Lockstitch server over HTTP. Needs the extra `client`."""

from lockstitch.client.client import Client
from lockstitch.client.models import Difference, History, Hit, RunResult, StreamEvent, ThreadRow

__all__ = ["Client", "Difference", "History", "Hit", "RunResult", "StreamEvent", "ThreadRow"]
