"""Agno that stores the run after each tool call, with `checkpoint="tool-batch"`."""

from functools import partial

from benchmarks.peers import agno

threads = partial(agno.threads, checkpoint="tool-batch")
