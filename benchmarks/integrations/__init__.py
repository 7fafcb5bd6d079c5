"""Integrations, compared with the stores that the frameworks have themselves."""
