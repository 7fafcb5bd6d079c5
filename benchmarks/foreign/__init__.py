"""Traces as other systems write them down, made to measure: the same at every run."""
