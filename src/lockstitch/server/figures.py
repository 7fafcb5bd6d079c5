"""Figures of a server about itself, in the text format that Prometheus reads."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

BUCKETS: Final = (0.005, 0.025, 0.1, 0.5, 2.5, 10.0)
"""Seconds up to which requests are counted together."""

_OTHER: Final = "other"
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Figures:
    """Counts requests by route and outcome, and how long they took."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._within: Counter[tuple[str, float]] = Counter()
        self._seconds: Counter[str] = Counter()

    def count(self, method: str, route: str | None, status: int, seconds: float) -> None:
        # Only routes and methods that exist are named: what strangers make up would grow without end.
        where = route or _OTHER
        self._requests[(method if method in _METHODS else _OTHER, where, status)] += 1
        self._seconds[where] += seconds  # pyright: ignore[reportArgumentType]
        for bound in BUCKETS:
            if seconds <= bound:
                self._within[(where, bound)] += 1

    def text(self, gauges: Mapping[str, tuple[str, Iterable[tuple[Mapping[str, str], float]]]]) -> str:
        """Everything counted, and gauges: name to help and values by label."""
        lines = ["# HELP lockstitch_requests_total Requests answered.", "# TYPE lockstitch_requests_total counter"]
        for (method, route, status), number in sorted(self._requests.items()):
            labels = {"method": method, "route": route, "status": str(status)}
            lines.append(f"lockstitch_requests_total{_labels(labels)} {number}")
        lines += ["# HELP lockstitch_request_seconds Time to the end of an answer, streams included."]
        lines += ["# TYPE lockstitch_request_seconds histogram"]
        for route in sorted(self._seconds):
            total = sum(number for (_, where, _), number in self._requests.items() if where == route)
            for bound in BUCKETS:
                labels = {"route": route, "le": f"{bound:g}"}
                lines.append(f"lockstitch_request_seconds_bucket{_labels(labels)} {self._within[(route, bound)]}")
            lines.append(f"lockstitch_request_seconds_bucket{_labels({'route': route, 'le': '+Inf'})} {total}")
            lines.append(f"lockstitch_request_seconds_sum{_labels({'route': route})} {self._seconds[route]:.6f}")
            lines.append(f"lockstitch_request_seconds_count{_labels({'route': route})} {total}")
        for name, (told, values) in gauges.items():
            lines += [f"# HELP {name} {told}", f"# TYPE {name} gauge"]
            lines += [f"{name}{_labels(labels)} {value:g}" for labels, value in values]
        return "\n".join(lines) + "\n"


def _labels(labels: Mapping[str, str]) -> str:
    def escaped(value: str) -> str:
        return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    return "{" + ",".join(f'{name}="{escaped(value)}"' for name, value in labels.items()) + "}" if labels else ""
