"""Loads what all tests share."""

import signal

# A shell that starts us in the background has us ignore interrupts, and whatever we start would ignore them too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = ["tests.plugin_requirements", "tests.fixtures", "tests.cli.calling"]
