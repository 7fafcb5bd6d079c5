"""Sending runs out as OpenTelemetry traces, once they have ended, beside everything else."""

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
    """Where an agent's runs are sent: a collector's address, by default what OTEL_EXPORTER_OTLP_ENDPOINT says."""

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
        """Send a run that has ended, in the background. What cannot be sent is logged; the record still has it."""
        if self._endpoint is None:
            return
        task = asyncio.create_task(self._send(store, head, run))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def close(self) -> None:
        """Wait for what is on its way."""
        if self._sending:
            await asyncio.gather(*self._sending, return_exceptions=True)

    async def _send(self, store: Store, head: Thread, run: Run) -> None:
        try:
            exporter = self._open()
            from lockstitch.agents.otlp import trace

            service = os.environ.get("OTEL_SERVICE_NAME") or "lockstitch"
            within = await store.execution.nested_runs(head, run) if run.role == "team" else []
            for other_run in (run, *within):
                stitches = await store.execution.run_log(head, other_run)
                await exporter.send(trace(head, other_run, stitches, service=service, content=self._content))
        except LockstitchError as exc:
            _log.warning("Run %s was not sent to %s: %s", run.id, self._endpoint, exc)

    def _open(self) -> Any:
        if self._exporter is None:
            try:
                from lockstitch.agents.otlp import Exporter
            except ModuleNotFoundError as exc:
                raise Refused(f"{exc.name} is missing: pip install 'lockstitch[otel]'") from exc
            self._exporter = Exporter(str(self._endpoint), self._headers)
        return self._exporter


def _headers(text: str) -> dict[str, str]:
    """Headers as OTEL_EXPORTER_OTLP_HEADERS writes them: name=value, joined by commas, percent-encoded."""
    pairs = (part.partition("=") for part in text.split(",") if "=" in part)
    return {name.strip(): unquote(value.strip()) for name, _, value in pairs}
