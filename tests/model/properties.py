"""Default number of examples of property tests."""

from hypothesis import settings

quick = settings()
thorough = settings(max_examples=3 * settings().max_examples)
