"""Peers: other libraries with the same work, if they are installed (`pip install 'lockstitch[peers]'`)."""
