"""An MCP server of the official Python SDK over streamable HTTP, with one tool. Arguments: its port."""

import sys

from mcp.server.fastmcp import FastMCP

server = FastMCP("adder", host="127.0.0.1", port=int(sys.argv[1]))


@server.tool()
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


server.run(transport="streamable-http")
