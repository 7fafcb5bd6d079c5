"""Baselines: hand-written SQL with the same driver that writes the same rows into the same tables."""
