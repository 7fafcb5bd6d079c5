"""Run a peer: `peer NAME BACKEND CONCURRENCY`. Lines on stdin: `open URL`, then numbers of threads to execute.

The output for each number is its start and end, on the monotonic clock of the machine.
"""

import os
import sys
import time
from importlib import import_module


def main(name: str, backend: str, concurrency: int) -> None:
    peer = import_module(f"benchmarks.peers.{name}")
    print("ready", flush=True)
    url = sys.stdin.readline().strip().removeprefix("open ")
    drive = peer.threads(backend, url, concurrency)
    print("ready", flush=True)
    while line := sys.stdin.readline().strip():
        begin = drive(int(line))
        started = time.monotonic()
        begin()
        print(started, time.monotonic(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    # Peers leave OS threads that are never joined.
    os._exit(0)
