"""Peers: other libraries with the same work. Each has a separate environment; see `environment`.

A module that is named after a peer has `threads(url, concurrency)`. It opens the database and returns a function that
prepares NUMBER threads of STEPS steps. That function returns another one, which executes them, `concurrency` at once.
Only the last one is measured. These modules import the peer, the standard library and `benchmarks.content`.
"""

from collections.abc import Callable

Execute = Callable[[], None]
Prepare = Callable[[int, int], Execute]
