"""The list of threads: columns, filters, rows and counts."""
