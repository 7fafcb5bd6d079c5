"""How properties are examined: the same examples in every run, and no stopwatch on a busy machine."""

from hypothesis import settings

thorough = settings(max_examples=300, deadline=None, derandomize=True)
quick = settings(max_examples=100, deadline=None, derandomize=True)
