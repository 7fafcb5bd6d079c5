"""Statistics of spans: counts, tokens, costs, percentiles of durations, rates."""

import math
from collections.abc import Iterable, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from lockstitch.integrations.langsmith.filters import seconds_between
from lockstitch.model import Json, format_time, parse_time


class Aggregate:
    """Collects spans one at a time. Tokens and costs of a span below another collected span count once."""

    def __init__(self) -> None:
        self.count = 0
        self.errors = 0
        self.latencies: list[float] = []
        self.first_tokens: list[float] = []
        self.tokens: list[int] = []
        self.costs: list[float] = []
        self.first: datetime | None = None
        self.last: datetime | None = None
        self.ended: datetime | None = None
        self._ids: set[str] = set()
        self._spans: list[tuple[str, list[str], Json]] = []

    def add(self, span: Json) -> None:
        """Add a span in the format of LangSmith."""
        self.count += 1
        self.errors += bool(span["error"]) or span["status"] == "error"
        latency = seconds_between(span["start_time"], span["end_time"])
        first_token = seconds_between(span["start_time"], span.get("first_token_time"))
        self.latencies += [] if latency is None else [latency]
        self.first_tokens += [] if first_token is None else [first_token]
        began = parse_time(span["start_time"])
        self.first = min(began, self.first or began)
        self.last = max(began, self.last or began)
        if span["end_time"]:
            ended = parse_time(span["end_time"])
            self.ended = max(ended, self.ended or ended)
        if span["total_tokens"] is not None:
            self.tokens.append(span["total_tokens"])
        if span["total_cost"] is not None:
            self.costs.append(float(span["total_cost"]))
        names = ("prompt_tokens", "completion_tokens", "total_tokens", "prompt_cost", "completion_cost", "total_cost")
        self._ids.add(str(span["id"]))
        self._spans.append((str(span["id"]), span["parent_run_ids"], {name: span[name] for name in names}))

    def sum(self, name: str) -> Any:
        """Return the sum of a figure: an integer of tokens, or dollars. None if no span has a cost."""
        own = [figures[name] for _, above, figures in self._spans if self._ids.isdisjoint(above)]
        known = [value for value in own if value is not None]
        if name.endswith("tokens"):
            return sum(known)
        return float(sum((Decimal(str(value)) for value in known), Decimal(0))) if known else None

    @property
    def error_rate(self) -> float | None:
        return self.errors / self.count if self.count else None

    @property
    def streaming_rate(self) -> float | None:
        return len(self.first_tokens) / self.count if self.count else None

    def as_json(self, feedback_stats: Json) -> Json:
        """Return the statistics in the format of `/runs/stats` and of a LangSmith project."""
        median_tokens = percentile(self.tokens, 50)
        return {
            "run_count": self.count,
            "latency_p50": percentile(self.latencies, 50),
            "latency_p99": percentile(self.latencies, 99),
            "first_token_p50": percentile(self.first_tokens, 50),
            "first_token_p99": percentile(self.first_tokens, 99),
            "total_tokens": self.sum("total_tokens"),
            "prompt_tokens": self.sum("prompt_tokens"),
            "completion_tokens": self.sum("completion_tokens"),
            "median_tokens": None if median_tokens is None else round(median_tokens),
            "tokens_p99": percentile(self.tokens, 99),
            "total_cost": self.sum("total_cost"),
            "prompt_cost": self.sum("prompt_cost"),
            "completion_cost": self.sum("completion_cost"),
            "cost_p50": percentile(self.costs, 50),
            "cost_p99": percentile(self.costs, 99),
            "last_run_start_time": format_time(self.last) if self.last else None,
            "error_rate": self.error_rate,
            "streaming_rate": self.streaming_rate,
            "feedback_stats": feedback_stats,
            "run_facets": [],
        }


def aggregate(spans: Iterable[Json]) -> Aggregate:
    """Return the statistics of spans."""
    result = Aggregate()
    for span in spans:
        result.add(span)
    return result


def percentile(values: Sequence[float], percent: float) -> float | None:
    """Return a percentile, interpolated between the two nearest values. None without values."""
    if not values:
        return None
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
