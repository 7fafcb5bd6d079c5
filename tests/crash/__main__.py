"""`make crash`: kill processes, check the record, count. The last line is the verdict.

Writers are killed at random moments, the engine at every named point of an errand and of the work of teams. Threads
with tools that kill their process fail, and no other threads.
"""

import argparse
import sys
import tempfile
import time
from itertools import count
from pathlib import Path

from tests.crash.killing import kill
from tests.crash.matrix import PLAYS, MatrixReport, kill_at_points
from tests.crash.poison import poisoned
from tests.faults import install
from tests.fixtures import BACKENDS
from tests.races.deliveries import Faults, play
from tests.servers import PostgresServer


def main() -> int:
    install()
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="per backend")
    parser.add_argument("--points", type=int, default=None, help="of each play, per backend; all of them if not given")
    parser.add_argument("--plays", nargs="*", choices=PLAYS, default=list(PLAYS))
    parser.add_argument("--rounds", type=int, default=2000, help="of deliveries, per backend")
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=BACKENDS)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    points = lost = repeated = doubts = problems = 0
    for backend in arguments.backends:
        with tempfile.TemporaryDirectory(prefix="lockstitch-crash-") as folder:
            server = PostgresServer() if backend == "postgres" else None
            try:
                url = _url(backend, Path(folder), server)
                report = kill(url, arguments.kills, arguments.seed)
                print(f"{backend}: {report.kills} kills, {report.acknowledged} commits acknowledged, "
                      f"lost {report.lost}, repeated {report.repeated}",
                      *report.problems, sep="\n  ", flush=True)  # fmt: skip
                faults = Faults()
                if arguments.rounds:
                    rounds = _url(backend, Path(folder) / "rounds", server)
                    faults = play(rounds, arguments.rounds, arguments.seed, 7200)
                print(f"{backend}: {arguments.rounds} rounds of deliveries: {dict(faults) or 'no fault'}", flush=True)
                number = count()
                plays: list[MatrixReport] = []
                for name in arguments.plays:
                    plays.append(
                        kill_at_points(
                            lambda: _url(backend, Path(folder) / f"killed-{next(number)}", server),  # noqa: B023
                            Path(folder) / name,
                            arguments.points,
                            name,
                        )
                    )
                    print(f"{backend}: the {name}, killed at {plays[-1]}", flush=True)
                poison = poisoned(_url(backend, Path(folder) / "poison", server), Path(folder) / "poison")
                print(f"{backend}: {poison}", flush=True)
            finally:
                if server:
                    server.close()
        points = max(points, report.kills + sum(len(killed.verdicts) for killed in plays))
        lost += poison.lost + report.lost + faults["lost"] + faults["asleep"] + sum(killed.lost for killed in plays)
        repeated += poison.repeated + report.repeated + faults["doubled"] + sum(killed.repeated for killed in plays)
        doubts += sum(killed.in_doubt for killed in plays)
        problems += (
            len(poison.problems) + len(report.problems) + faults["gaps"] + sum(len(killed.problems) for killed in plays)
        )
    print(f"crash: {points} points x {len(arguments.backends)} backends: "
          f"lost {lost}, repeated {repeated}, in doubt {doubts}")  # fmt: skip
    return 1 if lost or repeated or problems else 0


def _url(backend: str, folder: Path, server: PostgresServer | None) -> str:
    folder.mkdir(exist_ok=True)
    if server is not None:
        return server.create_database()
    return f"sqlite:///{folder / 'store.db'}" if backend == "sqlite" else f"file://{folder / 'store'}"


if __name__ == "__main__":
    sys.exit(main())
