"""`python -m tests.server.ingest.killing [KILLS]`: a real server, killed at random while it receives traces.

After a restart the record must have each acknowledged span once.
"""

import asyncio
import json
import os
import random
import signal
import socket
import sqlite3
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import httpx2
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from lockstitch.store import open_store
from tests.docs.warm import warm_commands
from tests.server.ingest.sending import PROTOBUF, run_of
from tests.server.serving import serving

SPANS = 8
SENDERS = 4


class Told(NamedTuple):
    """The result of the test."""

    kills: int
    acknowledged: int
    lost: int
    doubled: int
    quarantined: int
    sound: bool


@dataclass
class Sending:
    """A sender, and its acknowledged spans."""

    url: str
    acknowledged: set[str] = field(default_factory=set)
    number: int = 0
    stopped: bool = False

    async def send(self) -> None:
        """Send until stopped. Bodies without an acknowledgement are not sent again."""
        async with httpx2.AsyncClient(base_url=self.url, timeout=5) as http:
            while not self.stopped:
                self.number += 1
                names = [f"span-{self.number}-{place}" for place in range(SPANS)]
                try:
                    if self.number % 2:
                        answer = await http.post("/v1/traces", content=_otlp(names), headers=PROTOBUF)
                    else:
                        answer = await http.post("/runs/batch", json={"post": [run_of(name=name) for name in names]})
                except httpx2.HTTPError:
                    await asyncio.sleep(0.05)
                    continue
                if answer.is_success:
                    self.acknowledged.update(names)
                await asyncio.sleep(random.uniform(0, 0.004))


async def kill_again_and_again(folder: Path, kills: int, seed: int, senders: int = SENDERS) -> Told:
    chance = random.Random(seed)
    path = folder / "killed.db"
    port = _free_port()
    sending = Sending(f"http://127.0.0.1:{port}")
    tasks = [asyncio.create_task(sending.send()) for _ in range(senders)]
    for _ in range(kills):
        async with running_server(path, port) as server:
            await asyncio.sleep(chance.uniform(0.05, 0.6))
            server.send_signal(signal.SIGKILL)
    # The last server runs in this process, because it is not killed.
    async with (
        open_store(f"sqlite:///{path}") as store,
        serving(store, port=port),
        httpx2.AsyncClient(base_url=sending.url, timeout=30) as http,
    ):
        await asyncio.sleep(0.2)
        sending.stopped = True
        await asyncio.gather(*tasks)
        waiting, quarantined = 1, 0
        async with asyncio.timeout(120):
            while waiting:
                queue = (await http.get("/api/arrivals")).json()
                waiting, quarantined = queue["waiting"], queue["quarantined"]
                await asyncio.sleep(0.05)
        sound = (await store.verify()).ok
    with sqlite3.connect(path) as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM stitch_rows WHERE name LIKE 'span-%'")]
    lost = sending.acknowledged - set(names)
    return Told(kills, len(sending.acknowledged), len(lost), len(names) - len(set(names)), quarantined, sound)


@asynccontextmanager
async def running_server(path: Path, port: int) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start a server and stop it at the end of the block."""
    process = await asyncio.create_subprocess_exec(
        *(warm_commands() / "lockstitch", "--store", f"sqlite:///{path}", "serve", "--port", str(port)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "LOCKSTITCH_APP": ""},
    )
    try:
        await answers(port, process)
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        # The server itself has ended, and its port is free, when its output ends.
        await process.communicate()


async def answers(port: int, process: asyncio.subprocess.Process) -> None:
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http, asyncio.timeout(60):
        while True:
            with suppress(httpx2.HTTPError):
                if (await http.get("/info")).is_success:
                    return
            if process.returncode is not None:
                raise RuntimeError(f"the server ended with {process.returncode}")
            await asyncio.sleep(0.02)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def _otlp(names: list[str]) -> bytes:
    request = ExportTraceServiceRequest()
    spans = request.resource_spans.add().scope_spans.add().spans
    trace_id, now = os.urandom(16), time.time_ns()
    for place, name in enumerate(names):
        span = spans.add(trace_id=trace_id, span_id=os.urandom(8), name=name)
        span.start_time_unix_nano, span.end_time_unix_nano = now + place, now + place + 1000
        if place:
            span.parent_span_id = spans[0].span_id
    return request.SerializeToString()


def main() -> None:
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    with tempfile.TemporaryDirectory(prefix="lockstitch-killing-") as folder:
        report = asyncio.run(kill_again_and_again(Path(folder), kills, seed=int(time.time())))
    print(json.dumps(report._asdict()))
    sys.exit(0 if report.lost == report.doubled == report.quarantined == 0 and report.sound else 1)


if __name__ == "__main__":
    main()
