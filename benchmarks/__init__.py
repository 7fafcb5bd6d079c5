"""Benchmarks of time and size, each with a baseline or a bound of the same run: `python -m benchmarks`."""
