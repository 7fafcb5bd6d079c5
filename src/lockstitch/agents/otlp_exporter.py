"""`OtlpExporter`: send finished runs as OpenTelemetry traces, in background tasks."""

import asyncio
import logging
import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from lockstitch.errors import LockstitchError, Refused
from lockstitch.model import Run, Thread
from lockstitch.store import Store

_log = logging.getLogger("lockstitch")


class OtlpExporter:
    """Sends the runs of an agent to an OTLP collector. It does nothing without an endpoint.

    Args:
        endpoint: URL of the collector. None: the value of OTEL_EXPORTER_OTLP_ENDPOINT.
        headers: Headers of each request. None: the value of OTEL_EXPORTER_OTLP_HEADERS.
        content: True to send the input of runs, answers, tool arguments and tool results too.
    """

    def __init__(
        self, endpoint: str | None = None, headers: Mapping[str, str] | None = None, *, content: bool = False
    ) -> None:
        self._endpoint = endpoint or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
        self._headers = headers if headers is not None else _headers(os.environ.get("OTEL_EXPORTER_OTLP_HEADERS", ""))
        self._content = content
        self._exporter: Any = None
        self._sending: set[asyncio.Task[None]] = set()
        if endpoint:
            self._open()

    def send(self, store: Store, head: Thread, run: Run) -> None:
        """Send a finished run in a background task. A failure is logged; the store still has the run.

        Args:
            store: Store of the thread.
            head: The thread.
            run: The run. The runs of a team's members are sent with the run of the team.
        """
        if self._endpoint is None:
            return
        task = asyncio.create_task(self._send(store, head, run))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def close(self) -> None:
        """Wait until all traces are sent."""
        if self._sending:
            await asyncio.gather(*self._sending, return_exceptions=True)

    async def _send(self, store: Store, head: Thread, run: Run) -> None:
        try:
            exporter = self._open()
            from lockstitch.agents.run_spans import trace

            service = os.environ.get("OTEL_SERVICE_NAME") or "lockstitch"
            members = await store.execution.nested_runs(head, run) if run.role == "team" else []
            for sent_run in (run, *members):
                stitches = await store.execution.run_log(head, sent_run)
                await exporter.send(trace(head, sent_run, stitches, service=service, content=self._content))
        except LockstitchError as exc:
            _log.warning("Trace of run %s not sent to %s: %s", run.id, self._endpoint, exc)

    def _open(self) -> Any:
        if self._exporter is None:
            try:
                from lockstitch.agents.run_spans import Exporter
            except ModuleNotFoundError as exc:
                raise Refused(f"Package {exc.name} is not installed. Run: pip install 'lockstitch[otel]'.") from exc
            self._exporter = Exporter(str(self._endpoint), self._headers)
        return self._exporter


def _headers(text: str) -> dict[str, str]:
    """Parse the value of OTEL_EXPORTER_OTLP_HEADERS: percent-encoded name=value pairs, separated by commas."""
    pairs = (part.partition("=") for part in text.split(",") if "=" in part)
    return {name.strip(): unquote(value.strip()) for name, _, value in pairs}
