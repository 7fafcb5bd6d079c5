"""The SQL of notebooks."""
