"""`python -m benchmarks`: print a table and write build/bench.json."""

import argparse
import asyncio
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from benchmarks import (
    append,
    claims,
    commits,
    comparison,
    depth,
    evals,
    generations,
    idle,
    importing,
    lenses,
    many,
    memory,
    opening,
    pages,
    planning,
    reading,
    receivers,
    receiving,
    recovery,
    reports,
    runtime,
    size,
    starting,
    step_cpu,
    steps,
    surviving,
    teams,
    traces,
    waking,
    watching,
    workers,
)
from benchmarks.places import ALL, Places
from benchmarks.report import Row, table, write
from benchmarks.scale import FULL, QUICK, Scale

GROUPS = {
    "append": append,
    "runtime": runtime,
    "comparison": comparison,
    "step_cpu": step_cpu,
    "workers": workers,
    "commits": commits,
    "depth": depth,
    "teams": teams,
    "evals": evals,
    "steps": steps,
    "pages": pages,
    "claims": claims,
    "size": size,
    "reading": reading,
    "reports": reports,
    "watching": watching,
    "waking": waking,
    "recovery": recovery,
    "surviving": surviving,
    "idle": idle,
    "importing": importing,
    "generations": generations,
    "traces": traces,
    "memory": memory,
    "lenses": lenses,
    "receiving": receiving,
    "receivers": receivers,
    "opening": opening,
    "many": many,
    "starting": starting,
    "planning": planning,
}

BY_HAND = frozenset({"comparison", "memory", "opening", "receiving", "receivers", "reports"})
"""Groups that run only if they are named: they need more than a database, or much time."""


async def run(groups: list[str], backends: list[str], scale: Scale) -> list[Row]:
    """Run these groups and return their rows. Notes are printed at once; the caller prints the table."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="lockstitch-bench-") as folder:
        places = Places(Path(folder), durable=scale.rounds > QUICK.rounds)
        try:
            for name in groups:
                for backend in GROUPS[name].BACKENDS:
                    if backend not in (*backends, "none"):
                        continue
                    started = time.perf_counter()
                    measured = await GROUPS[name].measure(places, backend, scale)
                    rows += measured.rows
                    print(f"{name} on {backend}: {time.perf_counter() - started:.0f} s", file=sys.stderr)
                    for note in measured.notes:
                        print(f"  {note}", file=sys.stderr)
        finally:
            places.close()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", metavar="NAME,…", help=f"groups to run: {', '.join(GROUPS)}")
    parser.add_argument("--backends", metavar="NAME,…", default=",".join(ALL), help="default: %(default)s")
    parser.add_argument("--quick", action="store_true", help="small numbers: does it work, not how fast is it")
    parser.add_argument("--stitches", type=int, metavar="N", help="stitches of the store of the group lenses")
    parser.add_argument("--output", type=Path, default=Path("build/bench.json"), help="default: %(default)s")
    arguments = parser.parse_args()
    groups = arguments.only.split(",") if arguments.only else [name for name in GROUPS if name not in BY_HAND]
    unknown = set(groups) - GROUPS.keys()
    if unknown:
        parser.error(f"there is no group {', '.join(sorted(unknown))}; there are {', '.join(GROUPS)}")
    scale = QUICK if arguments.quick else FULL
    if arguments.stitches:
        scale = replace(scale, looked_at=arguments.stitches)
    rows = asyncio.run(run(groups, arguments.backends.split(","), scale))
    print(table(rows))
    write(rows, arguments.output)
    missed = [row for row in rows if row.met is False]
    print(f"\n{len(rows)} figures, {len(missed)} aims missed; written to {arguments.output}")


if __name__ == "__main__":
    main()
