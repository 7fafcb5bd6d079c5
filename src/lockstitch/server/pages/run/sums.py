"""The figures of a run as a whole: what it took, and for what."""

from dataclasses import dataclass

from lockstitch.records import Run
from lockstitch.records.figures import TOOL_ERRORS
from lockstitch.store.traces import Trace
from lockstitch.store.tracing import Node


@dataclass(slots=True)
class Sums:
    """Sums over the tree of a run. Times are those of its own calls and its members'; costs are of all below it."""

    steps: int
    milliseconds: float | None = None
    model: int = 0
    tools: int = 0
    pauses: int = 0
    children: int = 0
    steps_below: int = 0
    input: int = 0
    cached: int = 0
    output: int = 0
    cost: float | None = None
    retries: int = 0
    errors: int = 0

    @property
    def share(self) -> int:
        """How much of the input came from the cache, in percent."""
        return round(100 * self.cached / self.input) if self.input else 0

    def add_cost(self, cost: float | None) -> None:
        if cost is not None:
            self.cost = (self.cost or 0.0) + cost


def sums_of(trace: Trace) -> Sums:
    run = trace.run
    sums = Sums(run.steps, trace.root.duration_ms)
    _use(sums, run)
    waiting: list[tuple[Node, bool]] = [(trace.root, False)]
    while waiting:
        node, elsewhere = waiting.pop()
        _count(sums, node, elsewhere, trace.root)
        waiting += [(child, elsewhere or node.kind == "thread") for child in node.children]
    return sums


def _use(sums: Sums, run: Run) -> None:
    sums.input, sums.cached, sums.output = run.input_tokens, run.cache_read_tokens, run.output_tokens
    sums.add_cost(run.total_cost)


def _count(sums: Sums, node: Node, elsewhere: bool, root: Node) -> None:
    wrong = node.status in TOOL_ERRORS or node.type.endswith(("_error", "_failed"))
    if node.type == "api_retry":
        sums.retries += 1
    elif wrong and node is not root and node.kind not in ("thread", "run") and node.type != "tool_error":
        # The failed call is counted; what it says of its error is the same one again.
        sums.errors += 1
    if node.kind == "thread":
        sums.children += 1
        if not elsewhere:
            # What a child's own children took is in its figures.
            sums.add_cost(node.cost)
    elif node.kind == "run" and node is not root and not elsewhere:
        sums.add_cost(node.cost)
        for name, count in (node.usage or {}).items():
            match name:
                case "input_tokens":
                    sums.input += count
                case "output_tokens":
                    sums.output += count
                case "cache_read_input_tokens":
                    sums.cached += count
                case _:
                    pass
    if elsewhere:
        sums.steps_below += node.step is not None
        return
    sums.pauses += node.pause_ms or 0
    if node.kind == "model":
        sums.model += node.duration_ms or 0
    elif node.kind == "tool":
        sums.tools += node.duration_ms or 0
