"""Load the plugins and settings of all tests."""

import gc
import os
import shutil
import signal
import tempfile
from pathlib import Path

from hypothesis import settings

from tests import faults

# A shell that starts pytest in the background makes it ignore interrupts. Its child processes would ignore them, too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples in every run, and no time limit on a busy machine. LOCKSTITCH_EXAMPLES=500 tries as many new ones.
EXAMPLES = os.environ.get("LOCKSTITCH_EXAMPLES")
settings.register_profile("suite", max_examples=int(EXAMPLES or 30), deadline=None, derandomize=not EXAMPLES)
settings.load_profile("suite")

faults.install()

MEMORY = Path("/dev/shm")
ROOM = 4 << 30
"""Bytes that the temporary files of all tests may take at once."""

# In memory a commit does not wait for a disk. No test depends on that: they kill processes and not the machine.
if "TMPDIR" not in os.environ and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ROOM:
    os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)


def pytest_configure() -> None:
    """Collect tests without garbage collection: nothing that is imported is freed."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Exclude the collected tests from garbage collection, which would examine all of them repeatedly."""
    gc.collect()
    gc.freeze()
    gc.enable()


pytest_plugins = [
    "tests.plugin_requirements",
    "tests.plugin_backends",
    "tests.plugin_processes",
    "tests.fixtures",
    "tests.browser",
    "tests.cli.calling",
]
