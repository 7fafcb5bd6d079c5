"""How often properties of the records are tried, when the number is not given from outside."""

from hypothesis import settings

quick = settings()
thorough = settings(max_examples=3 * settings().max_examples)
