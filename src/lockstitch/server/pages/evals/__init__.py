"""The pages of datasets and evaluations."""
