"""Generated traces in the formats of other systems, the same in every run."""
