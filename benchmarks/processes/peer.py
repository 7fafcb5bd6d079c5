"""Run a peer or Lockstitch: `peer MODULE CONCURRENCY`. Lines on stdin: `open URL`, then `NUMBER STEPS` repeatedly.

Each of those lines executes NUMBER threads of STEPS steps. The answer is the start and the end, on the monotonic clock
of the machine.
"""

import gc
import os
import sys
import time
from importlib import import_module


def main(name: str, concurrency: int) -> None:
    peer = import_module(f"benchmarks.peers.{name}")
    print("ready", flush=True)
    url = sys.stdin.readline().strip().removeprefix("open ")
    prepare = peer.threads(url, concurrency)
    print("ready", flush=True)
    while line := sys.stdin.readline().strip():
        number, steps = map(int, line.split())
        execute = prepare(number, steps)
        gc.collect()
        started = time.monotonic()
        execute()
        print(started, time.monotonic(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
    # Peers leave OS threads that are never joined.
    os._exit(0)
