"""Floors: the best that hand-written SQL does on the same driver, with the same rows in the same tables."""
