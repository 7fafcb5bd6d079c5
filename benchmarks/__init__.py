"""How fast and how small, each figure beside a floor or a bound of the same run: `python -m benchmarks`."""
