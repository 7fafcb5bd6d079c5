"""`RemoteAlerts`: the alerts of a server, `Client.alerts`, with the methods of `lockstitch.store.alerts.Alerts`."""

from lockstitch.client.connection import Connection, part
from lockstitch.model import Alert, Json
from lockstitch.store.alerts import Measure


class RemoteAlerts:
    """The alerts of the project of a client."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def list(self) -> list[Alert]:
        """Return the alerts with their last checks, those that fire first, then by name."""
        return [Alert.from_json(row) for row in await self._connection.get("/api/alerts")]

    async def set(
        self,
        name: str,
        measure: Measure,
        above: float,
        *,
        window_minutes: int = 60,
        agent: str | None = None,
        minimum_runs: int = 1,
        webhook: str | None = None,
    ) -> Alert:
        """Create an alert, or replace the alert with this name. It is checked again as a new one.

        Args:
            name: Name of the alert.
            measure: `cost` in dollars, `error_rate` from 0 to 1, or `latency` in seconds.
            above: The alert fires while the measure is above this value.
            window_minutes: Length of the window in minutes, at most 30 days.
            agent: Only runs of this agent. None: of all agents.
            minimum_runs: The alert does not fire with fewer runs in the window.
            webhook: URL that receives each change by POST.

        Raises:
            Refused: If a value is not valid.
        """
        body: Json = {"measure": measure, "above": above, "window_minutes": window_minutes, "agent": agent}
        body |= {"minimum_runs": minimum_runs, "webhook": webhook}
        return Alert.from_json(await self._connection.ask("PUT", f"/api/alerts/{part(name)}", body=body))

    async def remove(self, name: str) -> None:
        """Delete an alert.

        Args:
            name: Name of the alert.

        Raises:
            NotFound: If the project has no alert with this name.
        """
        await self._connection.ask("DELETE", f"/api/alerts/{part(name)}")
