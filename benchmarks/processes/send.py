"""Send OTLP requests to a server and print the times as JSON: `send URL FOLDER CONCURRENCY [HEADER=VALUE…]`.

Every file of the folder is the body of a request. A request with the response 503 is repeated. Every other status
except 200 is an error.
"""

import http.client
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Empty, SimpleQueue
from urllib.parse import urlsplit

PATIENCE = 300.0


def main(url: str, folder: str, concurrency: int, headers: dict[str, str]) -> None:
    bodies = [path.read_bytes() for path in sorted(Path(folder).iterdir())]
    waiting: SimpleQueue[bytes] = SimpleQueue()
    for body in bodies:
        waiting.put(body)
    where = urlsplit(url)
    assert where.hostname is not None

    def send(_: int) -> list[float]:
        connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=300)
        spent: list[float] = []
        while True:
            try:
                body = waiting.get_nowait()
            except Empty:
                return spent
            started = time.perf_counter()
            while True:
                connection.request("POST", where.path, body, {"Content-Type": "application/x-protobuf", **headers})
                answer = connection.getresponse()
                response_body = answer.read()
                if answer.status == 200:
                    break
                if answer.status != 503 or time.perf_counter() - started > PATIENCE:
                    raise RuntimeError(f"{answer.status}: {response_body[:300]!r}")
                # Like exporters.
                time.sleep(float(answer.getheader("Retry-After") or 0.1))
            spent.append(time.perf_counter() - started)

    started = time.perf_counter()
    with ThreadPoolExecutor(concurrency) as pool:
        spent = sorted(duration for durations in pool.map(send, range(concurrency)) for duration in durations)
    seconds = time.perf_counter() - started
    print(json.dumps({"seconds": seconds, "p95_ms": 1000 * spent[int(len(spent) * 0.95)]}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), dict(header.split("=", 1) for header in sys.argv[4:]))
