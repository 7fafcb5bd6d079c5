"""Peers: others doing the same work, where they are installed (`pip install 'lockstitch[peers]'`)."""
