"""A peer: `peer NAME BACKEND CONCURRENCY`. Lines: `open URL`, then the numbers of threads to drive, again and again.

The answer to a number is when it began and when it ended, by the clock that all processes of a machine share.
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
        began = time.monotonic()
        begin()
        print(began, time.monotonic(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    # Peers leave threads of their own behind that nobody waits for.
    os._exit(0)
