"""The PostgreSQL backend: many processes, one round trip and one commit per append."""
