"""Evaluations: run a dataset with an agent, grade the answers, store the outcomes."""
