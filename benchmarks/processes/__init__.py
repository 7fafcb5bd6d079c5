"""Programs of separate processes: they append, hold threads, are killed, and take over."""
