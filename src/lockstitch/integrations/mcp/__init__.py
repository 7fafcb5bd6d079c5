"""The MCP server: models read the record with tools. Needs the extra `mcp`."""
