"""Loads what all tests share."""

import os
import signal

from hypothesis import settings

from tests import faults

# A shell that starts us in the background has us ignore interrupts, and whatever we start would ignore them too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples in every run, and no time limit on a busy machine. LOCKSTITCH_EXAMPLES=500 tries as many new ones.
EXAMPLES = os.environ.get("LOCKSTITCH_EXAMPLES")
settings.register_profile("suite", max_examples=int(EXAMPLES or 50), deadline=None, derandomize=not EXAMPLES)
settings.load_profile("suite")

faults.install()

pytest_plugins = ["tests.plugin_requirements", "tests.fixtures", "tests.cli.calling"]
