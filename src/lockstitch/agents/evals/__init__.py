"""Evals: a dataset against an agent, graded, kept in the record."""
