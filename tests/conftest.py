"""Loads what all tests share."""

pytest_plugins = ["tests.plugin_requirements", "tests.fixtures"]
