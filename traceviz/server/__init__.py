"""The MCP server: the commands' brief answers for assistants, about captures in given folders, read-only."""
