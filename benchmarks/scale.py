"""`Scale`: the sizes of all benchmarks, full or quick. The quick scale only checks that they work."""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Scale:
    rounds: int
    """Rounds of baseline and Lockstitch; odd, so that there is a median round."""
    appends: int
    """Durable appends of one side in one round."""
    concurrencies: tuple[int, ...]
    deep: int
    """Stitches of a long thread."""
    steps: int
    """Steps of a long run."""
    page_depth: int
    """Records before a deep page."""
    threads: int
    """Threads in the store of the claim benchmark."""
    turns: int
    """Turns of the conversation for the size benchmark."""
    stitches: int
    """Stitches of the uniform logs for the size benchmark."""
    sights: int
    """Appends of another process that are watched."""
    kills: int
    imports: int
    lengths: tuple[int, ...]
    """Steps of the threads that an agent executes."""
    crews: tuple[int, ...]
    """Worker processes that work together."""
    goals: int
    """Threads that they execute in one round."""
    wakes: int
    """Children that end, and wake their parents."""
    idlers: dict[str, int]
    """Idle workers, by backend."""
    idle_seconds: float
    traces: int
    """Traces of ten spans that are imported."""
    import_rounds: int
    """Rounds of an import and its baseline: each takes seconds."""
    imported_bytes: int
    """Size of the file for the memory benchmark."""
    whole_trace: int
    """Spans of the one trace that is imported and shown."""
    looked_at: int
    """Stitches of the store for the lens benchmark."""
    received: int
    """Traces of ten spans that are sent to a server."""
    grown: tuple[int, ...]
    """Stitches of the stores for the benchmark of growth."""
    opened: int
    """Stitches of the store for the page benchmark."""
    cases: int
    """Cases of an eval."""
    open_runs: int
    """Runs that one process executes at once."""
    runs_each: int
    """Runs that follow one another, for each of these."""


FULL = Scale(
    rounds=11,
    appends=500,
    concurrencies=(1, 10, 50),
    deep=100_000,
    steps=10_000,
    page_depth=10_000,
    threads=1_000_000,
    turns=400,
    stitches=2_000,
    sights=100,
    kills=5,
    imports=15,
    lengths=(10, 100, 1000),
    crews=(1, 2),
    goals=300,
    wakes=100,
    idlers={"postgres": 100, "sqlite": 10},
    idle_seconds=30,
    traces=10_000,
    import_rounds=3,
    imported_bytes=1_000_000_000,
    whole_trace=30_000,
    looked_at=1_000_000,
    received=5_000,
    grown=(10_000, 1_000_000),
    opened=1_000_000,
    cases=100,
    open_runs=200,
    runs_each=5,
)

COMPARISON = replace(FULL, rounds=5, kills=3)
"""The scale of `--peers`. Peers are slower, so it has fewer rounds."""

QUICK = Scale(
    rounds=1,
    appends=50,
    concurrencies=(1, 10, 50),
    deep=100,
    steps=20,
    page_depth=50,
    threads=200,
    turns=10,
    stitches=50,
    sights=3,
    kills=1,
    imports=1,
    lengths=(10,),
    crews=(1,),
    goals=5,
    wakes=2,
    idlers={"postgres": 2, "sqlite": 1},
    idle_seconds=1,
    traces=20,
    import_rounds=1,
    imported_bytes=1_000_000,
    whole_trace=200,
    looked_at=100,
    received=100,
    grown=(1_000, 2_000),
    opened=50_000,
    cases=6,
    open_runs=10,
    runs_each=1,
)
