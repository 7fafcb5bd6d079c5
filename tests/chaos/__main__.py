"""`make chaos`: kill and stop workers, cut connections, make the store unreachable, then check the record.

The last line is the verdict.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.chaos.play import play
from tests.chaos.pooler import Pooler
from tests.faults import install
from tests.races.fan_in import fan_in
from tests.servers import PostgresServer

BACKENDS = ("sqlite", "postgres")


def main() -> int:
    install()
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="of faults, per backend")
    parser.add_argument("--houses", type=int, default=12, help="that are built at once; eleven threads each")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--poison", type=int, default=2, help="threads that kill their process, per backend")
    parser.add_argument("--patience", type=float, default=120, help="seconds until everything must have ended")
    parser.add_argument("--until-doubled", action="store_true", help="end the faults when something happened twice")
    parser.add_argument("--rounds", type=int, default=2000, help="of 20 children ending at once, per backend")
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=BACKENDS)
    parser.add_argument("--pooler", nargs="?", const="pgbouncer", help="connect workers through this PgBouncer")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    threads = kills = stops = restarts = full_disks = 0
    sound = True
    sums = dict.fromkeys(("unfinished", "lost", "doubled", "forked", "stale"), 0)
    for backend in arguments.backends:
        with tempfile.TemporaryDirectory(prefix="lockstitch-chaos-") as name:
            folder = Path(name)
            server = PostgresServer() if backend == "postgres" else None
            url = server.create_database() if server else f"sqlite:///{folder / 'store.db'}"
            pooler = Pooler(server, arguments.pooler) if server and arguments.pooler else None
            try:
                findings, counts = play(
                    url,
                    folder,
                    seconds=arguments.seconds,
                    seed=arguments.seed,
                    open_houses=arguments.houses,
                    server=server,
                    worker_url=pooler.url(url) if pooler else None,
                    workers=arguments.workers,
                    patience=arguments.patience,
                    poison=arguments.poison,
                    until_doubled=arguments.until_doubled,
                )
                rounds = server.create_database() if server else f"sqlite:///{folder / 'rounds.db'}"
                faults = asyncio.run(fan_in(rounds, arguments.rounds)) if arguments.rounds else Counter[str]()
            finally:
                if pooler:
                    pooler.close()
                if server:
                    server.close()
            print(f"{backend}: {arguments.rounds} rounds of 20 children ending at once: {dict(faults) or 'no fault'}")
            for kind in faults:
                findings.add(kind if kind in sums else "lost", "rounds", f"{faults[kind]} times {kind}")
            print(f"{backend}: {findings.threads} threads, {counts.kills} kills, {counts.stops} stops, "
                  f"{counts.cuts} cuts, {counts.restarts} restarts, {counts.full_disks} full disks: {findings}; "
                  f"{findings.in_doubt} calls in doubt, {findings.crashed} stopped by the crash limit, "
                  f"{findings.poison} poison, {findings.requests} requests of clients",
                  *findings.problems[:20], sep="\n  ", flush=True)  # fmt: skip
            if not findings.sound:
                print((folder / "workers.log").read_text()[-4000:], file=sys.stderr)
        threads, kills, stops = threads + findings.threads, kills + counts.kills, stops + counts.stops
        restarts, full_disks = restarts + counts.restarts, full_disks + counts.full_disks
        sound = sound and findings.sound
        for kind in sums:
            sums[kind] += findings.counts[kind]
    verdict = ", ".join(f"{kind} {number}" for kind, number in sums.items())
    outages = f"{restarts} restarts, {full_disks} full disks"
    print(f"chaos: {threads} threads, {kills} kills, {stops} stops, {outages}: {verdict}")
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main())
