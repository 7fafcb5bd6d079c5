"""The prioritiser's tables, queries and lens parts."""
