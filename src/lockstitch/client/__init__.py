"""The client: a server's record with the face of the store's reading calls. Needs the extra `client`."""

from lockstitch.client.client import Client
from lockstitch.client.models import Difference, History, Hit, RunResult, StreamEvent, ThreadRow

__all__ = ["Client", "Difference", "History", "Hit", "RunResult", "StreamEvent", "ThreadRow"]
