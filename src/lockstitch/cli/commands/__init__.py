"""The commands, a module for each group that belongs together."""
