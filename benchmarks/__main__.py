"""`python -m benchmarks`: print a table and write build/bench.json.

With `--peers` it runs the groups of the comparison in README.md, and writes that comparison and its results.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import (
    append,
    claims,
    commits,
    comparison,
    depth,
    evals,
    generations,
    growth,
    idle,
    importing,
    lake,
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
from benchmarks.scale import COMPARISON, FULL, QUICK, Scale
from tools import generate_comparison

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
    "lake": lake,
    "growth": growth,
    "receiving": receiving,
    "receivers": receivers,
    "opening": opening,
    "many": many,
    "starting": starting,
    "planning": planning,
}

BY_HAND = frozenset({"comparison", "growth", "lake", "memory", "opening", "receiving", "receivers", "reports"})
"""Groups that run only if they are named: they need more than a database, or much time."""

COMPARED = ("comparison", "append", "step_cpu", "surviving")
"""Groups of the figures in README.md."""


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
    parser.add_argument("--peers", action="store_true", help="compare with other systems, and write README.md")
    parser.add_argument("--backends", metavar="NAME,…", default=",".join(ALL), help="default: %(default)s")
    parser.add_argument("--quick", action="store_true", help="small numbers: does it work, not how fast is it")
    parser.add_argument(
        "--stitches",
        type=int,
        metavar="N",
        help="stitches of the store of lenses, lake and growth",
    )
    parser.add_argument("--output", type=Path, default=Path("build/bench.json"), help="default: %(default)s")
    arguments = parser.parse_args()
    if arguments.peers:
        groups = list(COMPARED)
    else:
        groups = arguments.only.split(",") if arguments.only else [name for name in GROUPS if name not in BY_HAND]
    unknown = set(groups) - GROUPS.keys()
    if unknown:
        parser.error(f"there is no group {', '.join(sorted(unknown))}; there are {', '.join(GROUPS)}")
    scale = QUICK if arguments.quick else COMPARISON if arguments.peers else FULL
    if arguments.stitches:
        scale = replace(scale, looked_at=arguments.stitches, grown=(*scale.grown, arguments.stitches))
    load = os.getloadavg()[0]
    rows = asyncio.run(run(groups, arguments.backends.split(","), scale))
    print(table(rows))
    write(rows, arguments.output)
    missed = [row for row in rows if row.met is False]
    print(f"\n{len(rows)} figures, {len(missed)} aims missed; written to {arguments.output}")
    if scale is COMPARISON:
        write_comparison(rows, load)


def write_comparison(rows: list[Row], load: float) -> None:
    """Write the figures of README.md and their results, if all were measured."""
    results = {
        "date": datetime.now(UTC).date().isoformat(),
        "cores": os.cpu_count(),
        "load": round(load, 2),
        "versions": generate_comparison.versions(),
        "rows": [row.as_json() for row in rows],
    }
    text = generate_comparison.readme(results)
    if generate_comparison.NOT_MEASURED in generate_comparison.figures(results):
        print("README.md is unchanged: not all figures of the comparison were measured.")
        return
    generate_comparison.RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    generate_comparison.README.write_text(text, encoding="utf-8")
    print("The comparison is written to README.md.")


if __name__ == "__main__":
    main()
