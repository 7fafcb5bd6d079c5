"""The unmodified LangSmith client against a server."""
