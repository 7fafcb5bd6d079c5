"""Integrations with other systems: import of their traces, and export in their formats."""
