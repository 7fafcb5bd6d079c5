"""Other processes: those that append, hold and are killed, and take over."""
